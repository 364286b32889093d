"""What the lab learns from proxies' own processes, which no sentinel packet passes."""

import asyncio
from collections.abc import Mapping
from ipaddress import ip_address

import pytest

from proxylab.addresses import Transport
from proxylab.evidence.evidence import Discarded
from proxylab.plan.resolved import ResolvedProbe, Sender
from proxylab.scenario.words import Manner
from proxylab.traffic.programs import Passage, Programs


def passage(protocol: Transport, *counts: Mapping[str, int] | None, terminating: tuple[str, ...] = ("b",)) -> Passage:
    """Of a way over nodes a and b, where those of ``terminating`` give these answers one after the other."""
    address, given = ip_address("10.0.0.1"), iter(counts)
    resolved = ResolvedProbe(
        number=0,
        name="a probe",
        sender=Sender(name="a", namespace="a", device="eth0", address=address, mac="", next_hop_mac=""),
        destination=address,
        port=53,
        protocol=protocol,
        manner=Manner.CONNECT,
        flows=1,
        payload=0,
        receivers=(),
        sentinels=(),
        nodes=("a", "b"),
    )

    async def drain(_node: str, connections: bool) -> Mapping[str, int] | None:
        assert connections is (protocol is Transport.TCP)
        return next(given)

    return Programs(lambda: (*terminating, "elsewhere"), drain).on_the_way(resolved)


def drained(of: Passage, times: int = 1) -> bool:
    async def story() -> bool:
        await of.begin()
        return bool(times) and [await of.drain() for _ in range(times)][-1]

    return asyncio.run(story())


def test_a_process_that_can_be_asked_holds_nothing_and_says_what_it_discarded() -> None:
    asked = passage(Transport.UDP, {"default/dns/UDP": 3}, {"default/dns/UDP": 5, "default/new/UDP": 1})
    assert drained(asked)
    assert asked.nodes == ("b",)
    assert asked.undrained == ()
    assert asked.discarded() == (Discarded("b", "default/dns/UDP", 2), Discarded("b", "default/new/UDP", 1))


def test_a_new_process_counts_from_zero() -> None:
    asked = passage(Transport.UDP, {"default/dns/UDP": 3}, {"default/dns/UDP": 1})
    assert drained(asked)
    assert asked.discarded() == ()


def test_a_process_that_cannot_be_asked_may_hold_something() -> None:
    silent = passage(Transport.UDP, {}, None)
    assert not drained(silent)
    assert silent.undrained == ("b",)


def test_of_connections_a_process_is_asked_after_the_flows_alone() -> None:
    asked = passage(Transport.TCP, {})
    assert asked.undrained == ("b",)
    assert drained(asked)
    assert asked.undrained == ()


def test_a_process_that_was_asked_before_the_flows_alone_may_hold_something() -> None:
    asked = passage(Transport.UDP, {})
    assert not drained(asked, times=0)
    assert asked.undrained == ("b",)


@pytest.mark.parametrize(("protocol", "terminating"), [(Transport.SCTP, ("a", "b")), (Transport.UDP, ())])
def test_nothing_is_asked_of_sctp_or_where_no_proxy_ends_flows(
    protocol: Transport, terminating: tuple[str, ...]
) -> None:
    unasked = passage(protocol, terminating=terminating)
    assert not drained(unasked)
    assert unasked.undrained == terminating
