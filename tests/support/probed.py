"""Recorded and judged probes, one for each result of a probe; and a run of some of them."""

from collections.abc import Callable
from ipaddress import ip_address

from msgspec.structs import replace
from recorded import FILE, World

from proxylab.binary_identity import BinaryIdentity
from proxylab.errors import EngineError, ExitCode
from proxylab.evidence.evidence import (
    Direction,
    Evidence,
    HttpReport,
    RuleCount,
    SentinelReport,
    TableEntry,
    TapLoss,
    TrackedFlow,
)
from proxylab.scenario.expect import ConntrackExpect, Entries, Expect, HttpExpect, NodeDevice, Preserved, Shares
from proxylab.scenario.words import Manner, Outcome, Position, Spread
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Fault, KnownFailure, ProbeVerdict, ScenarioResult, Skip

__all__ = ["CASES", "ECHOES", "NODE_A", "RUN", "judged"]

ECHOES = ("echo-1", "echo-2", "echo-3")
NODE_A = ip_address("172.18.0.2")
GATEWAY = ip_address("10.244.1.1")

PLAIN = World(backends=("echo-1",), source=Preserved())
AT = Position(FILE, 24, 15)
MANY = World(flows=2000, backends=ECHOES, spread=Spread.EVEN, name="flows are shared evenly")


def judged(world: World, evidence: Evidence, source: object = None) -> ProbeVerdict:
    return judge(world.probe, world.resolved, source, evidence)  # type: ignore[arg-type]


def passed() -> ProbeVerdict:
    return judged(PLAIN, PLAIN.evidence(PLAIN.round_trip(0, "echo-1"), counts=(PLAIN.balanced(),)))


def masqueraded() -> ProbeVerdict:
    """The client stands outside the pod network, so the cluster IP's own rule masquerades it."""
    world = replace(PLAIN, addresses={"debug": ip_address("203.0.113.10")}, name="an outside client keeps its address")
    counts = (world.balanced(), world.marked(), world.translated("echo-1"), world.masqueraded())
    return judged(world, world.evidence(world.round_trip(0, "echo-1", NODE_A), counts=counts))


def not_masqueraded() -> ProbeVerdict:
    world = World(pods=(), backends=("debug",), source=NodeDevice("node-a", "pods"), name="a pod reaches itself")
    counts = (world.balanced(), world.translated("debug"))
    return judged(world, world.evidence(world.round_trip(0, "debug"), counts=counts), GATEWAY)


def hairpin_masqueraded() -> ProbeVerdict:
    world = World(pods=(), backends=("debug",), source=Preserved(), name="a pod reaches itself")
    chain = "KUBE-SEP-DEBUGAAAAAAAAAAA"
    marked = world.marked(test="-s 10.244.1.2/32", chain=chain)
    counts = (world.balanced(), marked, world.translated("debug"), world.masqueraded())
    return judged(world, world.evidence(world.round_trip(0, "debug", GATEWAY), counts=counts))


def no_translation() -> ProbeVerdict:
    return judged(PLAIN, PLAIN.evidence([PLAIN.leaves(0)], counts=(PLAIN.balanced(),)))


def strayed() -> ProbeVerdict:
    stray = replace(PLAIN.leaves(0), netns_name="outside", direction=Direction.IN, at=1001)
    return judged(PLAIN, PLAIN.evidence([PLAIN.leaves(0), stray]))


def dead_backend() -> ProbeVerdict:
    """Translated to a pod that never sees it."""
    counts = (PLAIN.balanced(), PLAIN.translated("echo-2"))
    return judged(PLAIN, PLAIN.evidence([PLAIN.leaves(0)], counts=counts))


def wrong_pod_in_nftables() -> ProbeVerdict:
    """Mode nftables counts nothing; the kernel has told what each rule did with the packet."""
    world = replace(PLAIN, backends=("echo-2",))
    counts = (
        RuleCount("node-a", "kube-proxy", "services", "ip daddr . meta l4proto . th dport vmap @service-ips", 1),
        RuleCount(
            "node-a",
            "kube-proxy",
            "endpoint-5OJB2KTY-default/echo/tcp/http__10.244.2.3/8080",
            "meta l4proto tcp dnat to 10.244.2.3:8080",
            1,
            "DNAT",
            world.address("echo-1"),
            8080,
        ),
    )
    return judged(world, world.evidence(world.round_trip(0, "echo-1"), counts=counts))


def dropped_in_nftables() -> ProbeVerdict:
    asked = "ip daddr . meta l4proto . th dport vmap @no-endpoint-services"
    counts = (RuleCount("node-a", "kube-proxy", "service-endpoints-check", asked, 1, "DROP"),)
    return judged(PLAIN, PLAIN.evidence([PLAIN.leaves(0)], counts=counts))


def rejected_instead() -> ProbeVerdict:
    world = replace(PLAIN, manner=Manner.CONNECT)
    seen, said = [world.leaves(0), world.hears_icmp(0)], (world.failed(0, "ECONNREFUSED"),)
    return judged(world, world.evidence(seen, connects=said, counts=(world.rejected(),)))


def refused_instead() -> ProbeVerdict:
    seen = [PLAIN.leaves(0), PLAIN.arrives(0, "echo-1"), PLAIN.hears_reset(0)]
    return judged(PLAIN, PLAIN.evidence(seen, counts=(PLAIN.balanced(), PLAIN.translated("echo-1"))))


def silent_responder() -> ProbeVerdict:
    return judged(PLAIN, PLAIN.evidence([PLAIN.leaves(0), PLAIN.arrives(0, "echo-1")]))


def reply_untranslated() -> ProbeVerdict:
    pod = (PLAIN.address("echo-1"), 8080)
    return judged(PLAIN, PLAIN.evidence([*PLAIN.round_trip(0, "echo-1")[:3], PLAIN.hears(0, pod)]))


def never_chosen() -> ProbeVerdict:
    seen = [each for flow in range(2000) for each in MANY.round_trip(flow, f"echo-{flow % 2 + 1}")]
    counts = (MANY.balanced(2000), MANY.translated("echo-1", 1000), MANY.translated("echo-2", 1000))
    return judged(MANY, MANY.evidence(seen, counts=counts))


def uneven() -> ProbeVerdict:
    seen = [each for flow in range(2000) for each in MANY.round_trip(flow, f"echo-{min(flow % 4, 2) + 1}")]
    return judged(MANY, MANY.evidence(seen))


def many_backends() -> ProbeVerdict:
    pods = tuple(f"echo-{number}" for number in range(1, 33))
    world = World(pods=pods, flows=1000, backends=pods, name="thirty-two endpoints")
    seen = [each for flow in range(1000) for each in world.round_trip(flow, pods[flow % 31])]
    return judged(world, world.evidence(seen))


def some_lost() -> ProbeVerdict:
    world = World(flows=200, source=Preserved(), name="two hundred flows")
    ways = (world.crossing(flow, "echo-1")[: 3 if flow % 20 == 7 else None] for flow in range(200))
    seen = [each for way in ways for each in way]
    return judged(world, world.evidence(seen))


def dropped() -> ProbeVerdict:
    world = World(outcome=Outcome.DROPPED, at="node-a", name="no local endpoint drops")
    return judged(world, world.evidence([world.leaves(0)], counts=(world.dropped(),)))


def dropped_elsewhere() -> ProbeVerdict:
    world = World(outcome=Outcome.DROPPED, at="node-b", name="no local endpoint drops")
    return judged(world, world.evidence([world.leaves(0)], counts=(world.dropped(),)))


def delivered_instead_of_dropped() -> ProbeVerdict:
    world = World(outcome=Outcome.DROPPED, at="node-a", name="no local endpoint drops")
    counts = (world.balanced(), world.translated("echo-1"))
    return judged(world, world.evidence(world.round_trip(0, "echo-1"), counts=counts))


def no_witness() -> ProbeVerdict:
    world = World(outcome=Outcome.DROPPED, at="node-a", name="no local endpoint drops")
    return judged(world, world.evidence([world.leaves(0)]))


def broken_way() -> ProbeVerdict:
    world = World(outcome=Outcome.DROPPED, at="node-a", name="no local endpoint drops")
    sentinels = (SentinelReport("node-a", False), *world.sentinels[1:])
    return judged(world, world.evidence([world.leaves(0)], sentinels=sentinels, counts=(world.dropped(),)))


def lossy_tap() -> ProbeVerdict:
    return judged(PLAIN, PLAIN.evidence(PLAIN.round_trip(0, "echo-1"), losses=(TapLoss("echo-3", "eth0", 12),)))


def disagreement_ipv6() -> ProbeVerdict:
    world = replace(PLAIN, backends=("echo-2",), manner=Manner.CONNECT, ipv6=True)
    node = world.address("node-a")
    evidence = world.evidence(world.round_trip(0, "echo-2", node), connects=(world.report(0, "echo-2"),))
    return judged(world, evidence)


def not_sticky() -> ProbeVerdict:
    world = World(flows=6, backends=ECHOES, spread=Spread.STICKY, name="a client stays where it was")
    seen = [each for flow in range(6) for each in world.round_trip(flow, "echo-2" if flow == 4 else "echo-1")]
    return judged(world, world.evidence(seen))


def wrong_shares() -> ProbeVerdict:
    shares = Shares({"echo-1": 0.4, "echo-2": 0.6})
    world = World(flows=2000, backends=ECHOES[:2], spread=shares, name="the other pod gets most")
    seen = [each for flow in range(2000) for each in world.round_trip(flow, "echo-1" if flow % 4 else "echo-2")]
    return judged(world, world.evidence(seen))


def wrong_health() -> ProbeVerdict:
    """A health-check node port that tells of an endpoint where there is none."""
    world = World(manner=Manner.CONNECT, name="a node without endpoint says so")
    expect = Expect(http=HttpExpect(status=503, local_endpoints=0), outcome=Outcome.DELIVERED, position=AT)
    probe = replace(world.probe, expect=replace(expect, positions={"http": AT}))
    resolved = replace(world.resolved, http=True, nodes=("node-a", "node-b"))
    said = {"connects": (world.report(0, "echo-1"),), "http": (HttpReport(0, 200, 1),)}
    return judge(probe, resolved, None, world.evidence(world.round_trip(0, "echo-1"), **said))


def not_forgotten() -> ProbeVerdict:
    """A datagram goes where connection tracking has it from before."""
    world = World(
        pods=("old", "new"), backends=("new",), source=Preserved(), name="the next datagram reaches the new pod"
    )
    wanted = ConntrackExpect(node="node-a", none=Entries(reply_from="old"))
    probe = replace(world.probe, expect=replace(world.probe.expect, conntrack=wanted))
    names = {name: (world.address(name),) for name in world.pods}
    resolved = replace(world.resolved, tables=True, addresses=names)
    tracked = (TrackedFlow(0, "node-a", world.address("old"), 8080, *world.client(0)),)
    ends = (*world.client(0), *world.dialled, world.address("old"), 8080, *world.client(0))
    entries = (TableEntry("node-a", world.resolved.protocol, *ends),)
    evidence = world.evidence((world.leaves(0), world.arrives(0, "old")), tracked=tracked, entries=entries)
    return judge(probe, resolved, None, replace(evidence, metered_nodes=("node-a", "node-b")))


def forgotten_too_late() -> ProbeVerdict:
    """All is well but for an entry that should be gone."""
    world = World(pods=("old", "new"), backends=("new",), source=Preserved(), name="no entry leads to the old pod")
    wanted = ConntrackExpect(node="node-a", none=Entries(reply_from="old"))
    probe = replace(world.probe, expect=replace(world.probe.expect, conntrack=wanted))
    resolved = replace(world.resolved, tables=True, addresses={name: (world.address(name),) for name in world.pods})
    ends = (*world.client(7), *world.dialled, world.address("old"), 8080, *world.client(7))
    entries = (TableEntry("node-a", world.resolved.protocol, *ends),)
    evidence = world.evidence(world.round_trip(0, "new"), entries=entries, counts=(world.translated("new"),))
    return judge(probe, resolved, None, evidence)


def translated_instead() -> ProbeVerdict:
    """What was to be left alone is translated, and delivered."""
    world = World(outcome=Outcome.UNTRANSLATED, at="node-a/eth0", name="a port that the Service lacks is left alone")
    crossing = replace(world.arrives(0, "echo-1"), netns_name="node-a", direction=Direction.OUT)
    evidence = world.evidence((*world.round_trip(0, "echo-1"), crossing), counts=(world.translated("echo-1"),))
    return judged(world, evidence)


def dropped_before_the_pod() -> ProbeVerdict:
    """What was to be dropped by a pod's stack never came to the pod."""
    world = World(outcome=Outcome.DROPPED, at="echo-1", name="the pod discards what comes from itself")
    return judged(world, world.evidence((world.leaves(0),), counts=(world.dropped(),)))


CASES: dict[str, Callable[[], ProbeVerdict]] = {
    case.__name__.replace("_", "-"): case
    for case in (
        passed,
        masqueraded,
        not_masqueraded,
        hairpin_masqueraded,
        no_translation,
        strayed,
        dead_backend,
        rejected_instead,
        refused_instead,
        silent_responder,
        reply_untranslated,
        not_sticky,
        wrong_shares,
        never_chosen,
        uneven,
        many_backends,
        some_lost,
        dropped,
        dropped_elsewhere,
        delivered_instead_of_dropped,
        no_witness,
        broken_way,
        lossy_tap,
        disagreement_ipv6,
        wrong_health,
        not_forgotten,
        forgotten_too_late,
        translated_instead,
        dropped_before_the_pod,
        wrong_pod_in_nftables,
        dropped_in_nftables,
    )
}

RUN = (
    ScenarioResult(
        file=FILE,
        name="cluster-ip",
        engine="embedded/iptables",
        probes=(passed(), dropped(), masqueraded(), no_witness()),
        seconds=0.314,
    ),
    ScenarioResult(
        file="scenarios/ipvs.lab.yaml",
        name="ipvs",
        engine="embedded/ipvs",
        seconds=0.002,
        skipped=Skip("IPVS in the kernel", "an administrator can type: modprobe ip_vs"),
    ),
    ScenarioResult(
        file="scenarios/broken.lab.yaml",
        name="broken",
        engine="embedded/iptables",
        fault=Fault(
            ExitCode.FAILED, str(EngineError("node-b", "the rules were refused", "iptables-restore: line 4 failed"))
        ),
    ),
    ScenarioResult(
        file="scenarios/prefix.lab.yaml",
        name="prefix",
        engine="kube-proxy/nftables",
        binary=BinaryIdentity(
            version="v1.34.0-dirty",
            origin="built in /home/me/kubernetes",
            digest="999b6aaf524cbdc4c81b1b35fda9b714fa8f6473963851f1e26a5108a22fcda4",
            commit="f28b4c9efbca5c5c0af716d9f2d5702667ee8a45",
            dirty=True,
        ),
        seconds=0.5,
        foreseen=KnownFailure(
            "kubernetes#134024: it looks for a device of that name",
            "Error: Interface does not exist",
            Position(file="scenarios/prefix.lab.yaml", line=14, column=5),
        ),
    ),
)
