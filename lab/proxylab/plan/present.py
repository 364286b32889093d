"""A lab as it is now, by its plan and its objects: people and controllers have made pods and Services since it began.

What its scenario says of them is gone: the judge knows each pod by its address, and each Service as the API has it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.cluster.objects import (
    EndpointSlice,
    KubeObject,
    Namespace,
    Node,
    ObjectKey,
    Pod,
    Service,
    Unstructured,
)
from proxylab.plan.assembly import Assembly, assemble_in
from proxylab.plan.cluster_timeline import ClusterMoment
from proxylab.plan.expected_sources import ExpectedSources
from proxylab.plan.model import Plan, PodPlacement
from proxylab.plan.node_ports import NodePortAddresses
from proxylab.plan.resolved import ResolvedProbe
from proxylab.plan.stream_ends import streams_after
from proxylab.scenario.pods import ListeningPort, PodGroup
from proxylab.scenario.probes import Probe
from proxylab.scenario.services import DEFAULT_NAMESPACE
from proxylab.scenario.stand_for import Members, with_singles
from proxylab.scenario.steps import Step
from proxylab.scenario.words import Position


def at_present(assembly: Assembly, made: int, plan: Plan, objects: Sequence[KubeObject]) -> Assembly:
    """The assembly of the lab as it is now: without probes, and with no step and no stream to come.

    ``made`` is how many steps of the scenario have been made.
    """
    scenario = assembly.scenario
    placed = dict(_placed(plan, (each for each in objects if isinstance(each, Pod))))
    groups = {name: group for group in scenario.pods for name in group.pod_names}
    position = Position(scenario.file, 1, 1)
    # Another pod may have the name of one that is gone.
    own = (replace(each, present=any(name in placed for name in each.pod_names)) for each in scenario.pods)
    new = (_group(plan, plan_of, pod, position) for plan_of, pod in placed.values() if plan_of.name not in groups)
    services = tuple(each for each in objects if isinstance(each, Service))
    now = replace(
        scenario,
        pods=(*own, *new),
        services=services,
        service_positions=(position,) * len(services),
        dns=scenario.has_names,
        probes=(),
        steps=(),
        streams=(),
    )
    moment = replace(
        assembly.timeline[made],
        scenario=now,
        nodes={each.name: each for each in objects if isinstance(each, Node)},
        pods={name: pod for name, (_, pod) in placed.items()},
        services=services,
        slices={each.key: each for each in objects if isinstance(each, EndpointSlice)},
        further={each.key: each for each in objects if isinstance(each, Namespace | Unstructured)},
        gone=frozenset(each.name for each in plan.pods if each.name not in placed),
    )
    return assemble_in(now, plan, [moment])


def with_probe(now: Assembly, probe: Probe) -> tuple[Assembly, Probe]:
    """The assembly of ``at_present`` with a probe, in which the names of groups and workloads stand for pods.

    Raises ``ScenarioError`` where the probe names something that is not there.
    """
    sent = with_singles(probe, _members(now))
    return now.with_probes((sent,)), sent


def streams_at_present(
    assembly: Assembly, now: Assembly, seen: Sequence[ClusterMoment], step: Step
) -> tuple[tuple[ResolvedProbe, ...], Mapping[str, Mapping[str, IPAddress]]]:
    """The streams of a scenario at the end of a step that it does not foretell, and the sources that backends see.

    ``now`` is its lab then, and ``seen`` is the cluster after each step that the scenario does not foretell.
    """
    foretold = assembly.scenario.foretold
    streams = assembly.streams_by_step[foretold - 1] if foretold else assembly.streams
    moments = [assembly.timeline[foretold], *seen]
    streams = streams_after(streams, moments, NodePortAddresses(now.scenario, now.plan))
    sources, services = ExpectedSources(now.plan), now.timeline[-1].services
    of_streams = {
        each.name: sources.of_stream(step, each.name, each, services)
        for each in streams
        if each.name in step.expect.streams
    }
    sources.close()
    return streams, of_streams


def _members(now: Assembly) -> Members:
    """The pods of each group and workload, by its name, or NAMESPACE/NAME for a workload of another namespace."""
    there = now.timeline[-1].pods
    groups = {each.name: each.pod_names for each in now.scenario.pods if each.replicas is not None}
    found = {name: tuple(each for each in pods if each in there) for name, pods in groups.items()}
    for name, pod in there.items():
        if own := _workload_of(pod):
            of = own if pod.namespace == DEFAULT_NAMESPACE else f"{pod.namespace}/{own}"
            found[of] = (*found.get(of, ()), name)
    return found


def _workload_of(pod: Pod) -> str:
    """The name of the workload that has made a pod, by the labels that its controller adds; empty without any."""
    labels = pod.labels
    if "pod-template-hash" in labels:  # Deployment-hash-suffix
        return "-".join(pod.name.split("-")[:-2])
    if "controller-revision-hash" in labels:  # StatefulSet-ordinal, DaemonSet-suffix
        return pod.name.rpartition("-")[0]
    return labels.get("batch.kubernetes.io/job-name", "")


def name_in_plan(assembly: Assembly, key: ObjectKey) -> str:
    """The name that the plan has for a pod of the API; empty for one that is not in the lab."""
    found = (name for name, pod in assembly.timeline[-1].pods.items() if pod.key == key)
    return next(found, "")


def _placed(plan: Plan, pods: Iterable[Pod]) -> Iterator[tuple[str, tuple[PodPlacement, Pod]]]:
    """The pods that the plan has, by their names there; a pod in its node's network shares the node's address."""
    on_hosts = {each.name: each for each in plan.pods if each.namespace == each.node}
    by_address = {each.addresses[0]: each for each in plan.pods if each.addresses and each.name not in on_hosts}
    for pod in pods:
        if pod.host_network:  # the second of one name has its namespace behind it (``plan.added_pod``)
            names = (f"{pod.name}.{pod.namespace}", pod.name)
            found = next((on_hosts[each] for each in names if each in on_hosts), None)
        else:
            found = by_address.get(pod.addresses[0])
        if found is not None:
            yield found.name, (found, pod)


def _group(plan: Plan, placement: PodPlacement, pod: Pod, position: Position) -> PodGroup:
    """A pod that was added, as a scenario would have it."""
    names = {(each.protocol, each.port): each.name for each in pod.ports}
    there = plan.namespace(placement.namespace).listeners
    listening = {(each.protocol, each.port) for each in there if each.name == placement.name}
    return PodGroup(
        name=placement.name,
        nodes=(placement.node,),
        namespace=pod.namespace,
        labels=pod.labels,
        ports=tuple(
            ListeningPort(name=names.get((protocol, port), ""), protocol=protocol, port=port)
            for protocol, port in sorted(listening)
        ),
        ready=pod.ready,
        terminating=pod.terminating,
        addresses=() if pod.host_network else placement.addresses,
        host_network=pod.host_network,
        position=position,
    )
