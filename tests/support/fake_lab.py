"""A session without a kernel: it records which labs were opened, and takes each verdict from the probe's name.

``fails…`` fails, ``doubts…`` is inconclusive, ``skips…`` is skipped, ``unshown…`` is skipped without a lab, every other
probe passes. A scenario named
``lacking`` meets a CapabilityError, ``refused`` an EngineError, ``broken`` an InternalError, ``crowded`` a
ScenarioError, ``buggy`` an unforeseen exception, and ``interrupted`` a Ctrl-C. After one named ``leaving``
something is left when the session ends.
"""

from ipaddress import ip_address
from pathlib import Path

from msgspec.structs import replace

from proxylab.addresses import Transport
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError, EngineError, InternalError, ScenarioError
from proxylab.evidence.evidence import Capture, Evidence
from proxylab.evidence.stream_records import StepEvidence, StreamRecord
from proxylab.plan.assembly import assemble
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe, Sender
from proxylab.protocol.messages import Built
from proxylab.scenario.cases import kernel_of
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.scenario.words import HOST
from proxylab.verdict.case import Case
from proxylab.verdict.judge import skip
from proxylab.verdict.model import Judgement, ProbeVerdict, StepVerdict, Verdict, expectations, step_expectations
from proxylab.verdict.step_case import StepCase

__all__ = ["RULES", "UNSENDABLE", "FakeLab", "FakeSession", "verdict_on"]

_JUDGEMENTS = {"fails": Judgement.FAIL, "doubts": Judgement.INCONCLUSIVE, "skips": Judgement.SKIP}
_REASONS = {
    Judgement.PASS: "",
    Judgement.FAIL: "the packet took another way",
    Judgement.INCONCLUSIVE: "no tap saw where it went",
    Judgement.SKIP: "this machine has no SCTP",
}
_MEETS = {
    "lacking": CapabilityError("user namespaces", "ask an administrator for them"),
    "refused": EngineError("node-a", "its rules were refused", "iptables-restore: line 7 failed"),
    "broken": InternalError("the lab process ended before it could answer"),
    "crowded": ScenarioError(["crowded.lab.yaml:4:3: spec.pods: no address is left"]),
    "buggy": RuntimeError("an unforeseen case"),
    "interrupted": KeyboardInterrupt(),
}


def verdict_on(probe: Probe) -> ProbeVerdict:
    """The verdict that the probe's name asks for, on no evidence."""
    judgement = _JUDGEMENTS.get(probe.name.split()[0], Judgement.PASS)
    reasons = tuple(filter(None, [_REASONS[judgement]]))
    here = ip_address("10.244.0.2")
    resolved = ResolvedProbe(
        number=0,
        name=probe.name,
        sender=Sender(name="c", namespace="c", device="eth0", address=here, mac="02:00:00:00:00:01", next_hop_mac=""),
        destination=ip_address("10.96.0.1"),
        port=80,
        protocol=Transport.TCP,
        manner=probe.send.manner,
        flows=1,
        payload=0,
        receivers=(),
        sentinels=(),
        nodes=(),
    )
    return ProbeVerdict(
        case=Case(probe, resolved, Evidence(sent=1)),
        verdicts=tuple(
            Verdict(
                expectation=expectation,
                judgement=judgement,
                expected=str(probe.expect.outcome),
                observed="something else",
                reasons=reasons,
                position=probe.expect.position,
            )
            for expectation in expectations(probe.expect)
        ),
    )


def step_verdict_on(step: Step, number: int, streams: tuple[ResolvedProbe, ...]) -> StepVerdict:
    """The verdict that the step's name asks for, on records of streams that sent nothing."""
    judgement = _JUDGEMENTS.get(step.name.split()[0], Judgement.PASS)
    evidence = StepEvidence(
        began=0,
        changed=1,
        settled=2,
        ended=3,
        streams=tuple(StreamRecord(stream=name, port=1) for name in step.expect.streams),
    )
    return StepVerdict(
        case=StepCase(step, number, streams, {}, (), {}, evidence),
        verdicts=tuple(
            Verdict(
                expectation=expectation,
                judgement=judgement,
                expected="one thing",
                observed="something else",
                reasons=tuple(filter(None, [_REASONS[judgement]])),
                position=step.expect.position,
            )
            for expectation in step_expectations(step.expect)
        ),
    )


RULES = """\
# iptables-save --counters
*mangle
COMMIT
*nat
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
COMMIT
"""
"""What every node has in mode iptables. No packet meets it."""

UNSENDABLE = "cannot be sent"
"""The name of a probe for which the machine lacks something."""


class FakeSession:
    """Keeps the interface of ``proxylab.client.session.Session``, and writes every call to a journal."""

    def __init__(
        self, journal: Path, engine: EngineChoice | None = None, seed: int = 0, control_socket: object = None
    ) -> None:
        self._journal = journal
        self._left = False
        self.engine = choice = engine or EngineChoice()
        self.note(
            f"session {choice.name}"
            + (f" by {choice.iptables}" if choice.iptables else "")
            + (f" seed {seed}" if seed else "")
        )

    def __enter__(self) -> "FakeSession":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        if self._left:
            raise InternalError("all labs were closed and left behind: descriptor 9")

    def begin(self) -> None:
        self.note("begin")

    def note(self, event: str) -> None:
        with self._journal.open("a") as journal:
            journal.write(f"{event}\n")

    def unshown(self, scenario: Scenario, each: Probe | Step) -> ProbeVerdict | None:
        if isinstance(each, Step) or not each.name.startswith("unshown"):
            return None
        return skip(each, verdict_on(each).resolved, "this mode shows none of it")

    def open(self, scenario: Scenario, source: str = "", kernel: str = "") -> "FakeLab":
        if (error := _MEETS.get(scenario.name)) is not None:
            raise error
        chosen = kernel_of(scenario, kernel or self.engine.kernel)
        self.note(f"open {scenario.name}" + (f" on {chosen}" if chosen != HOST else ""))
        self._left = scenario.name == "leaving"
        return FakeLab(self, scenario, chosen)

    def close(self) -> None:
        self.note("end of session")


class FakeLab:
    """Keeps the interface of ``proxylab.client.session.OpenLab``."""

    def __init__(self, session: FakeSession, scenario: Scenario, kernel: str = HOST) -> None:
        self._session = session
        self.engine = replace(session.engine, kernel=kernel)
        self.scenario = scenario
        self.built = Built("iptables v1.8.9 (fake)", kernel="6.18.0")
        self._made = 0
        self._concluded = False
        self.is_open = True

    @property
    def line(self) -> "FakeLab":
        return self

    def detach(self, name: str, seconds: float | None) -> None:
        self._session.note(f"stay {name}" + ("" if seconds is None else f" {seconds:.0f}"))
        self.is_open = seconds is None

    def capture(self, verdict: ProbeVerdict | StepVerdict) -> Capture:
        self._session.note("capture")
        return Capture()

    def is_past(self, judged: Probe | Step) -> bool:
        before = self.scenario.steps_before(judged)
        return self._made > before or (isinstance(judged, Step) and self._made == before and self._concluded)

    def add(self, probe: Probe) -> None:
        self._session.note(f"add {probe.name}" + (f" of {probe.send.payload} B" if probe.send.payload else ""))

    def probe(self, probe: Probe, *, trace: bool = False) -> ProbeVerdict:
        self._come_to(probe)
        self._session.note(f"{'trace' if trace else 'probe'} {probe.name}")
        if probe.name == UNSENDABLE:
            raise CapabilityError("SCTP sockets", "use another kernel")
        return verdict_on(probe)

    @property
    def made(self) -> int:
        return self._made

    def left_out(self, probe: Probe, reason: str) -> ProbeVerdict:
        return skip(probe, verdict_on(probe).resolved, reason)

    def judged(self, probe: Probe) -> ProbeVerdict:
        return self.probe(probe)

    def conclude(self, step: Step) -> StepVerdict:
        self._come_to(step)
        self._concluded = True
        self._session.note(f"conclude {step.name}")
        return step_verdict_on(step, self._made, assemble(self.scenario).streams)

    def _come_to(self, judged: Probe | Step) -> None:
        for step in self.scenario.steps[self._made : self.scenario.steps_before(judged)]:
            self._session.note(f"step {step.name}")
            self._made += 1
            self._concluded = False

    def trace(self, probe: Probe) -> tuple[ResolvedProbe, Evidence]:
        self._session.note(f"trace {probe.source.name} to {probe.target}")
        return verdict_on(probe).resolved, Evidence(sent=1)

    def service_of(self, resolved: ResolvedProbe) -> None:
        """Nothing is known of any Service."""

    def rules(self) -> dict[str, str]:
        self._session.note("rules")
        return {each.name: RULES for each in self.scenario.nodes}

    def current_plan(self) -> Plan:
        return Plan(namespaces=(), links=())

    def bundle(self, verdict: ProbeVerdict | StepVerdict) -> dict[str, bytes]:
        if isinstance(verdict, StepVerdict):
            self._session.note(f"bundle {verdict.step.name}")
            return {"step.json": b"{}"}
        self._session.note(f"bundle {verdict.probe.name}")
        return {"case.json": b"{}", "rules/node-a.txt": b""}

    def close(self) -> None:
        self.is_open = False
        self._session.note(f"close {self.scenario.name}")
