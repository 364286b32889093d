"""The whole format: all of it stands in the Scenario, and what cannot be run is refused, not ignored."""

from dataclasses import fields, is_dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from lab.errors import ScenarioError
from lab.ip import Family
from lab.scenario.json_schema import json_schema
from lab.scenario.load import parse_scenario
from lab.scenario.missing import MISSING
from lab.scenario.model import (
    Axis,
    ConntrackExpect,
    Daemon,
    Entries,
    HttpExpect,
    NodeRoute,
    PodChange,
    Reply,
    Shares,
    StreamExpect,
    Uplink,
)

WHOLE = (Path(__file__).resolve().parents[2] / "golden" / "scenario" / "whole.lab.yaml").read_text()
SCENARIO = parse_scenario(WHOLE, "f", to_run=False)


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
    later = {"interNode", "mode", "version", "manifests", "sharedNetns", "hostNetwork", "host", "title"}
    assert [key for key in sorted(keys - later) if f"{key}:" not in WHOLE] == []


def test_the_wire() -> None:
    network = SCENARIO.network
    assert network.families == (Family.IPV4,)
    assert (network.pod_network, network.hairpin, network.inter_node) == ("bridge", "none", "vxlan")
    assert [str(each) for each in network.pod_cidrs] == ["10.244.0.0/16", "fd00:10:244::/56"]
    assert network.segments[0].cidrs == (ip_network("172.19.0.0/16"), ip_network("fd00:172:19::/64"))
    assert (network.routed[0].network, network.routed[0].nodes) == (ip_network("198.51.100.7"), ("node-a",))
    first, second = SCENARIO.nodes
    assert [(each.device, str(each.interface)) for each in first.addresses] == [
        ("eth0", "172.18.0.77/16"),
        ("lo", "192.0.2.9/32"),
    ]
    assert first.daemons == (Daemon(name="kubelet", port=10250, address=ip_address("127.0.0.1")),)
    assert second.uplinks == (Uplink("eth1", "storage"),)
    assert second.routes == (
        NodeRoute(ip_network("198.51.100.0/24"), "eth1", ip_address("172.19.0.1"), ip_network("10.244.0.0/16")),
    )
    (edge,) = SCENARIO.load_balancers
    assert (edge.pool, edge.nodes, edge.health_checked) == ((ip_network("192.0.2.0/28"),), ("node-a",), True)


def test_probes_streams_and_steps() -> None:
    balanced, shared, health, itself = SCENARIO.probes
    assert (balanced.expect.reply, balanced.exceptions[0].when) == (
        Reply.TRANSLATED,
        {"hairpin": "none", "mode": "ipvs"},
    )
    assert shared.expect.spread == Shares({"echo-1": 0.5, "echo-2": 0.5})
    assert health.expect.http == HttpExpect(status=200, local_endpoints=1)
    assert health.expect.conntrack == ConntrackExpect(node="node-a", some=Entries(original_from="outside", port=80))
    assert itself.source.loopback
    assert SCENARIO.streams[0].send.every == 20
    (step,) = SCENARIO.steps
    assert step.change == {"old": PodChange(gone=True), "client": PodChange(ready=True)}
    assert step.conntrack == ConntrackExpect(none=Entries(reply_from="old"))
    (expect,) = step.expect.values()
    assert (expect.backend, expect.lost) == ("echo-1", 0)
    assert isinstance(expect, StreamExpect)
    assert SCENARIO.matrix[0] == Axis(name="families", values=("IPv4", "IPv4+IPv6"))


def test_everything_is_frozen() -> None:
    waiting: list[object] = [SCENARIO]
    seen = 0
    while waiting:
        value = waiting.pop()
        if is_dataclass(value):
            seen += 1
            assert value.__dataclass_params__.frozen  # type: ignore[attr-defined]
            waiting += [getattr(value, field.name) for field in fields(value)]
        elif isinstance(value, tuple):
            waiting += value
        else:
            assert not isinstance(value, list | set)
    assert seen > 50


def test_nothing_of_it_is_ignored_when_it_is_to_be_run() -> None:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(WHOLE, "f")
    told = "\n".join(caught.value.problems)
    assert all("not yet: " in problem for problem in caught.value.problems)
    wanted = ["loadBalancers", "steps", "streams", "probes[0].expect.reply", "probes[1].expect.spread"]
    wanted += ["probes[2].expect.http", "probes[2].expect.conntrack", "probes[3].from.loopback"]
    assert [path for path in wanted if f": spec.{path}" not in told] == []


def test_every_line_of_the_list_names_a_key_that_the_format_has() -> None:
    definitions = json_schema()["definitions"]
    keys = {key for definition in definitions.values() for key in definition.get("properties", {})}
    for missing in MISSING:
        assert {part for part in missing.path.split(".") if part not in ("*", "[]")} <= keys, missing.path
