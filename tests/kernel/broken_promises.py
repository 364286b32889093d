"""Defects that each break some of Kubernetes' promises, for scenarios whose other tests break none of these.

What turns red stands in the record alone (``mutant_record``). The tables of ``test_breakages`` show that a scenario
can fail; these rows show that a probe fails where what it promises is broken (``proxylab semantics``).
"""

from dataclasses import dataclass

from breakages import BODIES, CATEGORIES, FIXED, FRONTS, NAMES, PORTS

__all__ = ["BROKEN_PROMISES", "BrokenPromise"]

NODE_WORK = "proxylab.engines.embedded.node_work"
HEALTH = "proxylab.engines.embedded.health"
USERSPACE = "proxylab.engines.embedded.userspace.writer"
NFTABLES = "proxylab.engines.embedded.nftables.fixed"

_EVERY_PORT = "lambda *given, whole=module.ports_of: ({} for port in whole(*given))"


@dataclass(frozen=True)
class BrokenPromise:
    """A replacement in an engine, and the scenarios that have probes of what it breaks."""

    name: str
    module: str
    attribute: str
    becomes: str
    files: tuple[str, ...]
    engine: str = "embedded/iptables"


BROKEN_PROMISES = [
    BrokenPromise(
        "endpoints get no packets",
        BODIES,
        "translation",
        "lambda scope, endpoint: ()",
        (
            "clusterip/a-port-name-with-two-numbers",
            "clusterip/internal-policy-local-on-the-host-network",
            "clusterip/publish-not-ready-addresses",
            "families/ipv6-first",
            "families/single-stack-and-dual-stack",
            "fragments/datagrams-above-the-mtu",
            "hairpin/at-every-frontend",
            "loadbalancer/address-on-the-node",
            "loadbalancer/ip-mode-proxy",
            "loadbalancer/source-ranges",
            "loadbalancer/without-node-ports",
            "manifests/hosts-as-endpoints",
            "manifests/namespaces",
            "nodeport/local-policy-with-host-network-endpoints",
            "nodeport/traffic-policy-local",
            "nodeport/two-clients-with-one-source-port",
            "sctp/associations",
            "sctp/from-outside",
            "senders/from-a-node",
            "senders/from-loopback",
            "steps/external-policy-on-three-nodes",
            "steps/healthz-follows-node-removal",
            "steps/load-balancer-settings-change",
            "steps/one-of-two-services-deleted",
            "steps/protocol-removed-from-a-port",
            "steps/proxy-killed-and-restarted",
            "steps/rules-are-flushed",
            "steps/service-edited-and-deleted",
            "steps/service-proxy-name-and-headless-labels",
            "steps/service-type-changes",
            "terminating/conditions-of-endpoints",
        ),
    ),
    BrokenPromise(
        "pods are masqueraded at cluster IPs",
        BODIES,
        "cluster_ip_masquerade",
        (
            "lambda scope, whole=module.cluster_ip_masquerade: tuple("
            "rule.replace(f' {scope.proxy.detector.if_not_local}', '') for rule in whole(scope))"
        ),
        (
            "clusterip/from-a-pod",
            "detect-local/cluster-cidr",
            "detect-local/node-cidr",
            "userspace/every-pod-sees-the-node",
        ),
    ),
    BrokenPromise(
        "no source is masqueraded at cluster IPs",
        BODIES,
        "cluster_ip_masquerade",
        "lambda scope: ()",
        ("detect-local/bridge-interface", "detect-local/interface-name-prefix"),
    ),
    BrokenPromise(
        "policy Local masquerades",
        BODIES,
        "external",
        (
            "lambda scope, whole=module.external:"
            " iter((f'-A {scope.chains.external} -j {module.MARK_MASQ}', *whole(scope)))"
        ),
        (
            "externalip/local-policy",
            "families/single-stack-and-dual-stack",
            "loadbalancer/short-circuits",
            "nodeport/traffic-policy-local",
            "sctp/associations",
        ),
    ),
    BrokenPromise(
        "nothing is masqueraded",
        FIXED,
        "masquerade",
        "lambda settings: ()",
        ("nodeport/traffic-policy-cluster", "sctp/from-outside"),
    ),
    BrokenPromise(
        "nothing is refused but at cluster IPs",
        FRONTS,
        "_refused",
        "lambda scope, destination: ()",
        ("externalip/local-policy", "terminating/local-policy-fallback"),
    ),
    BrokenPromise(
        "nothing is refused at cluster IPs",
        FIXED,
        "JUMPS",
        "tuple(rule for rule in module.JUMPS if (rule.chain[0], rule.target) != module.names.REJECT_INTERNAL)",
        (
            "families/ipv6-first",
            "steps/service-proxy-name-and-headless-labels",
            "terminating/fallback-without-ready-endpoints",
        ),
    ),
    BrokenPromise(
        "health checks find an endpoint on each node",
        NODE_WORK,
        "local_endpoints",
        "lambda ports, service: 1",
        ("loadbalancer/health-check-node-port", "terminating/local-policy-fallback"),
    ),
    BrokenPromise(
        "health checks find no endpoint",
        NODE_WORK,
        "local_endpoints",
        "lambda ports, service: 0",
        ("loadbalancer/health-check-on-node-port-addresses",),
    ),
    BrokenPromise(
        "health checks are answered under policy Cluster",
        PORTS,
        "_health_check_node_port",
        "lambda service: 32000",
        ("steps/external-policy-on-three-nodes",),
    ),
    BrokenPromise(
        "the proxy says of each Node that it goes",
        HEALTH,
        "Health.look_at",
        "lambda self, node: setattr(self, 'node_eligible', False)",
        ("health/healthz-of-a-node-being-removed",),
    ),
    BrokenPromise(
        "each Service has session affinity",
        PORTS,
        "ports_of",
        _EVERY_PORT.format("port._replace(affinity_timeout=10800)"),
        ("affinity/client-ip", "steps/traffic-policy-and-affinity-change"),
    ),
    BrokenPromise(
        "no Service has session affinity",
        PORTS,
        "ports_of",
        _EVERY_PORT.format("port._replace(affinity_timeout=None)"),
        ("steps/load-balancer-settings-change", "steps/traffic-policy-and-affinity-change"),
    ),
    BrokenPromise(
        "internalTrafficPolicy is always Cluster",
        PORTS,
        "ports_of",
        _EVERY_PORT.format("port._replace(internal_policy_local=False)"),
        ("clusterip/internal-traffic-policy-local", "topology/prefer-same-zone", "workloads/a-daemon-set-on-each-node"),
    ),
    BrokenPromise(
        "internalTrafficPolicy Local restricts node ports",
        PORTS,
        "ports_of",
        _EVERY_PORT.format("port._replace(external_policy_local=port.internal_policy_local)"),
        ("clusterip/internal-policy-local-on-the-host-network",),
    ),
    BrokenPromise(
        "single-stack Services have node ports of both families",
        PORTS,
        "ports_of",
        (
            "lambda service, family, *given, whole=module.ports_of, replace=__import__('msgspec').structs.replace,"
            " others=tuple(map(__import__('ipaddress').ip_address, ('10.96.0.99', 'fd00:10:96::99'))):"
            " whole(replace(service, cluster_ips=(*service.cluster_ips, *others)), family, *given)"
        ),
        ("families/single-stack-node-port",),
    ),
    BrokenPromise(
        "each Service has a node port",
        PORTS,
        "ports_of",
        _EVERY_PORT.format("port._replace(node_port=port.node_port or 30081)"),
        ("nodeport/traffic-policy-cluster",),
    ),
    BrokenPromise(
        "load balancers have a node port in any case",
        PORTS,
        "ports_of",
        _EVERY_PORT.format("port._replace(node_port=30080)"),
        ("steps/load-balancer-settings-change",),
    ),
    BrokenPromise(
        "ports of a Service stay for ever",
        PORTS,
        "ports_of",
        (
            "lambda service, family, slices, node, whole=module.ports_of, kept={}:"
            " (ports := kept.setdefault((service.key, family, node), {})).update("
            "{(p.protocol, p.port): p for p in whole(service, family, slices, node)}) or iter([*ports.values()])"
        ),
        (
            "steps/protocol-removed-from-a-port",
            "steps/service-edited-and-deleted",
            "steps/service-type-changes",
        ),
    ),
    BrokenPromise(
        "Services stay for ever",
        PORTS,
        "in_order",
        (
            "lambda services, whole=module.in_order, kept={}:"
            " kept.update({each.key: each for each in services}) or whole([*kept.values()])"
        ),
        ("steps/one-of-two-services-deleted", "steps/protocol-removed-from-a-port"),
    ),
    BrokenPromise(
        "node ports stay for ever",
        PORTS,
        "ports_of",
        (
            "lambda *given, whole=module.ports_of, kept={}: (port._replace(node_port=port.node_port or"
            " kept.get(port[:5:2], 0)) for port in whole(*given)"
            " if not port.node_port or kept.setdefault(port[:5:2], port.node_port))"
        ),
        ("steps/service-type-changes",),
    ),
    BrokenPromise(
        "endpoints stay for ever",
        PORTS,
        "_endpoints",
        (
            "lambda port, slices, node, whole=module._endpoints, kept={}:"
            " (ends := kept.setdefault((node, port.name, port.port, port.protocol, *sorted("
            "{(s.service, s.address_type) for s in slices})), {})).update("
            "{e.name: e for e in whole(port, slices, node)}) or tuple(ends[name] for name in sorted(ends))"
        ),
        (
            "affinity/other-endpoints-change",
            "steps/affinity-when-endpoints-change",
            "steps/endpoints-move",
            "steps/service-edited-and-deleted",
        ),
    ),
    BrokenPromise(
        "endpoints that are not ready count as ready",
        CATEGORIES,
        "_cluster_endpoints",
        "lambda ends, node, whole=module._cluster_endpoints: whole([e._replace(ready=True) for e in ends], node)",
        (
            "steps/affinity-when-endpoints-change",
            "steps/preferred-node-loses-its-endpoint",
            "terminating/fallback-without-ready-endpoints",
        ),
    ),
    BrokenPromise(
        "one endpoint serves zones without any",
        CATEGORIES,
        "_hinted",
        (
            "lambda ready, node, whole=module._hinted: whole(ready, node) if any("
            "node.zone in e.for_zones or node.name in e.for_nodes for e in ready) else tuple(ready)[:1]"
        ),
        ("topology/prefer-same-node", "topology/prefer-same-zone"),
    ),
    BrokenPromise(
        "an EndpointSlice's ports may have any name",
        PORTS,
        "_endpoints",
        (
            "lambda port, slices, node, whole=module._endpoints, replace=__import__('msgspec').structs.replace:"
            " whole(port, [replace(s, ports=tuple(replace(p, name=port.name) for p in s.ports)) for s in slices], node)"
        ),
        ("manifests/several-endpoint-slices",),
    ),
    BrokenPromise(
        "names of headless Services lead to pods that terminate",
        NAMES,
        "_headless",
        (
            "lambda name, slices, whole=module._headless, replace=__import__('msgspec').structs.replace: whole(name,"
            " [replace(s, endpoints=tuple(replace(e, ready=True) for e in s.endpoints)) for s in slices])"
        ),
        ("dns/names-follow-readiness",),
    ),
    BrokenPromise(
        "external IPs take their neighbours, too",
        FRONTS,
        "external_ip",
        (
            "lambda scope, address: [module.append_line(module.names.SERVICES,"
            " f'-d {address}/{24 if address.version == 4 else 64} {module.transport(scope.port.protocol)}"
            " --dport {scope.port.port}', scope.chains.external)]"
        ),
        ("untranslated/other-ports-and-addresses",),
    ),
    BrokenPromise(
        "cluster IPs are not checked",
        NFTABLES,
        "_rules",
        (
            "lambda *given, whole=module._rules, **named:"
            " ((chain, rule) for chain, rule in whole(*given, **named) if chain != 'cluster-ips-check')"
        ),
        ("icmp/echo-requests", "untranslated/unused-port-of-a-cluster-ip"),
        "embedded/nftables",
    ),
    BrokenPromise(
        "a second ServiceCIDR is not known",
        NFTABLES,
        "_rules",
        (
            "lambda proxy, cidrs, whole=module._rules, **named:"
            " whole(proxy, [each for each in cidrs if ':97:' not in str(each) and '.97.' not in str(each)], **named)"
        ),
        ("clusterip/in-a-second-service-cidr",),
        "embedded/nftables",
    ),
]
