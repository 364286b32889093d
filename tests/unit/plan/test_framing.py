"""The receiver of a frame: any machine on the sender's own link, by name or by MAC."""

from ipaddress import ip_address

import pytest
from msgspec.structs import replace
from scenario_cases import host, node, pods, probe, scenario

from proxylab.errors import ScenarioError
from proxylab.plan.model import Plan
from proxylab.plan.resolve import resolve
from proxylab.plan.resolved import ResolvedProbe
from proxylab.plan.topology import draw
from proxylab.scenario.probes import AddressTarget, Send
from proxylab.scenario.words import Manner

LOOPBACK = AddressTarget(address=ip_address("127.0.0.1"), port=9)


def framed(name: str, frame_to: str) -> tuple[ResolvedProbe, Plan]:
    asked = probe("p", name, LOOPBACK, Send(manner=Manner.PACKET, frame_to=frame_to))
    case = scenario(
        [node("node-a"), node("node-b")],
        groups=[pods("echo", "node-b")],
        hosts=[host("neighbour", segment="nodes"), host("outside")],
        probes=[asked],
    )
    plan = draw(case)
    return resolve(case, plan, (), ())[0], plan


def test_a_frame_to_a_node_bears_the_address_of_its_device_on_the_link() -> None:
    by_host, plan = framed("neighbour", "node-b")
    assert by_host.sender.destination_mac == plan.end("node-b", "eth0").mac
    assert by_host.sender.next_hop_mac != by_host.sender.destination_mac, "sentinel packets go where routing says"
    assert "node-b" in [sentinel.name for sentinel in by_host.sentinels]
    by_pod, plan = framed("echo", "node-b")
    assert by_pod.sender.destination_mac == plan.peer("echo", "eth0").mac


def test_a_frame_goes_to_the_chosen_address_or_to_the_next_hop() -> None:
    assert framed("neighbour", "02:aa:00:00:00:01")[0].sender.destination_mac == "02:aa:00:00:00:01"
    left_alone = framed("neighbour", "")[0].sender
    assert left_alone.destination_mac == left_alone.next_hop_mac


@pytest.mark.parametrize(("name", "there"), [("outside", "router"), ("echo", "node-b")])
def test_a_frame_to_a_machine_on_another_link_is_refused(name: str, there: str) -> None:
    with pytest.raises(
        ScenarioError, match=f"send.frameTo: node-a is not on the link of {name}/eth0; on the link: {there}"
    ):
        framed(name, "node-a")


def test_the_place_where_a_flow_is_said_to_end_is_watched_unless_it_is_a_node() -> None:
    asked = probe("p", "echo", LOOPBACK, Send(manner=Manner.PACKET))
    case = scenario([node("node-a")], groups=[pods("echo", "node-a")], hosts=[host("outside")], probes=[])
    for at, watched in (("echo/eth0", ("echo",)), ("outside", ("outside",)), ("node-a/eth0", ()), (None, ())):
        now = replace(case, probes=(replace(asked, expect=replace(asked.expect, at=at)),))
        assert resolve(now, draw(now), (), ())[0].watched == watched
