"""``cases``: a scenario with a matrix becomes one scenario for every combination of its axes.

The module owns the id of each case, picks the exception that holds in it, and checks the matrix and every ``except``.
The axis ``family`` multiplies probes and streams, not labs: in a lab with both families, a probe to a Service, pod or
host dials each of them in turn. A probe that names an address has that address's family.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import TypeVar

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPNetwork
from proxylab.cluster.configuration import TERMINATING_MODES, Mode, ProxyConfiguration
from proxylab.scenario.document import Location, Problems, listed, shown
from proxylab.scenario.matrix import EngineFailure, Exceptional, Matrix, When, axis_names, network_axes, value_text
from proxylab.scenario.model import MatrixCase, Scenario
from proxylab.scenario.network import Hairpin, InterNode, Network, PodNetwork
from proxylab.scenario.node_engines import EngineChange, NodeEngine
from proxylab.scenario.nodes import LabNode
from proxylab.scenario.parts import Parts
from proxylab.scenario.probes import AddressTarget, Probe, ServiceTarget, Stream
from proxylab.scenario.steps import Step, StepException, StepExpect
from proxylab.scenario.syntax import sysctl_fault
from proxylab.scenario.versions import Version
from proxylab.scenario.words import Manner

Located = TypeVar("Located", IPAddress, IPNetwork)
Sent = TypeVar("Sent", Probe, Stream)
Said = TypeVar("Said")
OfNode = TypeVar("OfNode", NodeEngine, EngineChange)

_FAMILY = "family"
_KERNEL = "kernel"
MOST_CASES = 200


def cases(scenario: Scenario, mode: str, version: Version | None = None) -> tuple[Scenario, ...]:
    """One scenario for each combination of the axes, with the expectations for a proxy of that mode and version.

    If the version is unknown, no exception for versions holds. Of a probe's or step's exceptions, the one that holds
    is left: it gives the reason for the expectation.

    The names of probes end in their case's id: ``a pod reaches itself[ipv4-none]``. The values of an id are in the
    order of the axes: families, family, pod network, sysctls, mode, feature gates. The names of a step's probes begin
    with the step's name. A scenario whose axis ``mode`` lacks this mode has no case.
    """
    return tuple(_InCase(scenario, axes, mode, version).scenario() for axes in _combinations(scenario, mode))


def kernel_of(case: Scenario, kernel: str) -> str:
    """The kernel of a case's lab: what its axis ``kernel`` says, or else ``kernel``."""
    return case.case.axes.get(_KERNEL, kernel)


def _combinations(scenario: Scenario, mode: str) -> Iterator[dict[str, str]]:
    of_labs = {axis: values for axis, values in scenario.matrix.axes.items() if axis != _FAMILY}
    for values in product(*of_labs.values()):
        axes = dict(zip(of_labs, values, strict=True))
        if axes.get("mode", mode) == mode:
            yield axes


class _InCase:
    """One case of a scenario: which exceptions hold in it, and over which families it dials."""

    def __init__(self, written: Scenario, axes: Mapping[str, str], mode: str, version: Version | None) -> None:
        self._written = written
        self._axes = axes
        self._version = version
        self._network = network = _network(written.network, axes)
        self._order = tuple(written.matrix.axes)
        self._families = tuple(family for family in written.matrix.family if family in network.families)
        self._conditions = {**network_axes(network), **axes, "mode": mode}

    def scenario(self) -> Scenario:
        """The case, a scenario without matrix."""
        written, network = self._written, self._network
        sysctls = {axis: value for axis, value in self._axes.items() if axis.startswith("net.")}
        gates = {axis: self._axes[axis] == "true" for axis in written.matrix.feature_gates}
        return replace(
            written,
            network=network,
            nodes=tuple(_node(node, sysctls, network.families) for node in written.nodes),
            pods=tuple(replace(pod, addresses=_of(network.families, pod.addresses)) for pod in written.pods),
            load_balancers=tuple(
                replace(each, pool=_of(network.families, each.pool)) for each in written.load_balancers
            ),
            probes=self._probes(written.probes),
            streams=tuple(each for stream in written.streams for each in self._stream(stream)),
            steps=tuple(self._step(each, gates) for each in written.steps),
            failures=tuple(each for each in written.failures if self._holds(each, None)),
            proxy=_with_gates(written.proxy or ProxyConfiguration(), gates) if gates else written.proxy,
            engines={node: _of_gates(each, gates) for node, each in written.engines.items()},
            matrix=Matrix(),
            case=MatrixCase(
                id=self._id(None),
                axes=self._axes,
                ids=tuple(map(self._id, self._families)),
                mode=self._conditions["mode"],
            ),
        )

    def _id(self, family: Family | None) -> str:
        """The ending of names: the case, and in a lab with two families the family that the probe dials."""
        axes = dict(self._axes)
        if family is not None and len(self._network.families) > 1:
            axes[_FAMILY] = family
        return "-".join(_label(axis, axes[axis]) for axis in self._order if axis in axes)

    def _holds(self, exception: EngineFailure | Exceptional | StepException, family: Family | None) -> bool:
        versions = exception.when.version
        if versions is not None and (self._version is None or self._version not in versions):
            return False
        conditions = self._conditions if family is None else {**self._conditions, _FAMILY: str(family)}
        return exception.when.values.items() <= conditions.items()

    def _over_families(self, sent: Sent) -> Iterator[tuple[Family | None, Sent]]:
        """The probe or stream, once for each family; as the author wrote it if ``family`` is not an axis."""
        target, chosen = sent.target, sent.source.address
        if chosen is None and isinstance(target, AddressTarget | ServiceTarget):
            chosen = target.address
        families = self._families if chosen is None else (Family.of(chosen),)
        if not isinstance(target, AddressTarget) and target.family is not None:
            families = (target.family,)
        if not self._families:
            yield None, sent
            return
        for family in families:
            over = target if isinstance(target, AddressTarget) else replace(target, family=family)
            yield family, replace(sent, target=over)

    def _probes(self, probes: Iterable[Probe]) -> tuple[Probe, ...]:
        return tuple(self._probe(each, family) for probe in probes for family, each in self._over_families(probe))

    def _probe(self, probe: Probe, family: Family | None) -> Probe:
        exception = next((each for each in probe.exceptions if self._holds(each, family)), None)
        manner = probe.send.manner
        if manner is Manner.EITHER:
            manner = Manner.CONNECT if self._conditions["mode"] in TERMINATING_MODES else Manner.PACKET
        return replace(
            probe,
            name=_name(probe.name, self._id(family)),
            send=replace(probe.send, manner=manner),
            expect=exception.expect if exception else probe.expect,
            exceptions=(exception,) if exception else (),
        )

    def _stream(self, stream: Stream) -> Iterator[Stream]:
        for family, each in self._over_families(stream):
            ambiguous = family is not None and len(self._network.families) > 1
            yield replace(each, name=_name(stream.name, _label(_FAMILY, str(family)) if ambiguous else ""))

    def _step(self, step: Step, gates: Mapping[str, bool]) -> Step:
        exception = next((each for each in step.exceptions if self._holds(each, None)), None)
        return replace(
            step,
            name=_name(step.name, self._id(None)),
            change=replace(
                step.change,
                engines={node: _of_gates(each, gates) for node, each in step.change.engines.items()},
            ),
            until=step.until and replace(step.until, backends=dict(self._of_streams(step.until.backends))),
            expect=self._expected(exception.expect if exception else step.expect),
            probes=self._probes(_at(step, probe) for probe in step.probes),
            exceptions=(exception,) if exception else (),
        )

    def _expected(self, expect: StepExpect) -> StepExpect:
        return replace(
            expect,
            streams=dict(self._of_streams(expect.streams)),
            positions={**expect.positions, **dict(self._of_streams(expect.positions))},
        )

    def _of_streams(self, said: Mapping[str, Said]) -> Iterator[tuple[str, Said]]:
        """The values by stream, under the names that the streams have in the case."""
        for stream in self._written.streams:
            if stream.name in said:
                yield from ((each.name, said[stream.name]) for each in self._stream(stream))


def _with_gates(configuration: ProxyConfiguration, gates: Mapping[str, bool]) -> ProxyConfiguration:
    return replace(configuration, feature_gates={**configuration.feature_gates, **gates})


def _of_gates(engine: OfNode, gates: Mapping[str, bool]) -> OfNode:
    """A node's engine with the case's gates in its own configuration, if it has one."""
    return engine if engine.settings is None else replace(engine, settings=_with_gates(engine.settings, gates))


def _label(axis: str, value: str) -> str:
    """A value in an id, with the name of its sysctl or gate. pytest separates parts of ids by / and ::."""
    named = axis.startswith("net.") or axis[:1].isupper()
    text = f"{axis.rpartition('.')[2]}={value}" if named else value.lower()
    return text.replace("/", ".").replace("::", ":")


def _network(network: Network, axes: Mapping[str, str]) -> Network:
    families = tuple(map(Family, axes["families"].split("+"))) if "families" in axes else network.families
    return replace(
        network,
        families=families,
        pod_network=PodNetwork(axes.get("podNetwork", network.pod_network)),
        inter_node=InterNode(axes.get("interNode", network.inter_node)),
        hairpin=Hairpin(axes.get("hairpin", network.hairpin)),
        routed=tuple(each for each in network.routed if Family.of(each.network) in families),
        pod_cidrs=_in_order(families, network.pod_cidrs),
        service_cidrs=_in_order(families, network.service_cidrs),
        further_service_cidrs=tuple(each for each in network.further_service_cidrs if Family.of(each) in families),
        node_cidrs=_in_order(families, network.node_cidrs),
        outside_cidrs=_in_order(families, network.outside_cidrs),
    )


def _node(node: LabNode, sysctls: Mapping[str, str], families: Collection[Family]) -> LabNode:
    return replace(
        node,
        sysctls={**node.sysctls, **sysctls},
        addresses=tuple(each for each in node.addresses if Family.of(each.interface) in families),
        routes=tuple(each for each in node.routes if Family.of(each.destination) in families),
        conntrack=tuple(each for each in node.conntrack if Family.of(each.source.address) in families),
        daemons=tuple(each for each in node.daemons if each.address is None or Family.of(each.address) in families),
    )


def _of(families: Collection[Family], addresses: Iterable[Located]) -> tuple[Located, ...]:
    """The addresses or networks of the case's families."""
    return tuple(each for each in addresses if Family.of(each) in families)


def _in_order(families: Iterable[Family], networks: Sequence[IPNetwork]) -> tuple[IPNetwork, ...]:
    """The networks of the case's families, in the order of the families."""
    return tuple(each for family in families for each in _of((family,), networks))


def _at(step: Step, probe: Probe) -> Probe:
    """A step's probe under its full name: ``scaled to zero: ClusterIP rejects``."""
    return replace(probe, name=f"{step.name.rstrip(':')}: {probe.name}")


def _name(name: str, ending: str) -> str:
    return f"{name}[{ending}]" if ending else name


def check_conditions(parts: Parts, problems: Problems) -> None:
    """Note unknown axes, too many cases, and exceptions that never hold or that contradict each other."""
    spec, possible = parts.location["spec"], _values(parts)
    if parts.matrix is not None:
        _check_axes(spec["matrix"], axis_names(), problems)
        axes = parts.matrix.axes
        if spec["matrix"].exists and not axes:
            problems.add(
                spec["matrix"].key, "has no axis", allowed=f"allowed: {listed(axis_names())}, and sysctls below net."
            )
        count = prod(len(values) for axis, values in axes.items() if axis != "family")
        if count > MOST_CASES:
            problems.add(spec["matrix"].key, f"this makes {count} cases", allowed=f"allowed: {MOST_CASES}")
        _check_family(parts, axes, spec["matrix"]["family"], problems)
    _refuse_family(parts.failures, spec["except"], "one engine serves both families", problems)
    _check_exceptions(possible, parts.failures, spec["except"], problems)
    for index, probe in enumerate(parts.probes):
        _check_exceptions(possible, probe.exceptions, spec["probes"][index]["except"], problems)
    for number, step in enumerate(parts.steps):
        at = spec["steps"][number]
        exceptions = step.whole.exceptions if step.whole else ()
        _refuse_family(exceptions, at["except"], "a step happens once for both families", problems)
        _check_exceptions(possible, exceptions, at["except"], problems)
        for index, probe in enumerate(step.probes):
            _check_exceptions(possible, probe.exceptions, at["probes"][index]["except"], problems)


def _check_family(parts: Parts, axes: Mapping[str, tuple[str, ...]], location: Location, problems: Problems) -> None:
    """Note a family to dial that no lab of the scenario has."""
    if parts.network is None:
        return
    there = axes.get("families", (value_text(parts.network.families),))
    known = {family for families in there for family in families.split("+")}
    for index, family in enumerate(axes.get("family", ())):
        if family not in known:
            what = f"no lab of the scenario has {family}"
            problems.add(location[index].spot, what, allowed=f"network.families: {listed(there)}")


def _refuse_family(
    exceptions: Iterable[EngineFailure | StepException | None],
    location: Location,
    what: str,
    problems: Problems,
) -> None:
    """Note exceptions for one family in a step or an engine failure, which cover both families."""
    for index, exception in enumerate(exceptions):
        if exception is not None and exception.when.family is not None:
            problems.add(location[index]["when"]["family"].key, what, allowed="move the exception to a probe")


def _check_axes(location: Location, axes: Iterable[str], problems: Problems) -> None:
    for key in map(str, location.keys):
        if key not in axes and sysctl_fault(key):
            allowed = f"allowed: {listed(axes)}, and sysctls below net."
            problems.add(
                location[key].key, f"{shown(key)} is not an axis", allowed=allowed, word=key, known=tuple(axes)
            )


def _check_exceptions(
    possible: Mapping[str, tuple[str, ...]] | None,
    exceptions: Iterable[EngineFailure | Exceptional | StepException | None],
    location: Location,
    problems: Problems,
) -> None:
    checked: list[tuple[Location, When]] = []
    for index, exception in enumerate(exceptions):
        when = location[index]["when"]
        _check_axes(when, (*axis_names(), "version"), problems)
        if exception is None:
            continue
        conditions, version = exception.when.values, exception.when.version
        if not conditions and version is None:
            problems.add(when.spot, "always holds", allowed="add a condition, or change expect instead")
        if possible is not None:
            for axis, value in conditions.items():
                at = when["featureGates"][axis] if axis in exception.when.feature_gates else when[axis]
                _check_condition(axis, value, possible.get(axis, () if axis[:1].isupper() else None), at, problems)
        for other, earlier in checked:
            alike = all(earlier.values.get(axis, value) == value for axis, value in conditions.items())
            if alike and (version is None or earlier.version is None or version.meets(earlier.version)):
                line = other.key.position.line
                what = f"overlaps the exception in line {line}: both hold in one case"
                problems.add(when.spot, what, allowed="exceptions must exclude each other")
                break
        checked.append((location[index], exception.when))


def _values(parts: Parts) -> dict[str, tuple[str, ...]] | None:
    """The values that each axis has in some case; ``None`` if they are unknown."""
    if parts.network is None or parts.matrix is None:
        return None
    fixed = {axis: (value,) for axis, value in network_axes(parts.network).items()}
    return {**fixed, "family": (), "kernel": (), "mode": tuple(Mode), **parts.matrix.axes}


def _check_condition(
    axis: str, value: str, values: tuple[str, ...] | None, location: Location, problems: Problems
) -> None:
    if values == () or (values is None and not sysctl_fault(axis)):
        problems.add(location.key, "is not an axis of the matrix", allowed="add it to spec.matrix")
    elif values is not None and value not in values:
        what = f"no case has {axis} {shown(value)}"
        problems.add(location.spot, what, allowed=f"allowed: {listed(values)}")
