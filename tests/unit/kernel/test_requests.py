"""pyroute2 decodes every message as a second opinion."""

from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

import pytest
from msgspec.structs import replace
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from proxylab.addresses import Family
from proxylab.kernel.netlink import requests
from proxylab.kernel.netlink.requests import Request
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.model import (
    Address,
    Bridge,
    ForwardingEntry,
    LinkEnd,
    Neighbour,
    NextHop,
    PolicyRule,
    Route,
    Veth,
    Vxlan,
)

NEWLINK, GETLINK, SETLINK, NEWADDR, NEWROUTE, NEWNEIGH, NEWRULE = 16, 18, 19, 20, 24, 28, 32
CREATE, EXCL, REPLACE = 0x400, 0x200, 0x100
END = LinkEnd("node-a", "echo-1", 110, "02:90:3c:ce:64:f0")
FAR = LinkEnd("echo-1", "eth0", 111, "02:cd:42:81:57:5c", mtu=1450)
BRIDGE = Bridge("cni0", 120, "02:00:00:00:00:01")


def read(request: Request, kind: type[Any]) -> Any:
    """The message as pyroute2 understands it."""
    message = kind(bytes(4) + bytes(12) + request.body)
    message.data = (16 + len(request.body)).to_bytes(4, "little") + bytes(12) + request.body
    message.decode()
    return message


def attributes(message: Any) -> dict[str, Any]:
    """Attributes by name, nested ones too."""
    found = {}
    for name, value in message["attrs"]:
        found[name] = attributes(value) if hasattr(value, "get") and value.get("attrs") else value
    return found


def fields(message: Any, *names: str) -> dict[str, Any]:
    return {name: message[name] for name in names}


def test_a_veth_is_made_with_both_ends_in_place() -> None:
    request = requests.add_veth(Veth(END, FAR), NetNs("echo-1", 17))
    message = read(request, ifinfmsg)
    assert (request.kind, request.flags, message["index"]) == (NEWLINK, CREATE | EXCL, 110)
    found = attributes(message)
    about = found.pop("IFLA_LINKINFO")
    assert found == {
        "IFLA_IFNAME": "echo-1",
        "IFLA_ADDRESS": END.mac,
        "IFLA_NUM_TX_QUEUES": 1,
        "IFLA_NUM_RX_QUEUES": 1,
    }
    assert about["IFLA_INFO_KIND"] == "veth"
    assert about["IFLA_INFO_DATA"]["VETH_INFO_PEER"] == {
        "IFLA_IFNAME": "eth0",
        "IFLA_ADDRESS": FAR.mac,
        "IFLA_NUM_TX_QUEUES": 1,
        "IFLA_NUM_RX_QUEUES": 1,
        "IFLA_MTU": 1450,
        "IFLA_NET_NS_FD": 17,
    }


def test_a_bridge() -> None:
    message = read(requests.add_bridge(BRIDGE), ifinfmsg)
    assert message["index"] == 120
    assert attributes(message) == {
        "IFLA_IFNAME": "cni0",
        "IFLA_ADDRESS": BRIDGE.mac,
        "IFLA_LINKINFO": {"IFLA_INFO_KIND": "bridge"},
    }


@pytest.mark.parametrize(("local", "key"), [("172.18.0.2", "IFLA_VXLAN_LOCAL"), ("fd00::2", "IFLA_VXLAN_LOCAL6")])
def test_a_vxlan_device_learns_nothing(local: str, key: str) -> None:
    vxlan = Vxlan("flannel.1", 130, "02:00:00:00:00:02", "eth0", ip_address(local), 1, 8472)
    about = attributes(read(requests.add_vxlan(vxlan, 12), ifinfmsg))["IFLA_LINKINFO"]
    assert about == {
        "IFLA_INFO_KIND": "vxlan",
        "IFLA_INFO_DATA": {
            "IFLA_VXLAN_ID": 1,
            "IFLA_VXLAN_LINK": 12,
            key: local,
            "IFLA_VXLAN_LEARNING": 0,
            "IFLA_VXLAN_PORT": 8472,
        },
    }


@pytest.mark.parametrize(
    ("request_", "index", "flags", "attrs"),
    [
        (requests.set_up(END), 110, 0x1, {}),
        (requests.set_up(END, 120), 110, 0x1, {"IFLA_MASTER": 120}),
        (requests.set_up(BRIDGE), 120, 0x1, {}),
        (requests.set_up(replace(BRIDGE, promiscuous=True)), 120, 0x101, {}),
        (requests.set_loopback_up(), 1, 0x1, {}),
    ],
)
def test_a_device_comes_up_with_its_master_and_mode(
    request_: Request, index: int, flags: int, attrs: dict[str, Any]
) -> None:
    message = read(request_, ifinfmsg)
    assert fields(message, "index", "flags", "change") == {"index": index, "flags": flags, "change": flags}
    assert (request_.kind, attributes(message)) == (NEWLINK, attrs)


def test_reading_a_link_requests_one_device() -> None:
    request = requests.get_link(END)
    assert (request.kind, request.flags, read(request, ifinfmsg)["index"]) == (GETLINK, 0, 110)


def test_a_hairpin_port() -> None:
    request = requests.set_hairpin(END)
    message = read(request, ifinfmsg)
    assert (request.kind, message["family"], message["index"]) == (SETLINK, 7, 110)
    assert attributes(message) == {"IFLA_PROTINFO": {"IFLA_BRPORT_MODE": 1}}


@pytest.mark.parametrize(("interface", "family", "flags"), [("172.18.0.2/16", 2, 0), ("fd00:172:18::2/64", 10, 0x02)])
def test_an_address_is_ready_at_once(interface: str, family: int, flags: int) -> None:
    request = requests.add_address(Address("eth0", ip_interface(interface)), 12)
    message = read(request, ifaddrmsg)
    ip, _, length = interface.partition("/")
    assert fields(message, "family", "prefixlen", "flags", "scope", "index") == {
        "family": family,
        "prefixlen": int(length),
        "flags": flags,
        "scope": 0,
        "index": 12,
    }
    assert attributes(message) == {"IFA_LOCAL": ip, "IFA_ADDRESS": ip}


@pytest.mark.parametrize(
    ("route", "indexes", "head", "attrs"),
    [
        (
            Route(ip_network("10.244.0.10/32"), "echo-1"),
            (110,),
            {"family": 2, "dst_len": 32, "scope": 253, "flags": 0},
            {"RTA_TABLE": 254, "RTA_DST": "10.244.0.10", "RTA_OIF": 110},
        ),
        (
            Route(ip_network("0.0.0.0/0"), "eth0", ip_address("172.18.0.1"), ip_address("172.18.0.2")),
            (12,),
            {"family": 2, "dst_len": 0, "scope": 0, "flags": 0},
            {"RTA_TABLE": 254, "RTA_OIF": 12, "RTA_GATEWAY": "172.18.0.1", "RTA_PREFSRC": "172.18.0.2"},
        ),
        (
            Route(ip_network("fd00:10:244:1::/64"), "flannel.1", ip_address("fd00:10:244:1::"), onlink=True, table=300),
            (130,),
            {"family": 10, "dst_len": 64, "scope": 0, "flags": 4},
            {
                "RTA_TABLE": 300,
                "RTA_DST": "fd00:10:244:1::",
                "RTA_OIF": 130,
                "RTA_GATEWAY": "fd00:10:244:1::",
            },
        ),
    ],
)
def test_a_route(route: Route, indexes: tuple[int, ...], head: dict[str, int], attrs: dict[str, Any]) -> None:
    request = requests.add_route(route, *indexes)
    message = read(request, rtmsg)
    assert (request.kind, request.flags) == (NEWROUTE, CREATE | EXCL)
    assert fields(message, *head) == head
    assert fields(message, "proto", "type") == {"proto": 4, "type": 1}
    assert attributes(message) == attrs
    assert requests.replace_route(route, *indexes).flags == CREATE | REPLACE


def test_a_multipath_route() -> None:
    hops = tuple(NextHop("nodes", ip_address(f"172.18.0.{number}")) for number in (2, 3))
    message = read(requests.add_route(Route(ip_network("198.51.100.7/32"), "nodes", hops=hops), 12, 12), rtmsg)
    found = attributes(message)
    assert message["scope"] == 0
    assert "RTA_OIF" not in found
    assert [(hop["oif"], hop["hops"], attributes(hop)) for hop in found["RTA_MULTIPATH"]] == [
        (12, 0, {"RTA_GATEWAY": "172.18.0.2"}),
        (12, 0, {"RTA_GATEWAY": "172.18.0.3"}),
    ]


def test_a_policy_rule() -> None:
    request = requests.add_rule(PolicyRule(Family.IPV4, 1000, 300, ip_network("192.168.7.0/24")))
    message = read(request, fibmsg)
    assert request.kind == NEWRULE
    assert fields(message, "family", "src_len", "dst_len", "action") == {
        "family": 2,
        "src_len": 24,
        "dst_len": 0,
        "action": 1,
    }
    assert attributes(message) == {"FRA_PRIORITY": 1000, "FRA_TABLE": 300, "FRA_SRC": "192.168.7.0"}


@pytest.mark.parametrize(("address", "family"), [("10.244.0.10", 2), ("fd00:10:244::a", 10)])
def test_a_neighbour_is_permanent(address: str, family: int) -> None:
    message = read(requests.add_neighbour(Neighbour("echo-1", ip_address(address), FAR.mac), 110), ndmsg)
    assert fields(message, "family", "ifindex", "state", "flags") == {
        "family": family,
        "ifindex": 110,
        "state": 0x80,
        "flags": 0,
    }
    assert attributes(message) == {"NDA_DST": address, "NDA_LLADDR": FAR.mac}


def test_a_forwarding_entry_of_a_vxlan_device() -> None:
    entry = ForwardingEntry("flannel.1", FAR.mac, ip_address("172.18.0.3"))
    message = read(requests.add_forwarding_entry(entry, 130), ndmsg)
    assert fields(message, "family", "ifindex", "state", "flags") == {
        "family": 7,
        "ifindex": 130,
        "state": 0xC0,
        "flags": 2,
    }
    assert attributes(message) == {"NDA_DST": "172.18.0.3", "NDA_LLADDR": FAR.mac}
