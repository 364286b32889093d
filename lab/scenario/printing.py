"""A ``Scenario`` as the text of a file again.

Owns: ``scenario_text``: a file that reads as the same scenario, but for positions.
Must not: keep an author's comments or order of keys; it is for programs that make scenarios, and for tests.

YAML 1.2 holds JSON, so values are written in flow style, a key of ``spec`` a line.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from lab.cluster.objects import EndpointSlice, Service
from lab.scenario.model import (
    AddressTarget,
    ConntrackExpect,
    Entries,
    Expect,
    HostTarget,
    Network,
    Node,
    NodeDevice,
    PodChange,
    PodGroup,
    PodTarget,
    Preserved,
    Scenario,
    Send,
    ServiceTarget,
    Shares,
    Source,
    Step,
    Target,
)

__all__ = ["scenario_text"]

Data = dict[str, Any]


def scenario_text(scenario: Scenario) -> str:
    """The text. ``proxy`` is not written: its document has a kind of its own."""
    head = {"apiVersion": "proxylab/v1", "kind": "Scenario", "metadata": _metadata(scenario)}
    lines = [f"{key}: {json.dumps(value)}" for key, value in head.items()]
    lines.append("spec:")
    lines += [f"  {key}: {json.dumps(value)}" for key, value in _spec(scenario).items()]
    for manifest in (*map(_service, scenario.services), *map(_slice, scenario.slices)):
        lines += ["---", *(f"{key}: {json.dumps(value)}" for key, value in manifest.items())]
    return "\n".join(lines) + "\n"


def _metadata(scenario: Scenario) -> Data:
    return _given(
        name=scenario.name, description=scenario.description, links=list(scenario.links), tags=list(scenario.tags)
    )


def _given(**keys: Any) -> Data:
    """The keys that have something to say; ``from_`` stands for ``from``, and snake case for camel case."""
    named = {key.rstrip("_"): value for key, value in keys.items()}
    return {key: value for key, value in named.items() if value not in (None, "", [], {}, False)}


def _spec(scenario: Scenario) -> Data:
    return _given(
        network=_network(scenario.network),
        nodes={node.name: _node(node) for node in scenario.nodes},
        pods={pod.name: _pod(pod) for pod in scenario.pods},
        hosts={host.name: {"segment": host.segment, "addresses": host.addresses} for host in scenario.hosts},
        loadBalancers={
            each.name: _given(pool=_texts(each.pool), nodes=list(each.nodes), healthChecked=each.health_checked)
            for each in scenario.load_balancers
        },
        matrix={axis.name: [_axis_value(axis.name, value) for value in axis.values] for axis in scenario.matrix},
        probes=[
            _given(
                name=probe.name,
                from_=_source(probe.source),
                to=_target(probe.target),
                send=_send(probe.send),
                expect=_expect(probe.expect),
                except_=[
                    {
                        "when": {axis: _axis_value(axis, value, one=True) for axis, value in each.when.items()},
                        "expect": _expect(each.expect),
                        "because": each.because,
                    }
                    for each in probe.exceptions
                ],
            )
            for probe in scenario.probes
        ],
        streams={
            each.name: {"from": _source(each.source), "to": _target(each.target), "send": _send(each.send)}
            for each in scenario.streams
        },
        steps=[_step(step) for step in scenario.steps],
    )


def _texts(values: Any) -> list[str]:
    return [str(value) for value in values]


def _axis_value(axis: str, value: str, *, one: bool = False) -> Any:
    return value.split("+") if axis == "families" else value


def _network(network: Network) -> Data:
    return _given(
        families=_texts(network.families),
        podNetwork=network.pod_network,
        hairpin=network.hairpin if network.hairpin != "hairpin-veth" else None,
        interNode=network.inter_node,
        podCIDR=_texts(network.pod_cidrs),
        serviceCIDR=_texts(network.service_cidrs),
        nodeCIDR=_texts(network.node_cidrs),
        outsideCIDR=_texts(network.outside_cidrs),
        segments={each.name: {"cidr": _texts(each.cidrs)} for each in network.segments},
        routed=[{"network": str(each.network), "nodes": list(each.nodes)} for each in network.routed],
    )


def _node(node: Node) -> Data:
    return _given(
        labels=dict(node.labels),
        sysctls=dict(node.sysctls),
        addresses=[{"device": each.device, "address": str(each.interface)} for each in node.addresses],
        uplinks={each.device: {"segment": each.segment} for each in node.uplinks},
        routes=[
            _given(
                to=str(each.destination),
                device=each.device,
                via=str(each.via) if each.via else None,
                from_=str(each.source) if each.source else None,
            )
            for each in node.routes
        ],
        daemons={
            each.name: _given(
                port=each.port, protocol=str(each.protocol), address=str(each.address) if each.address else None
            )
            for each in node.daemons
        },
    )


def _pod(pod: PodGroup) -> Data:
    return {
        **_given(
            namespace=pod.namespace,
            replicas=pod.replicas,
            nodes=list(pod.nodes),
            labels=dict(pod.labels),
            ports=[_given(name=port.name, port=port.port, protocol=str(port.protocol)) for port in pod.ports],
            terminating=pod.terminating,
            hostNetwork=pod.host_network,
            sharedNetns=pod.shared_netns,
            hostname=pod.hostname,
            subdomain=pod.subdomain,
            addresses=_texts(pod.addresses),
        ),
        "ready": pod.ready,
        "serving": pod.serving,
    }


def _source(source: Source) -> Data:
    address = str(source.address) if source.address else None
    return _given(name=source.name, address=address, port=source.port, loopback=source.loopback)


def _target(target: Target) -> Data:
    match target:
        case ServiceTarget():
            return _given(
                service=target.service,
                namespace=target.namespace,
                port=target.port,
                via=str(target.via),
                node=target.node,
                address=str(target.address) if target.address else None,
            )
        case PodTarget():
            return _given(pod=target.pod, port=target.port)
        case HostTarget():
            return {"host": target.host, "port": target.port}
        case AddressTarget():
            return {"address": str(target.address), "port": target.port}


def _send(send: Send) -> Data:
    protocol = "ICMP" if send.icmp else send.protocol and str(send.protocol)
    every = f"{send.every}ms" if send.every else None
    return {**_given(protocol=protocol, as_=str(send.manner), flows=send.flows, every=every), "payload": send.payload}


def _expect(expect: Expect) -> Data:
    http = expect.http
    return _given(
        outcome=str(expect.outcome) if http is None or "outcome" in expect.positions else None,
        backends=list(expect.backends or ()),
        source=_seen(expect),
        spread=dict(expect.spread.of) if isinstance(expect.spread, Shares) else expect.spread and str(expect.spread),
        at=expect.at,
        reply=expect.reply and str(expect.reply),
        http=http
        and {
            "status": http.status,
            **({} if http.local_endpoints is None else {"localEndpoints": http.local_endpoints}),
        },
        conntrack=_conntrack(expect.conntrack) if expect.conntrack else None,
    )


def _seen(expect: Expect) -> Any:
    match expect.source:
        case NodeDevice(node=node, device=device):
            return {"node": node, "device": device}
        case Preserved():
            return "preserved"
        case None:
            return None
        case address:
            return str(address)


def _conntrack(expect: ConntrackExpect) -> Data:
    sides = {"some": expect.some, "none": expect.none}
    return _given(node=expect.node) | {key: _entries(each) for key, each in sides.items() if each is not None}


def _entries(entries: Entries) -> Data:
    return _given(replyFrom=entries.reply_from, originalFrom=entries.original_from, port=entries.port)


def _step(step: Step) -> Data:
    expect: Data = {
        name: {key: value for key, value in (("backend", each.backend), ("lost", each.lost)) if value is not None}
        for name, each in step.expect.items()
    }
    if step.conntrack is not None:
        expect["conntrack"] = _conntrack(step.conntrack)
    change = {"pods": {name: _change(each) for name, each in step.change.items()}}
    return {"name": step.name, "change": change, "expect": expect}


def _change(change: PodChange) -> Data | None:
    if change.gone:
        return None
    said = {"ready": change.ready, "serving": change.serving, "terminating": change.terminating}
    return {key: value for key, value in said.items() if value is not None}


def _service(service: Service) -> Data:
    affinity = {"clientIP": {"timeoutSeconds": service.affinity_timeout}} if service.affinity_timeout else None
    exposed = service.type in ("NodePort", "LoadBalancer") or bool(service.external_ips)
    spec = _given(
        type=str(service.type),
        selector=dict(service.selector),
        ports=[
            _given(
                name=port.name,
                protocol=str(port.protocol),
                port=port.port,
                targetPort=port.target_port,
                nodePort=port.node_port,
            )
            for port in service.ports
        ],
        clusterIP="None" if service.headless else None,
        clusterIPs=_texts(service.cluster_ips),
        ipFamilies=_texts(service.ip_families),
        ipFamilyPolicy=service.ip_family_policy if service.type != "ExternalName" else None,
        externalIPs=_texts(service.external_ips),
        loadBalancerSourceRanges=_texts(service.source_ranges),
        internalTrafficPolicy=str(service.internal_traffic_policy),
        externalTrafficPolicy=str(service.external_traffic_policy) if exposed else None,
        healthCheckNodePort=service.health_check_node_port,
        sessionAffinity="ClientIP" if affinity else None,
        sessionAffinityConfig=affinity,
        publishNotReadyAddresses=service.publish_not_ready_addresses,
        trafficDistribution=service.traffic_distribution,
        externalName=service.external_name,
    )
    if not service.allocate_node_ports:
        spec["allocateLoadBalancerNodePorts"] = False
    ingress = [
        _given(ip=str(each.ip) if each.ip else None, hostname=each.hostname, ipMode=each.ip_mode)
        for each in service.load_balancer_ingress
    ]
    status = _given(status={"loadBalancer": {"ingress": ingress}} if ingress else None)
    return {"apiVersion": "v1", "kind": "Service", "metadata": _object(service), "spec": spec, **status}


def _object(thing: Service | EndpointSlice) -> Data:
    annotations = dict(thing.annotations) if isinstance(thing, Service) else {}
    return _given(name=thing.name, namespace=thing.namespace, labels=dict(thing.labels), annotations=annotations)


def _slice(slice_: EndpointSlice) -> Data:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": _object(slice_),
        "addressType": str(slice_.address_type),
        "ports": [{"name": port.name, "protocol": str(port.protocol), "port": port.port} for port in slice_.ports],
        "endpoints": [
            _given(
                addresses=_texts(each.addresses),
                conditions={"ready": each.ready, "serving": each.serving, "terminating": each.terminating},
                nodeName=each.node_name,
                zone=each.zone,
                hostname=each.hostname,
                hints=_hints({"forZones": each.for_zones, "forNodes": each.for_nodes}),
                targetRef={"kind": "Pod", "name": each.target} if each.target else None,
            )
            for each in slice_.endpoints
        ],
    }


def _hints(hints: Mapping[str, tuple[str, ...]]) -> Data:
    return dict(_named_hints(hints))


def _named_hints(hints: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, Any]]:
    for key, names in hints.items():
        if names:
            yield key, [{"name": name} for name in names]
