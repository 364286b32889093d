"""A checked scenario: the frozen object that ``scenario.load`` returns and every other package reads.

It holds what the author wrote, with defaults; allocated addresses are in the plan. Each part is declared in the module
of its keys.
"""

from collections.abc import Mapping
from functools import cached_property

from msgspec import field

from proxylab.cluster.configuration import Mode, ProxyConfiguration
from proxylab.cluster.objects import EndpointSlice, Namespace, Service, Unstructured
from proxylab.encoding import Record
from proxylab.scenario.dns import Dns
from proxylab.scenario.matrix import EngineFailure, Matrix, Requirements
from proxylab.scenario.network import Network
from proxylab.scenario.node_engines import EngineWords, NodeEngine
from proxylab.scenario.nodes import LabNode
from proxylab.scenario.pods import Host, LoadBalancer, PodGroup
from proxylab.scenario.probes import (
    Probe,
    ServiceTarget,
    Stream,
    Target,
)
from proxylab.scenario.steps import (
    Step,
)
from proxylab.scenario.words import ControlPlaneKind, Frontend, Position


class MatrixCase(Record, frozen=True, kw_only=True):
    """One combination of the axes of a matrix.

    ``id`` is empty if the scenario has no matrix. ``axes`` holds the values by axis, in the form that reports print:
    ``{"families": "IPv4+IPv6", "net.ipv4.ip_forward": "1"}``. The axis ``family`` makes no cases of its own: ``ids``
    are the endings of the probes' names, one for each family that they dial. ``mode`` is the proxies' mode; empty in a
    scenario that is no case.
    """

    id: str = ""
    axes: Mapping[str, str] = field(default_factory=dict)
    ids: tuple[str, ...] = ()
    mode: str = ""

    def words(self, name: str) -> str:
        """The name of a probe or step as the author wrote it, without the case's ending."""
        endings = (f"[{each}]" for each in (*self.ids, self.id) if each)
        return name.removesuffix(next(filter(name.endswith, endings), ""))


class Scenario(Record, frozen=True, kw_only=True, dict=True):
    """One ``*.lab.yaml`` file. Services are as written, without the addresses and ports that the API server allocates.

    ``slices`` are the author's EndpointSlices; they replace the derived slices of their Services. ``further`` are the
    objects that the API only serves. A scenario with a ``matrix`` stands for all its cases; ``cases`` expands it into
    one scenario for each, with its ``case``. ``service_positions`` are the places of ``services``, in the same order.
    ``proxy`` is ``None`` if the file holds no configuration. With ``dns`` the lab has a name server even if no probe
    dials a name; ``name_server`` says which. ``failures`` name engines that cannot program the scenario; in an
    expanded case, the one that holds there, if any. ``control_plane`` serves the API, or else what the user chooses.
    ``engines`` are those of nodes that differ from the engine that the user chooses.
    """

    file: str
    name: str
    description: str = ""
    links: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    network: Network
    nodes: tuple[LabNode, ...]
    pods: tuple[PodGroup, ...]
    hosts: tuple[Host, ...]
    services: tuple[Service, ...]
    service_positions: tuple[Position, ...] = ()
    probes: tuple[Probe, ...]
    notes: tuple[str, ...] = ()
    slices: tuple[EndpointSlice, ...] = ()
    further: tuple[Namespace | Unstructured, ...] = ()
    load_balancers: tuple[LoadBalancer, ...] = ()
    streams: tuple[Stream, ...] = ()
    steps: tuple[Step, ...] = ()
    failures: tuple[EngineFailure, ...] = ()
    dns: bool = False
    name_server: Dns = Dns()
    control_plane: ControlPlaneKind | None = None
    matrix: Matrix = Matrix()
    requires: Requirements = Requirements()
    case: MatrixCase = field(default_factory=MatrixCase)
    proxy: ProxyConfiguration | None = None
    engines: Mapping[str, NodeEngine] = field(default_factory=dict)

    @property
    def machines(self) -> tuple[LabNode | Host, ...]:
        """The nodes, then the outside hosts."""
        return (*self.nodes, *self.hosts)

    @property
    def all_probes(self) -> tuple[Probe, ...]:
        """Its own probes and those of its steps, in the order in which the lab sends them."""
        return (*self.probes, *(probe for step in self.steps for probe in step.probes))

    @property
    def judged(self) -> tuple[Probe | Step, ...]:
        """Everything that gets a verdict, in order: the probes; then for each step its probes and its expectations."""
        steps = ((*step.probes, *((step,) if step.expect.says_anything else ())) for step in self.steps)
        return (*self.probes, *(each for step in steps for each in step))

    @property
    def named_modes(self) -> frozenset[Mode]:
        """The modes that it gives nodes, at its beginning or in steps."""
        said = [each.mode for each in self.engines.values()]
        said += [change.mode for step in self.steps for change in step.change.engines.values()]
        return frozenset(map(Mode, filter(None, said)))

    def names_proxy(self, proxy: str) -> bool:
        """Whether it names that proxy for a node, at its beginning or in a step."""
        said = [each.engine for each in self.engines.values()]
        said += [change.engine for step in self.steps for change in step.change.engines.values()]
        return any(words is not None and words.proxy == proxy for words in map(EngineWords.read, said))

    def modes_after(self, mode: str, made: int) -> Mapping[str, str]:
        """The mode of each node's proxy after that many steps; ``mode`` is that of nodes of which it says nothing."""
        modes = {node.name: mode for node in self.nodes}
        modes |= {node: each.mode for node, each in self.engines.items() if each.mode}
        for step in self.steps[:made]:
            modes |= {node: change.mode for node, change in step.change.engines.items() if change.mode}
        return modes

    @cached_property
    def has_names(self) -> bool:
        """Whether the lab has a name server: the author sets ``dns``, or a probe or stream dials a name."""
        dialled: list[Target] = [each.target for each in self.all_probes]
        dialled += [each.target for each in self.streams]
        return self.dns or any(isinstance(each, ServiceTarget) and each.via is Frontend.DNS_NAME for each in dialled)

    @property
    def foretold(self) -> int:
        """How many steps lead to a cluster that the scenario foretells: those before the first that runs kubectl."""
        return next((number for number, step in enumerate(self.steps) if step.change.kubectl), len(self.steps))

    def foretells(self, probe: Probe) -> bool:
        """Whether the scenario alone says what the probe meets; of what kubectl makes, only the lab can tell."""
        return self.steps_before(probe) <= self.foretold

    def steps_before(self, judged: Probe | Step) -> int:
        """How many steps the lab has made when it sends that probe, or judges that step."""
        if (known := self._steps_before.get(id(judged))) is not None:
            return known
        if isinstance(judged, Step):
            return self.steps.index(judged) + 1
        return next((number for number, step in enumerate(self.steps, 1) if judged in step.probes), 0)

    @cached_property
    def _steps_before(self) -> dict[int, int]:
        """The same by ``id``, as a comparison with each probe before it would take the square of their number."""
        before = {id(probe): 0 for probe in self.probes}
        for number, step in enumerate(self.steps, 1):
            before |= dict.fromkeys(map(id, (step, *step.probes)), number)
        return before
