"""Evidence as a lab would record it, for tests of the verdict and report rooms.

One small world: ``debug`` on node-a dials the Service ``default/echo`` at 10.96.0.10:80, whose pods ``echo-1`` and so
on listen on 8080 on node-b. ``World`` makes the records of each fate a flow can have; a test puts them together.
"""

from collections.abc import Sequence
from functools import cache
from ipaddress import ip_address

from msgspec import Struct, field
from msgspec.structs import replace

from proxylab.addresses import IPAddress, Transport
from proxylab.evidence.evidence import (
    ConnectReport,
    Direction,
    Evidence,
    Observation,
    Packet,
    RuleCount,
    SentinelReport,
)
from proxylab.plan.resolved import Receiver, ResolvedProbe, Sender, Sentinel
from proxylab.scenario.expect import Backend, ConntrackExpect, Expect, HttpExpect, Shares, SourceExpectation
from proxylab.scenario.probes import Probe, Send, ServiceTarget, Source
from proxylab.scenario.words import Frontend, IcmpError, Manner, Outcome, Position, Spread

FILE = "scenarios/cluster-ip.lab.yaml"
SENDER_PORT = 40000
SNAT_PORT = 61000

SVC = "KUBE-SVC-HV6DMF63W6MGLRDE"


class World(Struct, frozen=True):
    """Addresses of one family, and the records that flows leave behind. Times grow with the flow's number."""

    pods: tuple[str, ...] = ("echo-1", "echo-2", "echo-3")
    flows: int = 1
    manner: Manner = Manner.PACKET
    protocol: Transport = Transport.TCP
    ipv6: bool = False
    outcome: Outcome = Outcome.DELIVERED
    backends: tuple[str, ...] | None = None
    source: SourceExpectation | None = None
    spread: Spread | Shares | None = None
    at: str | None = None
    icmp: IcmpError | None = None
    http: HttpExpect | None = None
    conntrack: ConntrackExpect | None = None
    others: tuple[IPAddress, ...] = ()
    name: str = "a pod reaches echo through its cluster IP"
    addresses: dict[str, IPAddress] = field(default_factory=dict)

    def address(self, name: str) -> IPAddress:
        return self.addresses.get(name) or _address(name, self.pods, self.ipv6)

    @property
    def probe(self) -> Probe:
        keys = ("outcome", "backends", "source", "spread", "at", "http", "conntrack")
        return Probe(
            name=self.name,
            source=Source(name="debug"),
            target=ServiceTarget(service="echo", via=Frontend.CLUSTER_IP),
            send=Send(manner=self.manner, flows=self.flows),
            expect=Expect(
                outcome=self.outcome,
                backends=None if self.backends is None else tuple(map(backend, self.backends)),
                source=self.source,
                spread=self.spread,
                at=self.at,
                icmp=self.icmp,
                http=self.http,
                conntrack=self.conntrack,
                position=Position(FILE, 21, 13),
                positions={key: Position(FILE, 21 + line, 15) for line, key in enumerate(keys)},
            ),
            position=Position(FILE, 18, 5),
        )

    @property
    def resolved(self) -> ResolvedProbe:
        return ResolvedProbe(
            number=0,
            name=self.name,
            sender=Sender(
                name="debug",
                namespace="debug",
                device="eth0",
                address=self.address("debug"),
                mac="02:00:00:00:00:01",
                next_hop_mac="02:00:00:00:00:02",
                others=self.others,
            ),
            destination=self.address("service"),
            port=80,
            protocol=self.protocol,
            manner=self.manner,
            flows=self.flows,
            payload=0,
            receivers=tuple(
                Receiver(name=pod, namespace=pod, device="eth0", address=self.address(pod))
                # who has an address of another network stands outside
                for pod in (*self.pods, *({"debug"} - self.addresses.keys()))
            ),
            sentinels=tuple(Sentinel(name=name, address=self.address(name)) for name in ("node-a", *self.pods)),
            nodes=("node-a", "node-b"),
            watched=tuple({(self.at or "").partition("/")[0]} & set(self.pods)),
            http=self.http is not None,
            tables=self.conntrack is not None,
            addresses={name: (self.address(name),) for name in ("debug", "node-a", "node-b", *self.pods)},
        )

    @property
    def sentinels(self) -> tuple[SentinelReport, ...]:
        return tuple(SentinelReport(sentinel.name, True, 10**9) for sentinel in self.resolved.sentinels)

    def evidence(self, observations: Sequence[Observation], **changes: object) -> Evidence:
        """All flows sent, sentinel packets back, taps whole; ``changes`` replace fields."""
        evidence = Evidence(sent=self.flows, observations=tuple(observations), sentinels=self.sentinels)
        return replace(evidence, **changes)  # type: ignore[arg-type]

    def seen(
        self,
        flow: int,
        netns_name: str,
        direction: Direction,
        packet: Packet,
        ends: tuple[tuple[IPAddress, int], tuple[IPAddress, int]],
        step: int,
        icmp: tuple[int, int] | None = None,
    ) -> Observation:
        (source, source_port), (destination, destination_port) = ends
        return Observation(
            flow,
            netns_name,
            "eth0",
            direction,
            packet,
            self.protocol,
            source,
            source_port,
            destination,
            destination_port,
            1000 + 10 * flow + step,
            icmp,
        )

    def client(self, flow: int) -> tuple[IPAddress, int]:
        senders = (self.address("debug"), *self.others)
        return senders[flow % len(senders)], SENDER_PORT + flow

    @property
    def dialled(self) -> tuple[IPAddress, int]:
        return self.address("service"), 80

    def leaves(self, flow: int) -> Observation:
        return self.seen(flow, "debug", Direction.OUT, Packet.REQUEST, (self.client(flow), self.dialled), 0)

    def arrives(self, flow: int, pod: str, source: IPAddress | None = None) -> Observation:
        return self.seen(
            flow, pod, Direction.IN, Packet.REQUEST, (self.as_seen(flow, source), (self.address(pod), 8080)), 1
        )

    def answers(self, flow: int, pod: str, source: IPAddress | None = None) -> Observation:
        return self.seen(
            flow, pod, Direction.OUT, Packet.REPLY, ((self.address(pod), 8080), self.as_seen(flow, source)), 2
        )

    def hears(self, flow: int, origin: tuple[IPAddress, int] | None = None) -> Observation:
        ends = (origin or self.dialled, self.client(flow))
        return self.seen(flow, "debug", Direction.IN, Packet.REPLY, ends, 3)

    def hears_reset(self, flow: int, origin: tuple[IPAddress, int] | None = None) -> Observation:
        ends = (origin or self.dialled, self.client(flow))
        return self.seen(flow, "debug", Direction.IN, Packet.RESET, ends, 3)

    def hears_icmp(
        self, flow: int, origin: IPAddress | None = None, icmp: tuple[int, int] | None = None
    ) -> Observation:
        unreachable = (1, 4) if self.ipv6 else (3, 3)
        packet = Packet.PORT_UNREACHABLE if icmp in (None, unreachable) else Packet.OTHER_ICMP
        ends = ((origin or self.address("node-a"), 0), (self.address("debug"), 0))
        return self.seen(flow, "debug", Direction.IN, packet, ends, 3, icmp or unreachable)

    def as_seen(self, flow: int, source: IPAddress | None) -> tuple[IPAddress, int]:
        return (source, SNAT_PORT + flow) if source else self.client(flow)

    def round_trip(self, flow: int, pod: str, source: IPAddress | None = None) -> tuple[Observation, ...]:
        """All four observations of a successful flow; ``source`` is its translated source."""
        return (self.leaves(flow), self.arrives(flow, pod, source), self.answers(flow, pod, source), self.hears(flow))

    def crossing(self, flow: int, pod: str, source: IPAddress | None = None) -> tuple[Observation, ...]:
        """A flow that went well, seen at every device of node-a, which translates it, and of node-b."""
        sent, there = (self.client(flow), self.dialled), (self.as_seen(flow, source), (self.address(pod), 8080))
        back, heard = there[::-1], sent[::-1]
        way = (
            ("debug", "eth0", Direction.OUT, Packet.REQUEST, sent),
            ("node-a", "debug", Direction.IN, Packet.REQUEST, sent),
            ("node-a", "eth0", Direction.OUT, Packet.REQUEST, there),
            ("node-b", "eth0", Direction.IN, Packet.REQUEST, there),
            ("node-b", pod, Direction.OUT, Packet.REQUEST, there),
            (pod, "eth0", Direction.IN, Packet.REQUEST, there),
            (pod, "eth0", Direction.OUT, Packet.REPLY, back),
            ("node-b", pod, Direction.IN, Packet.REPLY, back),
            ("node-b", "eth0", Direction.OUT, Packet.REPLY, back),
            ("node-a", "eth0", Direction.IN, Packet.REPLY, back),
            ("node-a", "debug", Direction.OUT, Packet.REPLY, heard),
            ("debug", "eth0", Direction.IN, Packet.REPLY, heard),
        )
        return tuple(
            replace(self.seen(flow, netns_name, direction, packet, ends, 0), device=device, at=1000 + 10_000 * step)
            for step, (netns_name, device, direction, packet, ends) in enumerate(way)
        )

    def report(self, flow: int, pod: str, source: IPAddress | None = None) -> ConnectReport:
        peer, peer_port = self.as_seen(flow, source)
        return ConnectReport(flow, *self.client(flow), backend=pod, peer=peer, peer_port=peer_port)

    def failed(self, flow: int, error: str) -> ConnectReport:
        return ConnectReport(flow, *self.client(flow), error=error)

    def counted(self, target: str, packets: int = 1, node: str = "node-a", comment: str = "") -> RuleCount:
        """A rule that names what was dialled and ends in ``target``, as iptables-save prints it."""
        bits = 128 if self.ipv6 else 32
        note = f' -m comment --comment "{comment}"' if comment else ""
        text = f"-A KUBE-SERVICES -d {self.address('service')}/{bits} -p tcp{note} -m tcp --dport 80 -j {target}"
        if target == "REJECT":
            text += f" --reject-with {'icmp6' if self.ipv6 else 'icmp'}-port-unreachable"
        return RuleCount(node, "nat" if target == SVC else "filter", "KUBE-SERVICES", text, packets)

    def dropped(self, packets: int = 1, node: str = "node-a") -> RuleCount:
        return self.counted("DROP", packets, node, "default/echo has no local endpoints")

    def rejected(self, packets: int = 1, node: str = "node-a") -> RuleCount:
        return self.counted("REJECT", packets, node, "default/echo has no endpoints")

    def balanced(self, packets: int = 1) -> RuleCount:
        return self.counted(SVC, packets, comment="default/echo cluster IP")

    def translated(self, pod: str, packets: int = 1) -> RuleCount:
        to = self.address(pod)
        where = f"[{to}]:8080" if self.ipv6 else f"{to}:8080"
        chain = f"KUBE-SEP-{pod.upper().replace('-', ''):A<16}"
        text = f"-A {chain} -p tcp -m comment --comment default/echo -m tcp -j DNAT --to-destination {where}"
        return RuleCount("node-a", "nat", chain, text, packets)

    def masqueraded(self, packets: int = 1) -> RuleCount:
        text = (
            '-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" '
            "-j MASQUERADE --random-fully"
        )
        return RuleCount("node-a", "nat", "KUBE-POSTROUTING", text, packets)

    def marked(self, packets: int = 1, test: str = "! -s 10.244.0.0/16", chain: str = SVC) -> RuleCount:
        text = (
            f"-A {chain} {test} -d 10.96.0.10/32 -p tcp -m comment --comment "
            '"default/echo cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ'
        )
        return RuleCount("node-a", "nat", chain, text, packets)


def backend(written: str) -> Backend:
    name, _, port = written.partition(":")
    return Backend(name, int(port) if port else None)


@cache
def _address(name: str, pods: tuple[str, ...], ipv6: bool) -> IPAddress:
    fixed = {
        "debug": ("10.244.1.2", "fd00:10:244:1::2"),
        "service": ("10.96.0.10", "fd00:10:96::a"),
        "node-a": ("172.18.0.2", "fd00:172:18::2"),
        "node-b": ("172.18.0.3", "fd00:172:18::3"),
    }
    if name in fixed:
        return ip_address(fixed[name][ipv6])
    number = pods.index(name) + 3
    return ip_address(f"fd00:10:244:2::{number:x}" if ipv6 else f"10.244.2.{number}")
