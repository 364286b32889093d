"""A scenario with a matrix becomes one scenario for every case.

Owns: ``cases``: the product of the axes, the id of each case, and which exception holds in it.
Must not: know engines; whoever runs a scenario says the mode.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TypeVar

from lab.ip import Family, IPAddress, IPNetwork
from lab.scenario.model import Case, EngineFailure, Exceptional, Network, Node, Probe, Scenario, Step, StepException
from lab.scenario.versions import Version

__all__ = ["cases"]

Located = TypeVar("Located", IPAddress, IPNetwork)


def cases(scenario: Scenario, mode: str, version: Version | None = None) -> tuple[Scenario, ...]:
    """The scenario once for each combination of its axes, with what is expected in a proxy of that mode and version.

    An exception for versions holds in no proxy whose version is not known.

    The names of probes end in their case's id: ``a pod reaches itself[ipv4-none]``. The values of an id stand in the
    order of the axes: families, wiring, sysctls, mode. The names of a step's probes begin with its own. A scenario
    whose matrix leaves ``mode`` out has no case.
    """
    return tuple(_in_case(scenario, axes, mode, version) for axes in _combinations(scenario, mode))


def _combinations(scenario: Scenario, mode: str) -> Iterator[dict[str, str]]:
    names = [axis.name for axis in scenario.matrix]
    for values in product(*(axis.values for axis in scenario.matrix)):
        axes = dict(zip(names, values, strict=True))
        if axes.get("mode", mode) == mode:
            yield axes


def _in_case(scenario: Scenario, axes: Mapping[str, str], mode: str, version: Version | None) -> Scenario:
    case = Case(id="-".join(_label(axis, value) for axis, value in axes.items()), axes=axes)
    network = _network(scenario.network, axes)
    sysctls = {axis: value for axis, value in axes.items() if axis.startswith("net.")}
    axes_and_mode = {
        "families": "+".join(network.families),
        "podNetwork": network.pod_network,
        "interNode": network.inter_node,
        "hairpin": network.hairpin,
        **axes,
        "mode": mode,
    }

    def holds(exception: EngineFailure | Exceptional | StepException) -> bool:
        if exception.version is not None and (version is None or version not in exception.version):
            return False
        return exception.when.items() <= axes_and_mode.items()

    return replace(
        scenario,
        network=network,
        nodes=tuple(_node(node, sysctls, network.families) for node in scenario.nodes),
        pods=tuple(replace(pod, addresses=_of(network.families, pod.addresses)) for pod in scenario.pods),
        load_balancers=tuple(replace(each, pool=_of(network.families, each.pool)) for each in scenario.load_balancers),
        probes=tuple(_probe(probe, holds, case) for probe in scenario.probes),
        steps=tuple(_step(step, holds, case) for step in scenario.steps),
        failures=tuple(filter(holds, scenario.failures)),
        matrix=(),
        case=case,
    )


def _label(axis: str, value: str) -> str:
    """A value in an id: words speak for themselves, a sysctl needs its name. pytest divides ids by / and ::."""
    text = f"{axis.rpartition('.')[2]}={value}" if axis.startswith("net.") else value.lower()
    return text.replace("/", ".").replace("::", ":")


def _network(network: Network, axes: Mapping[str, str]) -> Network:
    families = tuple(map(Family, axes["families"].split("+"))) if "families" in axes else network.families
    return replace(
        network,
        families=families,
        pod_network=axes.get("podNetwork", network.pod_network),
        inter_node=axes.get("interNode", network.inter_node),
        hairpin=axes.get("hairpin", network.hairpin),
        routed=tuple(each for each in network.routed if Family.of(each.network) in families),
        pod_cidrs=_in_order(families, network.pod_cidrs),
        service_cidrs=_in_order(families, network.service_cidrs),
        node_cidrs=_in_order(families, network.node_cidrs),
        outside_cidrs=_in_order(families, network.outside_cidrs),
    )


def _node(node: Node, sysctls: Mapping[str, str], families: Collection[Family]) -> Node:
    return replace(
        node,
        sysctls={**node.sysctls, **sysctls},
        addresses=tuple(each for each in node.addresses if Family.of(each.interface) in families),
        routes=tuple(each for each in node.routes if Family.of(each.destination) in families),
        daemons=tuple(each for each in node.daemons if each.address is None or Family.of(each.address) in families),
    )


def _of(families: Collection[Family], addresses: Iterable[Located]) -> tuple[Located, ...]:
    """The addresses or networks of the case's families: the others are for other cases."""
    return tuple(each for each in addresses if Family.of(each) in families)


def _in_order(families: Iterable[Family], networks: Sequence[IPNetwork]) -> tuple[IPNetwork, ...]:
    """The networks of the case's families, the primary one's first."""
    return tuple(each for family in families for each in _of((family,), networks))


def _probe(probe: Probe, holds: Callable[[Exceptional], bool], case: Case) -> Probe:
    exception = next(filter(holds, probe.exceptions), None)
    return replace(
        probe,
        name=_name(probe.name, case),
        expect=exception.expect if exception else probe.expect,
        exceptions=(),
    )


def _step(step: Step, holds: Callable[[Exceptional | StepException], bool], case: Case) -> Step:
    exception = next(filter(holds, step.exceptions), None)
    return replace(
        step,
        name=_name(step.name, case),
        expect=exception.expect if exception else step.expect,
        probes=tuple(_probe(_at(step, probe), holds, case) for probe in step.probes),
        exceptions=(),
    )


def _at(step: Step, probe: Probe) -> Probe:
    """A probe under the name that it has among all: ``scaled to nothing: a pod is turned away``."""
    return replace(probe, name=f"{step.name.rstrip(':')}: {probe.name}")


def _name(name: str, case: Case) -> str:
    return f"{name}[{case.id}]" if case.id else name
