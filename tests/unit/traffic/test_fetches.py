"""Flows that send HTTP requests, without a server."""

import asyncio
import json

import pytest
from fake_lab import verdict_on
from scenario_cases import frontend, probe

from proxylab.control.http_client import HttpAnswer
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.traffic.http import Fetches
from proxylab.traffic.identity import Identity

FLOWS = 40


def test_a_flow_without_an_answer_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones hear nothing until all others have been answered; a bounded number is under way at once."""
    most = under_way = 0

    async def scenario() -> Fetches:
        others_answered = asyncio.Event()

        async def asked(_netns: object, _resolved: object, port: int, *_: object) -> tuple[str, HttpAnswer | None]:
            nonlocal most, under_way
            under_way += 1
            most = max(most, under_way)
            if port < 5:
                await others_answered.wait()
            await asyncio.sleep(0)
            under_way -= 1
            if port == FLOWS - 1:
                others_answered.set()
            return ("timeout", None) if port < 5 else ("", HttpAnswer(200, {}, b"{}"))

        monkeypatch.setattr("proxylab.traffic.http._get", asked)
        resolved = verdict_on(probe("p", "c", frontend())).resolved
        fetches = Fetches(NetNs("c", -1), resolved, Identity(bytes(8), 0, 4 * FLOWS, FLOWS), range(FLOWS))
        async with asyncio.timeout(5):
            while fetches.advance():
                await asyncio.sleep(0)
        return fetches

    fetches = asyncio.run(scenario())
    assert len(fetches.answers) == FLOWS - 5
    assert not fetches.finished
    assert fetches.abandon()
    assert {each.flow for each in fetches.answers if each.error == "timeout"} == set(range(5))
    assert fetches.finished
    assert 5 < most <= 16
    assert fetches.sent == FLOWS


@pytest.mark.parametrize("peer", ["nobody", "", "10.0.0.1:80", "999.1.1.1"])
def test_an_answer_that_only_looks_like_a_responders_counts_as_no_responders(
    monkeypatch: pytest.MonkeyPatch, peer: str
) -> None:
    body = json.dumps({"pod": "x", "peer": peer, "port": 1}).encode()

    async def asked(*_: object) -> tuple[str, HttpAnswer]:
        return "", HttpAnswer(200, {}, body)

    async def scenario() -> Fetches:
        fetches = Fetches(
            NetNs("c", -1), verdict_on(probe("p", "c", frontend())).resolved, Identity(bytes(8), 0, 4, 1), [4000]
        )
        while fetches.advance():
            await asyncio.sleep(0)
        return fetches

    monkeypatch.setattr("proxylab.traffic.http._get", asked)
    fetches = asyncio.run(scenario())
    assert [each.status for each in fetches.answers] == [200]
    assert [(each.error, each.backend) for each in fetches.reports] == [("", "")]
