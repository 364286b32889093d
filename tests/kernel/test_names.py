"""DNS servers on a kernel: misbehaving clients, sockets with other answers, and names without an answer."""

import asyncio
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network, ip_address
from typing import Any

import dns.message
from msgspec.structs import replace
from sandboxed import USERS, sandboxed
from shared_sessions import shared_session
from traffic_plan import PODS, traffic_plan

from proxylab.addresses import Protocol
from proxylab.cluster.kube_dns import DNS_PORT, kube_dns
from proxylab.cluster.store import Store
from proxylab.control.dns_client import ask
from proxylab.control.dns_server import NameService
from proxylab.engines.engine_names import ENGINES
from proxylab.engines.protocol import EngineChoice
from proxylab.kernel.netlink.build import realise
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.plan.model import Listener
from proxylab.plan.resolved import Query
from proxylab.scenario.load import parse_scenario
from proxylab.timing import Deadline
from proxylab.traffic.responder import Responders

NAME = "kube-dns.kube-system.svc.cluster.local"
LENGTH = struct.Struct("!H")


@contextmanager
def served() -> Iterator[tuple[NetNs, str]]:
    """A pod that serves DNS besides its other ports: the source and address by which another pod reaches it."""
    plan = traffic_plan()
    listeners = tuple(
        Listener("echo-1", protocol, DNS_PORT, serves_names=True) for protocol in (Protocol.UDP, Protocol.TCP)
    )
    namespaces = tuple(
        replace(each, listeners=listeners) if each.name == "echo-1" else each for each in plan.namespaces
    )
    store = Store()
    store.apply(kube_dns((IPv4Network("10.96.0.0/16"),)))
    with realise(plan) as wiring:
        serving = replace(plan, namespaces=namespaces)
        responders = Responders(wiring.namespaces, serving, NameService(store).respond)
        responders.attach(asyncio.get_running_loop())
        try:
            yield wiring.namespaces["client"], str(PODS["echo-1"][0])
        finally:
            responders.close()


def question(kind: str = "A") -> bytes:
    return dns.message.make_query(NAME, kind).to_wire()


async def dialled(netns: NetNs, address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    with inside(netns):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    await asyncio.get_running_loop().sock_connect(sock, (address, DNS_PORT))
    return await asyncio.open_connection(sock=sock)


async def streams(launcher: Launcher) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with served() as (netns, address):
        async with asyncio.timeout(20):
            for name, rude in {
                "half a length": b"\x00",
                "half a message": b"\x00\x10half",
                "an answer": LENGTH.pack(12) + b"\x00\x01\x80\x00" + bytes(8),
            }.items():
                reader, writer = await dialled(netns, address)
                writer.write(rude)
                writer.write_eof()
                found[name] = len(await reader.read())
                writer.close()
            reader, writer = await dialled(netns, address)
            one, other = question(), question("AAAA")
            writer.write(LENGTH.pack(len(one)) + one + LENGTH.pack(len(other)) + other[:5])
            codes = [await heard(reader)]
            writer.write(other[5:])
            codes.append(await heard(reader))
            found["two on one stream"] = codes
            writer.close()
            reader, writer = await dialled(netns, address)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            found["http"] = (await reader.read()).splitlines()[0].decode()
            writer.close()
    return found


async def heard(reader: asyncio.StreamReader) -> int:
    (length,) = LENGTH.unpack(await reader.readexactly(2))
    return len(dns.message.from_wire(await reader.readexactly(length)).answer)


def test_a_tcp_stream_carries_several_queries_and_rude_clients_disturb_no_other_client() -> None:
    for ordinary in USERS.values():
        assert sandboxed(streams, ordinary=ordinary) == {
            "half a length": 0,
            "half a message": 0,
            "an answer": 0,
            "two on one stream": [1, 0],
            "http": "HTTP/1.1 200 OK",
        }


async def failures(launcher: Launcher) -> dict[str, str]:
    with served() as (netns, address):

        async def error(**words: Any) -> str:
            query = Query(**{"name": NAME, "kind": "A", "server": ip_address(address), **words})
            return (await ask(netns, query, Deadline.after(0.5))).error

        closed = PODS["echo-2"][0]
        with inside(netns):
            blocker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with blocker:
            blocker.bind(("0.0.0.0", 7777))
            return {
                "sound": await error(),
                "sound by tcp": await error(by_tcp=True),
                "a port that is taken": await error(port=7777),
                "closed": await error(server=closed),
                "closed to tcp": await error(server=closed, by_tcp=True),
            }


def test_what_goes_wrong_is_told_in_the_sockets_word() -> None:
    assert sandboxed(failures) == {
        "sound": "",
        "sound by tcp": "",
        "a port that is taken": "EADDRINUSE",
        "closed": "ECONNREFUSED",
        "closed to tcp": "ECONNREFUSED",
    }


HIDDEN = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: hidden}
spec:
  nodes: {node-a: {}}
  pods:
    web: {labels: {app: web}, ports: [{port: 8080, protocol: UDP}]}
    client: {}
  probes:
  - name: the name is dialled, and its question stands in no table that is shown
    from: client
    to: {service: web, via: dnsName}
    expect:
      outcome: delivered
      source: preserved
      conntrack: {some: {originalFrom: client, port: 80}, none: {originalFrom: client, port: 53}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080, protocol: UDP}]}
"""


def test_a_lab_of_names_hides_its_own_server() -> None:
    scenario = parse_scenario(HIDDEN, "hidden.lab.yaml")
    (probe,) = scenario.probes
    with shared_session(EngineChoice(ENGINES[0])) as session:
        lab = session.open(scenario, HIDDEN)
        verdict = lab.probe(probe)
        assert verdict.overall == "pass", verdict.verdicts
        assert [each.served_by for each in verdict.evidence.lookups] == ["coredns"]
        lab.close()
