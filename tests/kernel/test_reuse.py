"""A lab that stands on the wire of the one before it cannot tell; and what nobody knows is not built upon."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sandboxed import USERS, sandboxed
from scenario_cases import front, probe, two_nodes

from lab.assembly import assemble
from lab.cluster.configuration import ConntrackTimeouts, ProxyConfiguration
from lab.engines.protocol import EngineChoice
from lab.kernel.launcher import Launcher
from lab.kernel.netns import inside
from lab.messages import Build, Built, Close, Closed, Dump, Dumped, Execute, Executed, Send, Sent
from lab.process import _Desk

BOTH = pytest.mark.parametrize("ordinary", USERS.values(), ids=USERS)


def request(variant: str = "", **choice: Any) -> tuple[Build, Any]:
    assembly = assemble(two_nodes(probe("p", "sender", front())))
    engine = EngineChoice(cluster_cidrs=assembly.scenario.network.pod_cidrs, iptables=variant, **choice)
    return Build(assembly.plan, assembly.objects, engine), assembly


def inodes(desk: _Desk) -> set[str]:
    return {str(Path(f"/proc/self/fd/{each.fd}").readlink()) for each in standing(desk).namespaces.values()}


def standing(desk: _Desk) -> Any:
    return desk._standing().wire.wiring


def sysctls(desk: _Desk, name: str) -> dict[str, str]:
    """Every sysctl that can be read in a namespace, but for those that count or draw lots."""
    found: dict[str, str] = {}
    with inside(standing(desk).namespaces[name]):
        for path in sorted(Path("/proc/sys/net").rglob("*")):
            if path.is_file() and not re.search("nf_conntrack_count|/flush$|stable_secret|random|uuid", str(path)):
                try:
                    found[str(path)] = path.read_text()
                except OSError:
                    continue
    return found


def unlike(before: dict[str, str], after: dict[str, str]) -> set[str]:
    return {path for path in before | after if before.get(path) != after.get(path)}


async def two_in_a_row(launcher: Launcher, variant: str) -> dict[str, Any]:
    """The first lab has an engine that changes what it can; the second is like one that was never disturbed."""
    meddling = ProxyConfiguration(
        conntrack=ConntrackTimeouts(tcp_established=7, tcp_close_wait=8, udp=9, udp_stream=10, tcp_be_liberal=True)
    )
    asked, assembly = request(variant)
    changed, _ = request(variant, configuration=meddling)
    desk = _Desk(launcher)
    found: dict[str, Any] = {"reused": [], "spaces": [], "rules": [], "sysctls": []}
    for each in (asked, changed, asked):
        built = await desk.answer(each)
        assert isinstance(built, Built), built
        sent = await desk.answer(Send(assembly.errands[0]))
        assert isinstance(sent, Sent), sent
        dumped = await desk.answer(Dump("node-a"))
        assert isinstance(dumped, Dumped), dumped
        found["reused"].append(built.reused)
        found["spaces"].append(sorted(inodes(desk)))
        found["rules"].append(re.sub(r"\[\d+:\d+\]|#.*", "", dumped.text))
        found["sysctls"].append(sysctls(desk, "node-a"))
    assert isinstance(await desk.answer(Close()), Closed)
    return found


async def legacy(launcher: Launcher) -> dict[str, Any]:
    return await two_in_a_row(launcher, "legacy")


async def nft(launcher: Launcher) -> dict[str, Any]:
    return await two_in_a_row(launcher, "nft")


@BOTH
@pytest.mark.parametrize("variant", [legacy, nft])
def test_a_second_lab_on_a_wire_is_like_the_first(variant: Any, ordinary: bool) -> None:
    found = sandboxed(variant, ordinary=ordinary)
    assert found["reused"] == [False, True, True]
    assert found["spaces"][0] == found["spaces"][1] == found["spaces"][2], "the very same namespaces"
    assert found["rules"][0] == found["rules"][2]
    assert unlike(found["sysctls"][0], found["sysctls"][1]), "the engine has written some"
    assert unlike(found["sysctls"][0], found["sysctls"][2]) == set()


def without_last(asked: Build) -> Build:
    """The same without the namespace that the plan names last."""
    *others, last = asked.plan.namespaces
    links = tuple(link for link in asked.plan.links if last.name not in {end.namespace for end in link.ends})
    return replace(asked, plan=replace(asked.plan, namespaces=tuple(others), links=links))


async def after_each(launcher: Launcher) -> dict[str, bool]:
    """Whether a lab stands on the wire before it, by what has happened before or is asked now."""
    asked, _ = request("legacy")
    echo_2 = asked.plan.namespace("echo-2")
    listening = replace(echo_2, listeners=echo_2.listeners[:1])
    others = tuple(listening if each is echo_2 else each for each in asked.plan.namespaces)
    desk, found = _Desk(launcher), {}

    async def built(what: str, request: Build) -> None:
        answer = await desk.answer(request)
        assert isinstance(answer, Built), (what, answer)
        found[what] = answer.reused

    await built("the first", asked)
    await built("the same again", asked)
    await built("other listeners", replace(asked, plan=replace(asked.plan, namespaces=others)))
    assert isinstance(await desk.answer(Execute("echo-1", ("true",))), Executed)
    await built("after a command", asked)
    await built("another generation", replace(asked, engine=replace(asked.engine, name="embedded@v1.23/iptables")))
    await built("another variant", replace(asked, engine=replace(asked.engine, iptables="nft")))
    await built("another wire", without_last(asked))
    assert isinstance(await desk.answer(Close()), Closed)
    await built("after a close", asked)
    assert isinstance(await desk.answer(Close()), Closed)
    return found


@BOTH
def test_a_wire_serves_twice_only_where_all_is_known(ordinary: bool) -> None:
    found = sandboxed(after_each, ordinary=ordinary)
    assert [what for what, reused in found.items() if reused] == ["the same again", "other listeners"]
