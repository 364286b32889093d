"""What a mode lacks of what a probe asks for: the reason to skip the probe, in place of a verdict on the proxy.

Owns ``lacking``. Only mode userspace lacks anything: kube-proxy stopped adding to it long before 1.26 removed it.
"""

from collections.abc import Iterator, Sequence

from proxylab.addresses import Family, Protocol, Transport
from proxylab.cluster.objects import EndpointSlice, KubeObject, Service, TrafficPolicy
from proxylab.plan.assembly import Assembly
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.model import TERMINATING_MODES, Frontend, Manner, Outcome, Preserved, Probe, ServiceTarget

__all__ = ["lacking"]

_REFUSALS = frozenset({Outcome.REJECTED, Outcome.DROPPED, Outcome.UNTRANSLATED})


def lacking(mode: str, assembly: Assembly, probe: Probe) -> str:
    """Why a proxy of that mode cannot show what the probe expects, as a clause; empty where it can."""
    if mode not in TERMINATING_MODES:
        return ""
    resolved = assembly.resolved(probe)
    service = _service_of(assembly, probe, resolved)
    if service is None:
        return ""
    return next(_lacks(mode, assembly, probe, resolved, service), "")


def _service_of(assembly: Assembly, probe: Probe, resolved: ResolvedProbe) -> Service | None:
    """The Service that a probe dials, in whatever way it names it."""
    named = resolved.service_port.partition(":")[0]
    if isinstance(probe.target, ServiceTarget):
        named = f"{probe.target.namespace}/{probe.target.service}"
    services = assembly.timeline[assembly.scenario.steps_before(probe)].services
    return next((each for each in services if f"{each.namespace}/{each.name}" == named), None)


def _lacks(mode: str, assembly: Assembly, probe: Probe, resolved: ResolvedProbe, service: Service) -> Iterator[str]:
    target, expect, name = probe.target, probe.expect, f"{service.namespace}/{service.name}"
    has_outside = isinstance(target, ServiceTarget) and target.via is not Frontend.CLUSTER_IP
    protocols = {port.protocol for port in service.ports}
    if resolved.protocol is Transport.SCTP:
        yield f"mode {mode} has no SCTP"
    if resolved.protocol is Transport.TCP and probe.send.manner is Manner.PACKET and Protocol.TCP in protocols:
        yield (
            f"mode {mode} ends connections, and a single crafted SYN opens none; write send: {{as: connect}}, or "
            f"{{as: either}} for packets in the modes that forward"
        )
    if Family.of(resolved.destination) is not assembly.scenario.network.families[0]:
        yield f"mode {mode} serves one family, and this cluster's first is {assembly.scenario.network.families[0]}"
    if isinstance(target, ServiceTarget) and target.via is Frontend.HEALTH_CHECK_NODE_PORT:
        yield f"mode {mode} serves no health-check node port"
    if TrafficPolicy.LOCAL in (
        service.internal_traffic_policy,
        service.external_traffic_policy if has_outside else None,
    ):
        yield f"mode {mode} has no traffic policy Local, which {name} asks for"
    if service.source_ranges and has_outside:
        yield f"mode {mode} has no loadBalancerSourceRanges, which {name} asks for"
    if assembly.scenario.proxy is not None and assembly.scenario.proxy.node_port_addresses:
        yield f"mode {mode} has no nodePortAddresses"
    if isinstance(expect.source, Preserved):
        yield f"mode {mode} never preserves the client's address: its process opens the connection to the pod"
    if expect.outcome in _REFUSALS:
        yield f"mode {mode} has no rule that lets a flow be {expect.outcome}: its process accepts every connection"
    yield from _of_endpoints(mode, assembly.timeline[assembly.scenario.steps_before(probe)].objects, service)


def _of_endpoints(mode: str, objects: Sequence[KubeObject], service: Service) -> Iterator[str]:
    """What the slices of a Service ask for beyond ready endpoints, which is all that Endpoints can say."""
    for each in objects:
        if isinstance(each, EndpointSlice) and (each.namespace, each.service) == (service.namespace, service.name):
            if any(endpoint.for_zones or endpoint.for_nodes for endpoint in each.endpoints):
                yield f"mode {mode} has no topology hints"
            if any(endpoint.terminating for endpoint in each.endpoints):
                yield f"mode {mode} does not use terminating endpoints"
