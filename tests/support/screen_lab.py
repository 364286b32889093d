"""A session for screenshots: its labs return one recorded packet for each engine.

An outside host ``debug`` dials the Service ``echo``, and node-a, where it enters, masquerades it. On the engine of
Kubernetes v1.23 the Service has no endpoint.
"""

from ipaddress import ip_address
from pathlib import Path
from typing import Any

from fake_lab import FakeLab, FakeSession
from msgspec.structs import replace
from recorded import SVC, World

from proxylab.addresses import IPAddress
from proxylab.encoding import encode
from proxylab.evidence.evidence import Evidence, Packet, TraceStep
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.report.bundle import CASE, FORMAT, PLAN, Circumstances, Recorded
from proxylab.scenario.expect import SourceExpectation
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.verdict.judge import judge
from proxylab.verdict.model import ProbeVerdict

__all__ = ["ScreenSession", "record"]

OUTSIDE = World(addresses={"debug": ip_address("203.0.113.10")})
NODE_A, POD = OUTSIDE.address("node-a"), OUTSIDE.address("echo-1")
SEP, POSTROUTING = "KUBE-SEP-ECHO1AAAAAAAAAAA", "KUBE-POSTROUTING"


def note(text: str) -> str:
    return f'-m comment --comment "{text}"'


def step(chain: str, rule: str, table: str = "nat", to: IPAddress | None = None, **others: Any) -> TraceStep:
    """A rule that the request met on node-a; ``to`` the pod, once it was translated."""
    return TraceStep(
        netns_name="node-a",
        table=table,
        chain=chain,
        kind="rule",
        text=f"-A {chain} {rule}",
        packet=Packet.REQUEST,
        source=OUTSIDE.address("debug"),
        source_port=40000,
        destination=to or OUTSIDE.address("service"),
        destination_port=8080 if to else 80,
        in_device="eth0",
        at=1000,
        **others,
    )


MASQUERADED = (
    step("PREROUTING", f"{note('kubernetes service portals')} -j KUBE-SERVICES"),
    step("KUBE-SERVICES", f"-d 10.96.0.10/32 {note('default/echo cluster IP')} -j {SVC}"),
    step(SVC, f"! -s 10.244.0.0/16 {note('default/echo cluster IP')} -j KUBE-MARK-MASQ"),
    step("KUBE-MARK-MASQ", "-j MARK --set-xmark 0x4000/0x4000"),
    step(SVC, f"{note('default/echo -> 10.244.2.3:8080')} -j {SEP}", mark=0x4000),
    step(SEP, "-p tcp -m tcp -j DNAT --to-destination 10.244.2.3:8080", mark=0x4000),
    step("FORWARD", f"{note('kubernetes forwarding rules')} -j KUBE-FORWARD", "filter", POD, out_device="eth0"),
    step("KUBE-FORWARD", f"{note('kubernetes forwarding rules')} -j ACCEPT", "filter", POD, out_device="eth0"),
    step("POSTROUTING", f"{note('kubernetes postrouting rules')} -j {POSTROUTING}", to=POD, out_device="eth0"),
    step(POSTROUTING, "-j MASQUERADE --random-fully", to=POD, out_device="eth0"),
)
REJECTED = (
    step("FORWARD", f"{note('kubernetes service portals')} -j KUBE-SERVICES", "filter", out_device="eth0"),
    step(
        "KUBE-SERVICES",
        f"-d 10.96.0.10/32 {note('default/echo has no endpoints')} -j REJECT --reject-with icmp-port-unreachable",
        "filter",
        out_device="eth0",
    ),
)


def evidence(engine: str) -> Evidence:
    """What was seen of the packet on an engine."""
    if "v1.23" in engine:
        seen = (OUTSIDE.leaves(0), OUTSIDE.hears_icmp(0))
        return OUTSIDE.evidence(seen, counts=(OUTSIDE.rejected(),), steps=REJECTED)
    counts = (OUTSIDE.balanced(), OUTSIDE.marked(), OUTSIDE.translated("echo-1"), OUTSIDE.masqueraded())
    return OUTSIDE.evidence(OUTSIDE.round_trip(0, "echo-1", NODE_A), counts=counts, steps=MASQUERADED)


def record(folder: Path, source: SourceExpectation | None = None) -> None:
    """Make a bundle of the packet as embedded/iptables treats it; with ``source``, which a backend was to see."""
    probe = replace(OUTSIDE.probe, expect=replace(OUTSIDE.probe.expect, source=source))
    circumstances = Circumstances(
        proxylab="1", python="3.11", kernel="6.1", machine="x86_64", engine="embedded/iptables", iptables="(legacy)"
    )
    judged = judge(probe, OUTSIDE.resolved, None, evidence(circumstances.engine))
    recorded = Recorded(
        format=FORMAT,
        circumstances=circumstances,
        probe=judged.probe,
        resolved=judged.resolved,
        source=judged.source,
        evidence=judged.evidence,
        traced=judged.traced,
        verdicts=judged.verdicts,
        options=judged.options,
    )
    folder.mkdir(parents=True)
    (folder / CASE).write_bytes(encode(recorded))
    (folder / PLAN).write_bytes(encode(Plan(namespaces=(), links=())))


class ScreenSession(FakeSession):
    """As ``FakeSession``, with labs that have something to show."""

    def open(self, scenario: Scenario, source: str = "", kernel: str = "") -> "ScreenLab":
        return ScreenLab(self, scenario)


class ScreenLab(FakeLab):
    """A lab in which every probe is the recorded one."""

    def probe(self, probe: Probe, *, trace: bool = False) -> ProbeVerdict:
        return judge(probe, replace(OUTSIDE.resolved, name=probe.name), NODE_A, evidence(self.engine.name))

    def trace(self, probe: Probe) -> tuple[ResolvedProbe, Evidence]:
        return OUTSIDE.resolved, evidence(self.engine.name)
