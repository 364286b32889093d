"""The form of what crosses processes, and that a misfit is named by its place."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Network

import pytest

from proxylab.addresses import IPAddress, IPInterface, IPNetwork, Protocol, Transport
from proxylab.cluster.objects import Key, KubeObject, Node, PodPort, Service, ServicePort
from proxylab.codec import CodecError, decode, dumps, encode, loads
from proxylab.errors import ExitCode
from proxylab.evidence.evidence import Direction, Evidence, Observation, Packet
from proxylab.plan.model import Address, Plan, Sysctl
from proxylab.scenario.model import NodeDevice, Preserved, SourceExpectation


def observation(flow: int, **changes: object) -> Observation:
    fields: dict[str, object] = {
        "flow": flow,
        "netns_name": "node-a",
        "device": "eth0",
        "direction": Direction.IN,
        "packet": Packet.REQUEST,
        "protocol": Transport.TCP,
        "source": IPv4Address("203.0.113.10"),
        "source_port": 40000 + flow,
        "destination": IPv4Address("10.96.0.10"),
        "destination_port": 80,
        "at": 1_700_000_000_000_000_000 + flow,
    }
    return Observation(**(fields | changes))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Checked:
    """A dataclass whose constructor does more than to fill slots."""

    value: int

    def __post_init__(self) -> None:
        if self.value < 0:
            raise AssertionError("the constructor was run")


@dataclass(frozen=True)
class Unslotted:
    value: int = 3


@dataclass(frozen=True, slots=True)
class Empty:
    pass


@pytest.mark.parametrize(
    ("value", "hint", "data"),
    [
        ("text", str, "text"),
        (None, str | None, None),
        (True, bool, True),
        (0.5, float, 0.5),
        (Protocol.UDP, Protocol, "UDP"),
        (ExitCode.FAILED, ExitCode, 1),
        (IPv4Address("10.0.0.1"), IPAddress, "10.0.0.1"),
        (IPv6Address("fd00::1"), IPAddress | None, "fd00::1"),
        (IPv4Network("10.0.0.0/8"), IPv4Network, "10.0.0.0/8"),
        (IPv6Network("fd00::/8"), IPNetwork, "fd00::/8"),
        (IPv4Interface("10.0.0.1/8"), IPInterface, "10.0.0.1/8"),
        (("a", "b"), tuple[str, ...], ["a", "b"]),
        ((), tuple[Key, ...], []),
        ((3, 1), tuple[int, int], [3, 1]),
        (Key("Node", "", "a"), Key, ["Node", "", "a"]),
        ({"a": 1}, Mapping[str, int], {"a": 1}),
        (Node(name="a"), Node, {"name": "a"}),
        (Node(name="a", labels={"x": "y"}), Node, {"name": "a", "labels": {"x": "y"}}),
        (Node(name="a"), KubeObject, {"is": "Node", "name": "a"}),
        (Node(name="a"), Node | None, {"name": "a"}),
        (Preserved(), SourceExpectation, {"is": "Preserved"}),
        (NodeDevice("a", "uplink"), SourceExpectation | None, {"is": "NodeDevice", "node": "a", "device": "uplink"}),
        (IPv4Address("10.0.0.1"), SourceExpectation | None, "10.0.0.1"),
        ((PodPort(port=1), PodPort(name="b", port=2)), tuple[PodPort, ...], {"name": ["", "b"], "port": [1, 2]}),
        ((), tuple[PodPort, ...], {}),
        ((Unslotted(), Unslotted()), tuple[Unslotted, ...], {"value": [3, 3]}),
        ((Empty(), Empty()), tuple[Empty, ...], [{}, {}]),
        ((Node(name="a"), Service(name="b")), tuple[KubeObject, ...],
         [{"is": "Node", "name": "a"}, {"is": "Service", "name": "b"}]),
    ],
)  # fmt: skip
def test_form(value: object, hint: object, data: object) -> None:
    assert encode(value, hint) == data
    read = loads(dumps(value, hint), hint)
    assert read == value
    assert type(read) is type(value)


def test_enums_come_back_as_members_not_as_their_text() -> None:
    assert decode("UDP", Protocol) is Protocol.UDP
    assert type(encode(Protocol.UDP, Protocol)) is str


def test_union_of_scalars_keeps_each_type() -> None:
    ports = (ServicePort(port=80, target_port="http"), ServicePort(port=81, target_port=8081))
    assert [port.target_port for port in loads(dumps(ports, tuple[ServicePort, ...]), tuple[ServicePort, ...])] == [
        "http",
        8081,
    ]


def test_observations_come_back_whole() -> None:
    evidence = Evidence(
        sent=3, observations=tuple(observation(flow, icmp=(3, 3) if flow == 1 else None) for flow in range(3))
    )
    assert loads(dumps(evidence, Evidence), Evidence) == evidence  # fmt: skip


def test_table_leaves_out_columns_at_default() -> None:
    data = encode(Evidence(sent=1, observations=(observation(0), observation(1))), Evidence)
    assert data["observations"]["flow"] == [0, 1]
    assert "icmp" not in data["observations"]


def many(count: int) -> Evidence:
    """Observations at two places, to as many addresses as there are."""
    ends = [IPv4Address(f"10.1.{number >> 8}.{number & 255}") for number in range(count)]
    netns_names = ("pod-a", "pod-b")
    return Evidence(
        sent=count,
        observations=tuple(observation(n, netns_name=netns_names[n % 2], destination=ends[n]) for n in range(count)),
    )


def test_long_column_of_few_texts_is_spelled() -> None:
    evidence = many(300)
    columns = encode(evidence, Evidence)["observations"]
    assert columns["netns_name"] == {"texts": ["pod-a", "pod-b"], "rows": "ab" * 150}
    assert columns["device"] == {"texts": ["eth0"], "rows": "a" * 300}
    assert columns["destination"] == [str(each.destination) for each in evidence.observations], "too many texts"
    assert columns["source_port"] == [each.source_port for each in evidence.observations], "no texts"
    assert loads(dumps(evidence, Evidence), Evidence) == evidence


def test_short_column_stays_a_list() -> None:
    assert encode(many(2), Evidence)["observations"]["netns_name"] == ["pod-a", "pod-b"]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"texts": ["10.0.0.1", "nowhere"], "rows": "aba"}, "[1].source: expected an IPv4Address or IPv6Address"),
        ({"texts": ["10.0.0.1"], "rows": "aab"}, "[2].source: 'b' stands for none of 1 texts"),
        ({"texts": "a", "rows": "aaa"}, ".source: expected at most 62 texts"),
        ({"texts": [str(number) for number in range(63)], "rows": "aaa"}, ".source: expected at most 62 texts"),
        ({"texts": [[]], "rows": "aaa"}, "[0].source: expected an IPv4Address or IPv6Address, found []"),
        ({"texts": ["10.0.0.1"], "rows": "aa"}, "lists of one length"),
        ({"texts": ["10.0.0.1"], "rows": ["a"] * 3}, "lists of one length"),
        ({"texts": ["10.0.0.1"], "rows": "aaa", "more": 1}, "lists of one length"),
    ],
)
def test_misfit_in_a_spelled_column_is_named_by_its_place(column: object, message: str) -> None:
    columns = encode(many(3), Evidence)["observations"]
    with pytest.raises(CodecError) as raised:
        decode(columns | {"source": column}, tuple[Observation, ...])
    assert message in str(raised.value)


def test_constructor_that_does_more_is_run() -> None:
    with pytest.raises(AssertionError, match="the constructor was run"):
        decode({"value": [-1]}, tuple[Checked, ...])


def test_readers_take_what_other_json_writers_write() -> None:
    read = decode({"sent": 1, "seconds": 2}, Evidence)
    assert type(read.seconds) is float


def test_text_that_is_no_unicode_survives() -> None:
    assert loads(dumps("caf\udce9 é", str), str) == "caf\udce9 é"


@pytest.mark.parametrize(
    ("data", "hint", "message"),
    [
        ({"name": 3}, Node, "Node.name: expected str, found 3"),
        ({}, Node, "Node: Node needs 'name'"),
        ({"name": "a", "nmae": ""}, Node, "Node: Node has no field 'nmae'; its fields are name, labels, "),
        ({"name": "a", "labels": {"x": 1}}, Node, "Node.labels['x']: expected str, found 1"),
        ({"name": "a", "addresses": ["10.0.0.1", "10.0"]}, Node, "Node.addresses[1]: expected an IPv4Address or IPv6"),
        ({"namespaces": {"name": ["a", "b"], "role": ["node", "nod"]}, "links": {}}, Plan,
         "Plan.namespaces[1].role: expected one of node, pod, host, router, segment, found 'nod'"),
        ({"namespaces": {"name": ["a"], "role": []}, "links": {}}, Plan, "Plan.namespaces: expected a table"),
        ({"namespaces": {"name": "ab"}, "links": {}}, Plan, "Plan.namespaces: expected a table"),
        ({"namespaces": {"name": ["a"]}, "links": {}}, Plan, "Plan.namespaces: Namespace needs 'role'"),
        ({"namespaces": {"nmae": ["a"]}, "links": {}}, Plan, "Plan.namespaces: Namespace has no field 'nmae'"),
        ([{"name": "a"}], tuple[KubeObject, ...],
         "[0]: expected 'is' to be one of ClusterEvent, EndpointSlice, Namespace, Node, Pod, Service, ServiceCIDR"),
        ([{"is": "Node", "name": "a"}, {"is": "Service", "name": 1}], tuple[KubeObject, ...], "[1].name: expected str"),
        (["Node", "x"], Key, "Key: expected 3 values, found 2"),
        (["Node", "x", 1], Key, "Key.name: expected str, found 1"),
        (True, int, "int: expected int, found True"),
        (1.5, int | None, "expected NoneType or int, found 1.5"),
        ("10.0.0.1/8", IPNetwork, "expected an IPv4Network or IPv6Network, found '10.0.0.1/8'"),
        ("x" * 500, Protocol, "x…"),
    ],
)  # fmt: skip
def test_misfit_in_data_is_named_by_its_place(data: object, hint: object, message: str) -> None:
    with pytest.raises(CodecError) as raised:
        decode(data, hint)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("value", "hint", "message"),
    [
        (Evidence(sent=1, observations=(observation(0), observation(1, source="10.0.0.1"))), Evidence,
         "Evidence.observations[1].source: expected an IPv4Address or IPv6Address, found '10.0.0.1'"),
        ((Sysctl("a", "1"), Address), tuple[Sysctl, ...], "[1]: expected Sysctl"),
        (Node(name="a", labels={1: "x"}), Node, "Node.labels: expected a string as key, found 1"),  # type: ignore[dict-item]
        ([1], tuple[int, ...], "expected tuple, found [1]"),
        ("UDP", Protocol, "Protocol: expected one of TCP, UDP, SCTP, found 'UDP'"),
    ],
)  # fmt: skip
def test_misfit_in_a_value_is_named_by_its_place(value: object, hint: object, message: str) -> None:
    with pytest.raises(CodecError) as raised:
        encode(value, hint)
    assert message in str(raised.value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(CodecError, match="not JSON"):
        loads(data, Node)


def test_json_has_no_infinity() -> None:
    with pytest.raises(CodecError, match="float"):
        dumps(float("inf"), float)


class Number(IntEnum):
    ONE = 1


@pytest.mark.parametrize("hint", [object, bytes, list[int], set[str], tuple, tuple[()], str | Protocol, int | Number,
                                  Mapping[int, str], Node | Mapping[str, str]])  # fmt: skip
def test_hint_that_cannot_be_carried_is_the_programmers_fault(hint: object) -> None:
    with pytest.raises(TypeError):
        encode(None, hint)


def test_document_is_compact_ascii() -> None:
    assert json.loads(dumps("é", str)) == "é"
    assert dumps(("é", "b"), tuple[str, ...]) == b'["\\u00e9","b"]'
