"""The moment and the questions of a scenario: what its timeline and its resolved probes say, as the oracle asks it."""

from collections.abc import Mapping

from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.cluster.objects import EndpointSlice
from proxylab.oracle.answers import FlowQuestion
from proxylab.oracle.moment import Moment
from proxylab.oracle.setting import ProxySetting
from proxylab.plan.cluster_timeline import Cluster
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.versions import Version
from proxylab.scenario.words import Mode

__all__ = ["moment_of", "question_of"]


def moment_of(cluster: Cluster, plan: Plan, mode: Mode, version: Version) -> Moment:
    """The moment of a scenario's cluster, with proxies of that mode and version in all nodes."""
    scenario, namespaces = cluster.scenario, {pod.name: pod.namespace for pod in plan.pods}
    nodes: Mapping[str, None] = dict.fromkeys(node.name for node in scenario.nodes)
    return Moment(
        services=cluster.services,
        slices=(each for each in cluster.objects if isinstance(each, EndpointSlice)),
        nodes=cluster.nodes.values(),
        plan=plan,
        setting=ProxySetting(mode=mode, version=version, configuration=scenario.proxy or ProxyConfiguration()),
        pod_networks=scenario.network.pod_cidrs,
        service_networks=(*scenario.network.service_cidrs, *scenario.network.further_service_cidrs),
        gone={namespaces[name] for name in cluster.gone if name in namespaces} - nodes.keys(),
    )


def question_of(resolved: ResolvedProbe) -> FlowQuestion:
    """The question of a resolved probe's first flow."""
    sender = resolved.sender
    return FlowQuestion(
        sender=sender.namespace,
        source=sender.address,
        destination=resolved.destination,
        port=resolved.port,
        protocol=resolved.protocol,
        policy_route=resolved.policy_route,
        frame_mac=sender.frame_mac,
        path=resolved.path,
    )
