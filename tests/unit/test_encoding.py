"""The form of what crosses processes, its size, and that a document that does not fit is refused with the place."""

import json
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import pytest
from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress, IPInterface, IPNetwork, Protocol, Transport
from proxylab.cluster.objects import KubeObject, Node, ObjectKey, Service
from proxylab.encoding import MisfitError, decode, encode
from proxylab.evidence.evidence import Direction, Evidence, Observation, Packet
from proxylab.plan.model import Plan
from proxylab.scenario.expect import NodeDevice, Preserved, SourceAddress, SourceExpectation

SEEN = Observation(
    flow=0,
    netns_name="node-a",
    device="eth0",
    direction=Direction.IN,
    packet=Packet.REQUEST,
    protocol=Transport.TCP,
    source=IPv4Address("203.0.113.10"),
    source_port=40_000,
    destination=IPv4Address("10.96.0.10"),
    destination_port=80,
    at=1_700_000_000_000_000_000,
)


@pytest.mark.parametrize(
    ("value", "hint", "data"),
    [
        (Protocol.UDP, Protocol, "UDP"),
        (IPv4Address("10.0.0.1"), IPAddress, "10.0.0.1"),
        (IPv6Address("fd00::1"), IPAddress | None, "fd00::1"),
        (IPv6Network("fd00::/8"), IPNetwork, "fd00::/8"),
        (ObjectKey("Node", "", "a"), ObjectKey, ["Node", "", "a"]),
        (Node(name="a", labels={"x": "y"}), KubeObject, {"is": "Node", "name": "a", "labels": {"x": "y"}}),
        (Preserved(), SourceExpectation, {"is": "Preserved"}),
        (NodeDevice("a", "uplink"), SourceExpectation | None, {"is": "NodeDevice", "node": "a", "device": "uplink"}),
        (SourceAddress(ip_address("::1")), SourceExpectation, {"is": "SourceAddress", "address": "::1"}),
        ((Node(name="a"), Service(name="b")), tuple[KubeObject, ...],
         [{"is": "Node", "name": "a"}, {"is": "Service", "name": "b"}]),
    ],
)  # fmt: skip
def test_form(value: object, hint: object, data: object) -> None:
    document = encode(value)
    assert json.loads(document) == data
    read = decode(document, hint)
    assert (read, type(read)) == (value, type(value))


def test_an_observation_of_tens_of_thousands_is_a_row_without_names() -> None:
    crowd = Evidence(sent=1000, observations=tuple(replace(SEEN, flow=flow) for flow in range(1000)))
    document = encode(crowd)
    assert len(document) < 150 * 1000
    assert json.loads(document)["observations"][7][:3] == [7, "node-a", "eth0"]
    assert decode(document, Evidence) == crowd


def test_the_name_of_a_file_that_is_not_utf_8_survives() -> None:
    node = Node(name="caf\udce9 é", addresses=(IPv4Address("10.0.0.1"),))
    assert decode(encode(node), Node) == node


@pytest.mark.parametrize(
    ("data", "hint", "message"),
    [
        ({"is": "Node", "name": 3}, Node, "Node: Expected `str`, got `int` - at `$.name`"),
        ({"is": "Node"}, Node, "Node: Object missing required field `name`"),
        ({"is": "Node", "name": "a", "nmae": ""}, Node, "Node: Object contains unknown field `nmae`"),
        ({"is": "Node", "name": "a", "labels": {"x": 1}}, Node, "Expected `str`, got `int` - at `$.labels[...]`"),
        ({"is": "Node", "name": "a", "addresses": ["10.0.0.1", "10.0"]}, Node,
         "'10.0' does not appear to be an IPv4 or IPv6 address - at `$.addresses[1]`"),
        ({"namespaces": [{"name": "a", "role": "nod"}], "links": []}, Plan,
         "Plan: Invalid enum value 'nod' - at `$.namespaces[0].role`"),
        ([{"is": "Nod"}], tuple[KubeObject, ...], "Invalid value 'Nod' - at `$[0].is`"),
        (["Node", "x"], ObjectKey, "Key: Expected `array` of length 3"),
        (True, int, "int: Expected `int`, got `bool`"),
        (3, IPAddress, "IPAddress: Expected an address, got `int`"),
        ("10.0.0.1/99", IPInterface, "IPInterface: '10.0.0.1/99' does not appear to be an IPv4 or IPv6 interface"),
        ("10.0.0.1/8", IPNetwork, "IPNetwork: 10.0.0.1/8 has host bits set"),
    ],
)  # fmt: skip
def test_a_misfit_is_refused_with_its_place(data: object, hint: object, message: str) -> None:
    with pytest.raises(MisfitError) as raised:
        decode(json.dumps(data).encode(), hint)
    assert message in str(raised.value)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"is":"Node","name":"\xff"}'])
def test_what_is_no_json_is_called_so(data: bytes) -> None:
    with pytest.raises(MisfitError, match="Node: not JSON"):
        decode(data, Node)


def test_a_document_of_a_thousand_levels_is_refused() -> None:
    with pytest.raises(MisfitError):
        decode(b"[" * 100_000, Node)


class Opaque(Struct):
    what: object


def test_an_object_without_a_form_is_the_programmers_fault() -> None:
    with pytest.raises(TypeError, match="set_iterator has no form in JSON"):
        encode(Opaque(iter({1})))
