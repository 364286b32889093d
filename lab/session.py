"""A run's session: one lab process, and one lab after the other in it.

Owns: the way from a scenario to verdicts, the same for ``proxylab run`` and for pytest.
Must not: print, or know who asks.
"""

import platform
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

import lab
from lab.assembly import Assembly, assemble
from lab.client import LabProcess
from lab.engines.protocol import EngineChoice
from lab.errors import CapabilityError, InternalError
from lab.garbage import uncollected
from lab.messages import Build, Built, Close, Closed, Dump, Dumped, Execute, Executed, Request, Send, Sent
from lab.plan.errand import Errand
from lab.report.bundle import Circumstances, bundle
from lab.scenario.model import Manner, Probe, Scenario
from lab.timing import Deadline
from lab.verdict.evidence import Evidence
from lab.verdict.judge import judge
from lab.verdict.model import ProbeVerdict

__all__ = ["OpenLab", "Session"]

Wanted = TypeVar("Wanted")

_BUILD_SECONDS: Final = 120.0
_PROBE_SECONDS: Final = 300.0
_CLOSE_SECONDS: Final = 30.0


class Session:
    """Opens labs, one at a time, in one lab process that starts with the first of them."""

    def __init__(self, engine: EngineChoice | None = None) -> None:
        self._engine = engine or EngineChoice()
        self._process: LabProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(checked=error is None)

    def open(self, scenario: Scenario) -> "OpenLab":
        """Build the lab of ``scenario`` and wait until its engines have programmed it.

        Raises:
            ScenarioError: the scenario cannot be laid out (addresses run out, a port is taken).
            CapabilityError: the machine lacks something.
            EngineError: an engine did not start or did not synchronise.
            InternalError: the lab is at fault.
        """
        if self._process is None or self._process.closed:
            self._process = LabProcess()
        assembly = assemble(scenario)
        engine = replace(
            self._engine,
            cluster_cidrs=scenario.network.pod_cidrs,
            families=scenario.network.families,
            configuration=scenario.proxy or self._engine.configuration,
        )
        request = Build(assembly.plan, assembly.objects, engine)
        built = self._process.request(request, Built, Deadline.after(_BUILD_SECONDS))
        return OpenLab(self._process, assembly, built)

    def close(self, *, checked: bool = False) -> None:
        """End the lab process. Calling it twice does no harm.

        Args:
            checked: ask it first to close its lab and to see that nothing of any of its labs is left.

        Raises:
            InternalError: something was left, or the lab process is gone; only where ``checked``.
        """
        process, self._process = self._process, None
        if process is None:
            return
        try:
            if checked and process.stands:
                process.request(Close(), Closed, Deadline.after(_CLOSE_SECONDS))
        finally:
            process.close()


class OpenLab:
    """A lab that stands, until the session opens the next one or closes."""

    def __init__(self, process: LabProcess, assembly: Assembly, built: Built) -> None:
        self._process = process
        self._assembly = assembly
        self.built = built
        self._given_back = False

    @property
    def scenario(self) -> Scenario:
        """The scenario it was built for."""
        return self._assembly.scenario

    def probe(self, probe: Probe, *, trace: bool = False) -> ProbeVerdict:
        """Send one probe of the scenario and judge what was seen; with ``trace``, send one more packet to follow it.

        Raises:
            InternalError: the lab is gone, or at fault.
        """
        errand = self._assembly.errand(probe)
        with uncollected():
            sent = self._ask(Send(errand), Sent, _PROBE_SECONDS)
            verdict = judge(probe, errand, self._assembly.expected_source(probe), sent.evidence)
        return replace(verdict, traced=self.trace(probe)[1]) if trace else verdict

    def trace(self, probe: Probe) -> tuple[Errand, Evidence]:
        """Send one more packet of a probe and follow it through the rules of every node.

        Returns:
            The errand of that packet, and what was seen of it; ``steps`` are the rules that it met.

        Raises:
            CapabilityError: the kernel cannot trace in a network namespace.
        """
        errand = replace(self._assembly.errand(probe), flows=1, manner=Manner.PACKET)
        sent = self._ask(Send(errand, trace=True), Sent, _PROBE_SECONDS)
        return errand, sent.evidence

    def bundle(self, verdict: ProbeVerdict, engine: str) -> dict[str, bytes]:
        """The files of an evidence bundle (``lab.report.bundle``) for a probe that was just judged.

        One more packet is traced for it, where the machine can trace and nobody has done so.
        """
        with suppress(CapabilityError):
            verdict = verdict if verdict.traced else replace(verdict, traced=self.trace(verdict.probe)[1])
        nodes = verdict.errand.nodes
        dumped = {node: self._ask(Dump(node), Dumped, _PROBE_SECONDS) for node in nodes}
        return bundle(
            verdict,
            circumstances=Circumstances(
                proxylab=lab.__version__, kernel=platform.release(), engine=engine, iptables=self.built.variant
            ),
            source=self._assembly.expected_source(verdict.probe),
            plan=self._assembly.plan,
            rules={node: answer.text for node, answer in dumped.items()},
            scenario=Path(self.scenario.file).read_bytes(),
        )

    def execute(self, place: str, *argv: str) -> Executed:
        """Run a command in a node, pod or host of the lab and wait for its end."""
        request = Execute(place, argv)
        return self._ask(request, Executed, request.seconds + 10)

    def close(self) -> None:
        """Give the lab back: it is asked nothing more. The lab process takes it down once the next one stands."""
        self._given_back = True

    def _ask(self, request: Request, wanted: type[Wanted], seconds: float) -> Wanted:
        if self._given_back or self._process.closed:
            raise InternalError(f"{self.scenario.file}: its lab is gone; open the scenario again")
        return self._process.request(request, wanted, Deadline.after(seconds))
