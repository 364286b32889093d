"""A session: one lab process on each kernel that it needs, and one lab after the other in each.

``proxylab run``, ``proxylab up`` and the pytest plugin all come from a scenario to its lab by ``Session.open``. It
plans the lab, starts the lab process (``client.lab_process``), sends it the plan as a ``Build``, and returns the built
lab as an ``OpenLab`` (``client.open_lab``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from msgspec.structs import replace

from proxylab.binaries.binary import CONTROL_PLANE
from proxylab.binaries.control_plane import EMBEDDED, REAL, control_plane_sources, find_control_plane
from proxylab.binaries.coredns import coredns_sources, find_coredns
from proxylab.capability import Capability
from proxylab.client.control_sockets import ControlSocket
from proxylab.client.lab_process import LabProcess
from proxylab.client.node_engines import configured, engines_by_step
from proxylab.client.open_lab import BUILD_SECONDS, OpenLab, options_of
from proxylab.client.unshown import unshown
from proxylab.engines.embedded.mutation import Mutation
from proxylab.engines.engine_names import KUBE_PROXY, mode_of
from proxylab.engines.kubeproxy.refusals import refuse_settings
from proxylab.engines.lacking import refuse
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError, EngineError, ScenarioError
from proxylab.mutate.objects import ObjectMutation
from proxylab.plan.assembly import Assembly, assemble
from proxylab.protocol.messages import Build, Close
from proxylab.scenario.cases import kernel_of
from proxylab.scenario.dns import NameServer
from proxylab.scenario.matrix import Requirements
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.scenario.versions import release_version
from proxylab.scenario.words import HOST, ControlPlaneKind
from proxylab.timing import Deadline
from proxylab.verdict.model import ProbeVerdict, StepVerdict

_OTHER_KERNEL: Final = "choose another kernel with --kernel (`proxylab kernels` lists them)"
_CLOSE_SECONDS: Final = 30.0
_CLOSE_SECONDS_A_NETNS: Final = 0.1


class Session:
    """Opens labs, one at a time on a kernel, in a lab process that starts with the first lab on that kernel."""

    def __init__(
        self,
        engine: EngineChoice | None = None,
        seed: int = 0,
        control_socket: Callable[[], ControlSocket] | None = None,
    ) -> None:
        """Make a session; no process starts yet.

        Args:
            engine: the engine to run.
            seed: orders source ports and payloads.
            control_socket: makes the control socket of each lab process, so that its lab can be detached.
        """
        self.engine: Final = engine or EngineChoice()
        self._seed = seed
        self._control_socket = control_socket
        self._processes: dict[str, LabProcess] = {}
        self._capabilities: dict[tuple[str, str], Capability] = {}
        self._namespaces = 0
        self._assembly: Assembly | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(checked=error is None)

    def _started(self, kernel: str) -> LabProcess:
        if kernel not in self._processes or self._processes[kernel].closed:
            control_socket = self._control_socket and self._control_socket()
            self._processes[kernel] = LabProcess(control_socket, kernel, privileged=self.engine.privileged)
        return self._processes[kernel]

    def open(
        self,
        scenario: Scenario,
        source: str = "",
        kernel: str = "",
        mutation: Mutation | None = None,
        shown: ObjectMutation | None = None,
    ) -> "OpenLab":
        """Build the lab of ``scenario`` and wait until its engines have programmed it.

        A new lab process first says that it is ready; its answer to ``Build`` comes when every link carries frames and
        every engine has synchronised.

        Args:
            scenario: without a matrix, or a case of one.
            source: its text, if it is in no file.
            kernel: what the case's axis ``kernel`` says, or else ``--kernel``; by default the engine's.
            mutation: of the rules that an embedded engine loads.
            shown: a mutation of the objects and the configuration that the proxies see.

        Raises:
            ScenarioError: the scenario cannot be laid out (addresses run out, a port is taken).
            CapabilityError: the machine or its kernel lacks something, or the engine's mode does.
            EngineError: an engine did not start or did not synchronise, or lacks a mode to which a step changes it.
            InternalError: the lab is at fault.
        """
        self._refuse(scenario)
        scenario, programs = _with_programs(scenario, self.engine.name_server)
        if control_plane := real_control_plane(scenario, self.engine):
            if kernel_of(scenario, kernel or self.engine.kernel) != HOST:
                raise CapabilityError("a real control plane in a guest", "leave --kernel out, or --control-plane")
            binary = find_control_plane(control_plane, control_plane_sources().cache)
            programs = {**programs, CONTROL_PLANE.name: str(binary.path)}
        elif problem := next(_needing_writes(scenario), ""):
            raise ScenarioError([f"{problem}; write `controlPlane: real`, or use --control-plane real"])
        assembly = self._assembled(scenario)
        begins = assembly.timeline[0]
        chosen = replace(self.engine, kernel=kernel_of(scenario, kernel or self.engine.kernel))
        begun, common = self._engines(chosen, scenario), configured(chosen, scenario)
        request = Build(
            assembly.plan,
            assembly.objects,
            common,
            self._seed,
            assembly.resolv_confs,
            programs,
            scenario.name_server.corefile,
            mutation,
            shown,
            {node: engine for node, engine in begun.items() if engine != common},
            takes_over=not any(each.change.pods or each.change.workloads for each in scenario.steps),
            to_join=tuple(each for name, each in begins.machines.items() if name not in begins.nodes),
        )
        process = self._started(chosen.kernel)
        self._check_requirements(process, chosen.kernel, scenario.requires)
        needed = needed_capabilities(chosen, scenario)
        if chosen.kernel != HOST:
            self._check_capabilities(process, chosen.kernel, needed)
        self._namespaces = max(self._namespaces, len(assembly.plan.namespaces))
        try:
            built = process.request(request, Deadline.after(BUILD_SECONDS + (chosen.sync_seconds or 0)))
        except EngineError:
            # Each trial costs a quick lab a tenth of its time, so on the machine's kernel they wait for a failure.
            self._check_capabilities(process, chosen.kernel, needed)
            raise
        return OpenLab(process, assembly, built, chosen, self._seed, source)

    def _check_requirements(self, process: LabProcess, kernel: str, requires: Requirements) -> None:
        """Raise ``CapabilityError`` if the kernel lacks something of ``spec.requires``."""
        if requires.kernel is not None:
            release = process.ready().kernel
            if release_version(release) not in requires.kernel:
                raise CapabilityError(f"a kernel {requires.kernel} (this is {release})", _OTHER_KERNEL)
        self._check_capabilities(process, kernel, requires.capabilities)

    def _check_capabilities(self, process: LabProcess, kernel: str, names: Sequence[str]) -> None:
        """Raise ``CapabilityError`` if the kernel, or the machine, lacks one of them. Each is tried once."""
        if unknown := tuple(name for name in names if (kernel, name) not in self._capabilities):
            found = process.examine(unknown, Deadline.after(BUILD_SECONDS))
            self._capabilities |= {(kernel, each.name): each for each in found}
        for name in names:
            capability = self._capabilities[kernel, name]
            if not capability.works:
                other = "" if capability.of_program else f"; or {_OTHER_KERNEL}"
                raise CapabilityError(f"{name} ({capability.found})", f"{capability.cure}{other}")

    def unshown(self, scenario: Scenario, each: Probe | Step) -> ProbeVerdict | StepVerdict | None:
        """The verdict on a probe or step of which the engine's mode can show nothing, so that it needs no lab.

        Raises:
            ScenarioError: the scenario cannot be laid out.
            CapabilityError: the engine's mode or version lacks what the whole scenario needs.
        """
        self._refuse(scenario)
        options = options_of(self.engine, self._seed)
        return None if scenario.failures else unshown(self.engine, self._assembled(scenario), each, options)

    def _assembled(self, scenario: Scenario) -> Assembly:
        if self._assembly is None or self._assembly.scenario is not scenario:
            self._assembly = assemble(scenario)
        return self._assembly

    def _refuse(self, scenario: Scenario) -> None:
        refuse(self.engine.name, scenario)
        wanted = scenario.requires.version
        if wanted is not None and self.engine.version not in wanted:
            raise CapabilityError(f"a proxy of version {wanted}", f"choose another engine than {self.engine.name}")

    def _engines(self, chosen: EngineChoice, scenario: Scenario) -> Mapping[str, EngineChoice]:
        """The engine of each node at first. Refuses what a version lacks now or in a step, before any probe.

        Raises:
            ScenarioError: a setting that this kube-proxy refuses.
            CapabilityError: an engine that is not here.
            EngineError: an engine has no mode in which the scenario runs it.
        """
        refuse_settings(self.engine, scenario.proxy or self.engine.configuration)
        found = engines_by_step(chosen, scenario)
        for engine in {id(each): each for engines in found for each in engines.values()}.values():
            refuse_settings(engine, engine.configuration)
        return found[0]

    def close_lab(self) -> None:
        """Close the lab on each kernel, and keep the lab processes for the next ones.

        Raises:
            InternalError: something of a lab was left, or the lab process is gone.
        """
        for process in self._processes.values():
            if process.is_open:
                seconds = _CLOSE_SECONDS + self._namespaces * _CLOSE_SECONDS_A_NETNS
                process.request(Close(), Deadline.after(seconds))

    def close(self, *, checked: bool = False) -> None:
        """End the lab processes. A second call does nothing.

        Args:
            checked: first close its lab and check that nothing of any of its labs is left.

        Raises:
            InternalError: something was left, or the lab process is gone; only where ``checked``.
        """
        try:
            if checked:
                self.close_lab()
        finally:
            with ExitStack() as stack:
                for process in self._processes.values():
                    stack.callback(process.close)
                self._processes = {}


SessionMaker = Callable[..., Session]
"""Makes the session of a verb: ``Session`` itself, or what a caller of ``proxylab.cli.main`` gives instead."""


def needed_capabilities(choice: EngineChoice, scenario: Scenario) -> tuple[str, ...]:
    """The capabilities that the engine's mode needs, and those in which the scenario runs engines."""
    modes = [mode_of(choice.name), *sorted(scenario.named_modes)]
    needed = [name for mode in modes for name in MODES[mode].needs]
    if choice.upstream is not None or scenario.names_proxy(KUBE_PROXY):
        needed += [name for mode in modes for name in MODES[mode].needs_of_kube_proxy]
    return tuple(dict.fromkeys(map(str, needed)))


def real_control_plane(scenario: Scenario, engine: EngineChoice) -> str:
    """Which real control plane serves the lab's API, in the words of ``--control-plane``; empty for the lab's own."""
    asked = engine.control_plane if engine.control_plane != EMBEDDED else ""
    match scenario.control_plane:
        case ControlPlaneKind.REAL:
            return asked or REAL
        case ControlPlaneKind.EMBEDDED:
            return ""
    return asked


def _with_programs(scenario: Scenario, name_server: str) -> tuple[Scenario, Mapping[str, str]]:
    """The scenario with its name server chosen, and the path of each program that it needs, by name.

    ``name_server`` is the value of ``--name-server``, or empty. Raises ``CapabilityError``.
    """
    chosen = NameServer.COREDNS if name_server not in ("", NameServer.EMBEDDED) else NameServer.EMBEDDED
    if not scenario.has_names or (scenario.name_server.server or chosen) is NameServer.EMBEDDED:
        return scenario, {}
    named = name_server if chosen is NameServer.COREDNS else ""
    found = find_coredns(named, coredns_sources().cache)
    served = replace(scenario, name_server=replace(scenario.name_server, server=NameServer.COREDNS))
    return served, {NameServer.COREDNS.value: str(found.path)}


def _needing_writes(scenario: Scenario) -> Iterator[str]:
    """What a scenario has that needs a real control plane."""
    for step in scenario.steps:
        if step.change.kubectl:
            yield f"{step.position}: change.kubectl: the lab's own control plane takes no writes"
    for node in scenario.nodes:
        if not node.present:
            what = "the lab's own control plane has all nodes from the beginning"
            yield f"{node.position}: nodes.{node.name}.present: {what}"
