"""The whole format: all of it stands in the Scenario."""

from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest
from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import Family, Transport
from proxylab.cluster.objects import ServiceType, TrafficPolicy
from proxylab.scenario.cases import cases
from proxylab.scenario.change import Change, LinkChange, PodChange
from proxylab.scenario.expect import ConntrackExpect, Entries, ErrorExpect, HttpExpect, Preserved, Shares
from proxylab.scenario.json_schema import json_schema
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.node_engines import EngineAction, EngineChange, NodeEngine
from proxylab.scenario.nodes import Daemon, NodeRoute, Uplink
from proxylab.scenario.probes import HostTarget, PodTarget, ServiceTarget
from proxylab.scenario.steps import Count, EngineState
from proxylab.scenario.versions import VersionRange
from proxylab.scenario.words import ClientAddress, Dials, ErrorKind, Frontend, IcmpError, PodWay, Reply

WHOLE = (Path(__file__).resolve().parents[2] / "golden" / "scenario" / "whole.lab.yaml").read_text()
SCENARIO = parse_scenario(WHOLE, "f")


def test_the_example_has_every_key_of_the_format() -> None:
    definitions = json_schema()["definitions"]
    own = {"ScenarioDocument"}
    waiting = ["ScenarioDocument"]
    while waiting:
        text = str(definitions[waiting.pop()])
        found = {name for name in definitions if f"#/definitions/{name}'" in text} - own
        own |= found
        waiting += found
    keys = {key for name in own for key in definitions[name].get("properties", {})}
    later = {
        "interNode",
        "mode",
        "version",
        "manifests",
        "sharedNetns",
        "hostNetwork",
        "host",
        "title",
        "also",
        "apply",
    }
    assert [key for key in sorted(keys - later) if f"{key}:" not in WHOLE] == []


def test_the_wire() -> None:
    network = SCENARIO.network
    assert network.families == (Family.IPV4,)
    assert (network.pod_network, network.hairpin, network.inter_node) == ("bridge", "none", "vxlan")
    assert [str(each) for each in network.pod_cidrs] == ["10.244.0.0/16", "fd00:10:244::/56"]
    assert network.further_service_cidrs == (ip_network("10.97.0.0/24"),)
    assert network.segments[0].cidrs == (ip_network("172.19.0.0/16"), ip_network("fd00:172:19::/64"))
    assert (network.routed[0].network, network.routed[0].nodes) == (ip_network("198.51.100.7"), ("node-a",))
    first, second = SCENARIO.nodes
    assert [(each.device, str(each.interface), each.deprecated) for each in first.addresses] == [
        ("eth0", "172.18.0.77/16", False),
        ("lo", "192.0.2.9/32", True),
    ]
    assert first.daemons == (Daemon(name="kubelet", port=10250, address=ip_address("127.0.0.1")),)
    assert second.uplinks == (Uplink("eth1", "storage"),)
    assert second.routes == (
        NodeRoute(ip_network("198.51.100.0/24"), "eth1", ip_address("172.19.0.1"), ip_network("10.244.0.0/16"), 1400),
    )
    assert first.programs.by_name == {"nft": "/opt/nft-1.0.6/nft"}
    assert second.programs.by_name == {
        "nft": "/opt/nft-1.0.6/nft",
        "iptables": "/opt/iptables-1.8.8/xtables-nft-multi",
    }
    edge, segment, cloud = SCENARIO.load_balancers
    assert (cloud.dials, cloud.client_ip) == (Dials.NODE_PORTS, ClientAddress.REPLACED)
    lb = next(each for each in SCENARIO.pods if each.name == "lb")
    assert lb.forwards_to_service == ("default", "echo")
    assert (lb.ports[0].host_port, str(lb.ports[0].host_ip)) == (80, "172.18.0.2")
    assert (edge.pool, edge.nodes, edge.health_checked) == ((ip_network("192.0.2.0/28"),), ("node-a",), True)
    assert (segment.pool, segment.announced_by) == ((ip_network("172.18.255.0/28"),), "node-a")
    moved = SCENARIO.steps[1].change.load_balancers["segment"]
    assert (moved.announced_by, moved.is_heard) == ("node-b", False)


def test_probes_streams_and_steps() -> None:
    balanced, shared, health, echo, request, itself, host_port, expired = SCENARIO.probes
    assert isinstance(host_port.target, PodTarget)
    assert host_port.target.via is PodWay.HOST_PORT
    assert expired.send.dscp == 46
    assert (balanced.expect.reply, balanced.exceptions[0].when.values) == (
        Reply.TRANSLATED,
        {"family": "IPv6", "hairpin": "none", "mode": "ipvs", "AllowServiceExternalIPs": "false"},
    )
    assert (shared.send.flows, shared.send.concurrency) == (2000, 1)
    unreachable = ErrorExpect(kind=ErrorKind.UNREACHABLE, code=IcmpError.HOST_UNREACHABLE, sent_by="node-b")
    assert (expired.send.ttl, expired.expect.error) == (1, unreachable)
    assert shared.expect.spread == Shares({"echo-1": 0.5, "echo-2": 0.5})
    assert health.expect.http == HttpExpect(
        status=200, local_endpoints=1, headers={"Content-Type": "application/json"}, body={"service.name": '"echo"'}
    )
    assert health.expect.conntrack == ConntrackExpect(
        node="node-a", some=Entries(original_from="outside", port=80, masqueraded=False)
    )
    assert echo.target == HostTarget(host="outside", port=None, family=Family.IPV4)
    assert echo.send.protocol is Transport.ICMP
    assert echo.send.frame_to == "node-b"
    assert isinstance(request.target, ServiceTarget)
    assert (request.target.via, request.target.host) == (Frontend.INGRESS, "shop.example")
    assert itself.source.loopback
    assert SCENARIO.streams[0].send.every == 20
    assert SCENARIO.dns
    axes = SCENARIO.matrix.axes
    assert (axes["families"], axes["family"]) == (("IPv4", "IPv4+IPv6"), ("IPv4", "IPv6"))
    assert axes["kernel"] == ("host",)
    assert SCENARIO.requires.version == VersionRange(since=(1, 29))
    assert SCENARIO.requires.kernel == VersionRange(since=(5, 17))
    assert SCENARIO.requires.capabilities == ("IPVS",)


def test_what_changes_in_steps() -> None:
    first, second, third = (step.change for step in SCENARIO.steps)
    assert first == Change(pods={"old": PodChange(present=False), "client": PodChange(ready=True)})
    echo, extra = second.services
    assert (echo.name, echo.service and echo.service.external_traffic_policy) == ("echo", TrafficPolicy.CLUSTER)
    assert echo.service is not None
    assert echo.service.ports == SCENARIO.services[0].ports
    assert (extra.name, extra.service and extra.service.cluster_ips) == ("extra", (ip_address("10.96.0.99"),))
    (made,) = second.slices
    assert made.slice is not None
    assert (made.slice.service, made.slice.endpoints[0].addresses) == ("extra", (ip_address("203.0.113.10"),))
    assert second.pods == {
        "old": PodChange(present=True, terminating=False, labels={"app": "echo", "track": None}),
        "echo-2": PodChange(terminating=True, serving=True),
    }
    assert second.nodes["node-a"].sysctls == {"net.ipv4.conf.all.rp_filter": "2"}
    assert second.engines == {"node-b": EngineChange(action=EngineAction.KILL)}
    assert SCENARIO.proxy is not None
    nftables = replace(SCENARIO.proxy.nftables, masquerade_all=False)
    assert third.engines["node-b"].becomes == NodeEngine(
        engine="v1.37/nftables", settings=replace(SCENARIO.proxy, nftables=nftables)
    )
    assert second.links[0] == LinkChange(netns_name="node-b", device="eth1", up=False)
    assert [each.service for each in third.services] == [None]
    assert [each.slice for each in third.slices] == [None]


def test_a_node_has_an_engine_of_its_own_and_its_patched_configuration() -> None:
    assert SCENARIO.proxy is not None
    assert SCENARIO.engines["node-a"].engine == "v1.34/iptables"
    assert SCENARIO.engines["node-a"].settings == replace(SCENARIO.proxy, masquerade_all=False)


def test_what_steps_wait_for_and_expect() -> None:
    first, second, _ = SCENARIO.steps
    assert first.until is None
    assert first.expect.conntrack == ConntrackExpect(none=Entries(protocol=Transport.UDP, reply_from="old"))
    assert second.until is not None
    assert second.until.engines == {"node-a": EngineState.SYNCED, "node-b": EngineState.STOPPED}
    assert (second.until.elapsed, second.until.within, second.until.balancers) == (2000, 30_000, {"edge": ("node-a",)})
    expect = second.expect.streams["queries"]
    assert (expect.backend, expect.backends, expect.lost) == (
        "echo-2",
        ("echo-1", "echo-2"),
        Count(at_least=1, at_most=5),
    )
    assert (expect.resets, expect.delay, expect.source) == (Count(at_most=0), 200, Preserved())
    assert 5 in Count(at_least=1, at_most=5)
    assert 6 not in Count(at_least=1, at_most=5)
    assert [probe.target for probe in second.probes] == [ServiceTarget(service="extra", via=Frontend.CLUSTER_IP)]
    (exception,) = second.exceptions
    assert (exception.when.version, exception.expect.streams["queries"].lost) == (
        VersionRange(since=(1, 29), before=(1, 33)),
        Count(at_most=0),
    )


@pytest.mark.parametrize(
    ("mode", "version", "fails"),
    [("nftables", (1, 33, 5), 1), ("nftables", (1, 33, 6), 0), ("nftables", None, 0), ("iptables", (1, 33), 0)],
)
def test_engines_fail_where_that_is_foreseen(mode: str, version: tuple[int, ...] | None, fails: int) -> None:
    found = [case.failures for case in cases(SCENARIO, mode, version)]
    assert [len(each) for each in found] == [fails] * len(found)
    assert {(each.says, each.because) for failures in found for each in failures} == (
        {("Interface does not exist", "it is an example")} if fails else set()
    )


@pytest.mark.parametrize(("version", "lost"), [(None, 5), ((1, 28), 5), ((1, 29), 0), ((1, 33), 5)])
def test_an_exception_for_versions_holds_in_these(version: tuple[int, int] | None, lost: int) -> None:
    case = next(iter(cases(SCENARIO, "ipvs", version)))
    count = case.steps[1].expect.streams["queries"].lost
    assert count is not None
    assert count.at_most == lost


def test_a_service_loses_what_went_with_its_former_type() -> None:
    patch = "services: {echo: {spec: {type: ClusterIP, externalIPs: null}}}"
    text = WHOLE.replace("services: {echo: {spec: {externalTrafficPolicy: Cluster}}", patch.removesuffix("}"))
    (echo, _) = parse_scenario(text, "f").steps[1].change.services
    assert echo.service is not None
    assert (echo.service.type, echo.service.ports[0].node_port) == (ServiceType.CLUSTER_IP, 0)


def test_everything_is_frozen() -> None:
    waiting: list[object] = [SCENARIO]
    seen = 0
    while waiting:
        value = waiting.pop()
        if isinstance(value, Struct):
            seen += 1
            assert value.__struct_config__.frozen
            waiting += [getattr(value, name) for name in value.__struct_fields__]
        elif isinstance(value, tuple):
            waiting += value
        else:
            assert not isinstance(value, list | set)
    assert seen > 50
