"""Look-ups of connection tracking are those that pyroute2 encodes, whatever addresses and ports they are about."""

from ipaddress import ip_address

import pytest

from proxylab.kernel.netlink.conntrack import Tuple, look_up
from proxylab.kernel.netlink.messages import Content, Kind, NetlinkRequest

ENDS = {
    4: ("10.244.1.2", "10.96.0.10", "CTA_IP_V4_SRC", "CTA_IP_V4_DST", 2),
    6: ("fd00:10:244:1::2", "fd00:10:96::a", "CTA_IP_V6_SRC", "CTA_IP_V6_DST", 10),
}


def encoded(version: int, transport: Content) -> bytes:
    source, destination, from_, to, family = ENDS[version]
    direction: Content = {"CTA_TUPLE_IP": {from_: source, to: destination}, "CTA_TUPLE_PROTO": transport}
    content: Content = {"nfgen_family": family, "CTA_TUPLE_ORIG": direction}
    return NetlinkRequest("look up a connection", Kind.GET_CONNECTION, 0, content).encode(0)


def about(version: int, protocol: int, source_port: int, destination_port: int) -> Tuple:
    source, destination, *_ = ENDS[version]
    return Tuple(protocol, ip_address(source), source_port, ip_address(destination), destination_port)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("protocol", [6, 17, 132])
@pytest.mark.parametrize("ports", [(1024, 80), (65535, 30080), (0, 0)])
def test_a_look_up_by_ports(version: int, protocol: int, ports: tuple[int, int]) -> None:
    transport: Content = {"CTA_PROTO_NUM": protocol, "CTA_PROTO_SRC_PORT": ports[0], "CTA_PROTO_DST_PORT": ports[1]}
    assert look_up(about(version, protocol, *ports)) == encoded(version, transport)


@pytest.mark.parametrize(
    ("version", "protocol", "name", "kind"), [(4, 1, "CTA_PROTO_ICMP", 8), (6, 58, "CTA_PROTO_ICMPV6", 128)]
)
def test_a_look_up_by_an_identifier(version: int, protocol: int, name: str, kind: int) -> None:
    transport: Content = {
        "CTA_PROTO_NUM": protocol,
        f"{name}_ID": 4711,
        f"{name}_TYPE": kind,
        f"{name}_CODE": 0,
    }
    assert look_up(about(version, protocol, 4711, 0)) == encoded(version, transport)
