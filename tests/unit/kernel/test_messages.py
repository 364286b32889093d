"""Messages in and out of the one module that knows pyroute2: what is encoded decodes to the same, and dumps end."""

import ast
import errno
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import proxylab
from proxylab.errors import CapabilityError, InternalError
from proxylab.kernel.netlink import requests
from proxylab.kernel.netlink.messages import Kind, NetlinkRequest, Value, answers
from proxylab.kernel.netlink.socket import Netlink
from proxylab.plan.model import Bridge, Route

OBJECT, ERROR, DONE = 24, 2, 3
MULTI, INTERRUPTED, CAPPED, EXPLAINED = 0x2, 0x10, 0x100, 0x200
BRIDGES = [Bridge(f"bridge-{number}", number, f"02:00:00:00:00:{number:02x}") for number in range(1, 41)]


@pytest.fixture
def ends() -> Iterator[tuple[Netlink, socket.socket]]:
    """A netlink socket of ours, and the kernel's end of it."""
    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(1)
    with ours, kernel:
        yield Netlink(ours, "node-a"), kernel


def message(kind: int, sequence: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body


def end(sequence: int, code: int = 0, kind: int = DONE, flags: int = 0) -> bytes:
    return message(kind, sequence, struct.pack("=i", -code), flags)


def route(sequence: int, index: int, flags: int = 0) -> bytes:
    content = {"family": int(socket.AF_INET), "RTA_OIF": index}
    encoded = NetlinkRequest("a route", Kind.NEW_ROUTE, 0, content).encode(sequence)
    return message(OBJECT, sequence, encoded[16:], flags)


def refused(request: bytes, code: int, words: str) -> bytes:
    """The kernel's refusal: it repeats the request, and explains itself in an attribute (netlink_ack)."""
    text = words.encode() + b"\0"
    explanation = struct.pack("=HH", 4 + len(text), 1) + text + bytes(-len(text) & 3)
    (sequence,) = struct.unpack_from("=I", request, 8)
    return message(ERROR, sequence, struct.pack("=i", -code) + request + explanation, EXPLAINED)


def acknowledged(request: bytes) -> bytes:
    (sequence,) = struct.unpack_from("=I", request, 8)
    return message(ERROR, sequence, bytes(4) + request[:16], CAPPED)


@given(
    st.lists(
        st.tuples(st.integers(0, 2**32 - 1), st.ip_addresses(), st.integers(0, 2**31 - 1), st.integers(0, 128)),
        min_size=1,
    )
)
def test_what_is_encoded_decodes_to_the_same(routes: list[tuple[int, object, int, int]]) -> None:
    data = b""
    for sequence, (table, gateway, index, length) in enumerate(routes):
        family = int(socket.AF_INET if gateway.version == 4 else socket.AF_INET6)  # type: ignore[attr-defined]
        content: dict[str, Value] = {"family": family, "dst_len": length, "RTA_TABLE": table, "RTA_PREFSRC": None}
        content |= {"RTA_GATEWAY": str(gateway), "RTA_MULTIPATH": [{"oif": index, "RTA_GATEWAY": str(gateway)}] * 2}
        data += NetlinkRequest("a route", Kind.NEW_ROUTE, 0, content).encode(sequence)
    for sequence, (answer, (table, gateway, index, length)) in enumerate(zip(answers(data), routes, strict=True)):
        found = answer.decode(Kind.GET_ROUTE)
        assert answer.sequence == sequence
        assert (found.need(int, "RTA_TABLE"), found.need(int, "dst_len")) == (table, length)
        assert ip_address(found.need(str, "RTA_GATEWAY")) == gateway
        assert found.find(str, "RTA_PREFSRC") is None
        hops = [(hop.need(int, "oif"), ip_address(hop.need(str, "RTA_GATEWAY"))) for hop in found.each("RTA_MULTIPATH")]
        assert hops == [(index, gateway)] * 2


@pytest.mark.parametrize("network", [IPv4Network("0.0.0.0/0"), IPv6Network("::/0")])
def test_a_missing_attribute_is_none_or_an_error(network: IPv4Network | IPv6Network) -> None:
    request = requests.add_route(Route(network, "eth0"), 7)
    (answer,) = answers(request.encode(1))
    found = answer.decode(Kind.GET_ROUTE)
    assert found.find(str, "RTA_GATEWAY") is None
    assert list(found.each("RTA_MULTIPATH")) == []
    with pytest.raises(KeyError, match="RTA_GATEWAY"):
        found.need(str, "RTA_GATEWAY")
    with pytest.raises(TypeError, match="RTA_OIF is 7 instead of a value of type str"):
        found.need(str, "RTA_OIF")


@given(st.data(), st.booleans())
def test_an_error_names_the_request_that_failed(data: st.DataObject, together: bool) -> None:
    """Whichever requests the kernel refuses, in whatever order its answers come: the first refused one is named."""
    wrong = data.draw(st.sets(st.integers(0, len(BRIDGES) - 1), min_size=1))
    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(1)
    wanted = [requests.add_bridge(bridge) for bridge in BRIDGES]
    with ours, kernel:
        for start in range(0, len(wanted), 16):
            batch = [(number, wanted[number].encode(number + 1)) for number in range(start, len(wanted))[:16]]
            said = [
                refused(each, errno.EEXIST, f"{number} exists") if number in wrong else acknowledged(each)
                for number, each in batch
            ]
            for each in [b"".join(said)] if together else data.draw(st.permutations(said)):
                kernel.send(each)
        first = min(wrong)
        with pytest.raises(InternalError) as caught:
            Netlink(ours, "node-a").send(wanted)
    name = BRIDGES[first].device
    assert f"node-a: the kernel refused to make the bridge {name}: EEXIST (File exists): {first} exists" in str(
        caught.value
    )


def test_an_answer_to_an_earlier_request_is_skipped(ends: tuple[Netlink, socket.socket]) -> None:
    """A receive buffer that was too small (ENOBUFS) leaves such answers behind."""
    ours, kernel = ends
    wanted = [requests.add_bridge(bridge) for bridge in BRIDGES[:2]]
    for number, each in enumerate(wanted, 1):
        kernel.send(acknowledged(each.encode(number)))
    ours.send(wanted)
    kernel.send(refused(wanted[1].encode(2), errno.EEXIST, "late"))
    kernel.send(acknowledged(wanted[0].encode(3)))
    ours.send(wanted[:1])


def test_a_kind_of_device_that_the_kernel_lacks_is_a_capability(ends: tuple[Netlink, socket.socket]) -> None:
    ours, kernel = ends
    request = NetlinkRequest("make it", Kind.NEW_LINK, 0, {}, needs=("VXLAN devices", "load it"))
    kernel.send(refused(request.encode(1), errno.EOPNOTSUPP, "Unknown device type"))
    with pytest.raises(CapabilityError, match="VXLAN devices"):
        ours.send([request])


def test_a_dump_returns_the_objects_of_all_its_messages(ends: tuple[Netlink, socket.socket]) -> None:
    ours, kernel = ends
    kernel.send(route(1, 1, MULTI) + route(1, 2, MULTI))
    kernel.send(route(1, 3, MULTI) + end(1))
    assert [found.need(int, "RTA_OIF") for found in ours.dump(Kind.GET_ROUTE)] == [1, 2, 3]


def test_an_interrupted_dump_is_requested_again(ends: tuple[Netlink, socket.socket]) -> None:
    ours, kernel = ends
    kernel.send(route(1, 1, MULTI | INTERRUPTED) + end(1))
    kernel.send(route(2, 2, MULTI) + end(2))
    assert [found.need(int, "RTA_OIF") for found in ours.dump(Kind.GET_ROUTE)] == [2]


def test_a_dump_interrupted_in_every_round_is_an_error(ends: tuple[Netlink, socket.socket]) -> None:
    ours, kernel = ends
    for sequence in range(1, 20):
        kernel.send(route(sequence, 1, INTERRUPTED) + end(sequence))
    with pytest.raises(OSError, match="changed during every round") as caught:
        ours.dump(Kind.GET_ROUTE)
    assert caught.value.errno == errno.EINTR


@pytest.mark.parametrize("kind", [DONE, ERROR])
def test_a_dump_that_fails_midway_is_an_error(ends: tuple[Netlink, socket.socket], kind: int) -> None:
    ours, kernel = ends
    kernel.send(route(1, 1, MULTI))
    kernel.send(end(1, errno.ENOMEM, kind))
    with pytest.raises(OSError, match="memory") as caught:
        ours.dump(Kind.GET_ROUTE)
    assert caught.value.errno == errno.ENOMEM


def test_one_module_imports_pyroute2() -> None:
    """It has no type hints, so a second importer would bring untyped values into the rest."""
    package = Path(proxylab.__file__).parent
    importers = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "pyroute2" in path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
        if name.split(".")[0] == "pyroute2"
    }
    assert importers == {"kernel/netlink/messages.py"}


def test_pyroute2_is_imported_in_part_and_whole_where_it_is_asked_for() -> None:
    code = """if True:
        import sys
        import proxylab.kernel.netlink.messages
        print("pyroute2" in sys.modules, "pyroute2.ndb" in sys.modules, "pyroute2.netlink.rtnl.rtmsg" in sys.modules)
        from pyroute2 import IPRoute
        print(IPRoute.__name__, "pyroute2.ndb" in sys.modules)
    """
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.splitlines() == ["False False True", "IPRoute True"]
