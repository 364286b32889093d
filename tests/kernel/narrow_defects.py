"""Defects in the code of an engine that break few promises and leave the rest working: rows for ``broken_promises``.

Where nothing is served at all, each probe that expects an answer turns red. These rows are defects of the very thing
that a promise is about: which ports, which endpoints, which frontends, which families.
"""

from breakages import BODIES, CATEGORIES, FIXED, FRONTS, PORTS, UDP
from broken_promises import BrokenPromise

__all__ = ["NARROW_DEFECTS"]

_SLICES = "proxylab.cluster.slices"
_SYNC = "proxylab.engines.embedded.sync"

_EACH_PORT = "lambda service, *given, whole=module.ports_of: ({} for p in whole(service, *given) {})"
_EACH_ENDPOINT = "lambda *given, whole=module._endpoints: tuple(e for e in whole(*given) if {})"
_ENDPOINT = "lambda endpoint, port, node, whole=module._endpoint: (lambda e: {})(whole(endpoint, port, node))"

NARROW_DEFECTS = [
    # Endpoints.
    BrokenPromise(
        "endpoints of the node get no packets",
        BODIES,
        "translation",
        "lambda scope, e, whole=module.translation: () if e.is_local else whole(scope, e)",
        ("nodeport/traffic-policy-cluster", "senders/from-a-node", "userspace/every-pod-sees-the-node"),
    ),
    BrokenPromise(
        "endpoints of other nodes get no packets",
        BODIES,
        "translation",
        "lambda scope, e, whole=module.translation: whole(scope, e) if e.is_local else ()",
        ("clusterip/from-a-pod", "nodeport/traffic-policy-cluster", "senders/from-a-node"),
    ),
    BrokenPromise(
        "endpoints outside of the pods' network do not count",
        PORTS,
        "_endpoints",
        _EACH_ENDPOINT.format("e.ip.startswith(('10.244.', 'fd00:10:244:'))"),
        ("clusterip/host-network-endpoints", "manifests/hosts-as-endpoints", "network/host-network-and-shared-netns"),
    ),
    BrokenPromise(
        "no endpoint counts as one of the node",
        PORTS,
        "_endpoint",
        _ENDPOINT.format("e._replace(is_local=False)"),
        (
            "nodeport/local-policy-with-host-network-endpoints",
            "nodeport/traffic-policy-local",
            "sctp/associations",
            "steps/external-policy-on-three-nodes",
        ),
    ),
    # Ports.
    BrokenPromise(
        "a Service has one port",
        PORTS,
        "ports_of",
        "lambda *given, whole=module.ports_of: __import__('itertools').islice(whole(*given), 1)",
        (
            "clusterip/one-port-over-tcp-and-udp",
            "clusterip/several-ports",
            "steps/protocol-removed-from-a-port",
            "steps/service-edited-and-deleted",
            "steps/service-type-changes",
        ),
    ),
    BrokenPromise(
        "every port is one of UDP",
        FRONTS,
        "transport",
        "lambda protocol: '-p udp -m udp'",
        ("bugs/74839-segment-out-of-window", "sctp/associations", "userspace/every-pod-sees-the-node"),
    ),
    BrokenPromise(
        "endpoints get packets at the port of the Service",
        PORTS,
        "_endpoints",
        (
            "lambda port, slices, node, whole=module._endpoints: tuple("
            "e._replace(port=port.port, name=e.name.rpartition(':')[0] + f':{port.port}')"
            " for e in whole(port, slices, node))"
        ),
        ("clusterip/several-ports", "clusterip/from-a-pod"),
    ),
    BrokenPromise(
        "an EndpointSlice's ports may have any protocol",
        PORTS,
        "_endpoints",
        (
            "lambda port, slices, node, whole=module._endpoints, replace=__import__('msgspec').structs.replace:"
            " whole(port, [replace(s, ports=tuple(replace(p, protocol=port.protocol) for p in s.ports))"
            " for s in slices], node)"
        ),
        ("manifests/several-endpoint-slices",),
    ),
    # Frontends.
    BrokenPromise(
        "a Service with another frontend has no cluster IP",
        FRONTS,
        "dispatch_rules",
        "lambda scope, whole=module.dispatch_rules: whole(scope)[scope.port.externally_accessible :]",
        ("loadbalancer/without-node-ports", "steps/service-edited-and-deleted", "steps/service-type-changes"),
    ),
    BrokenPromise(
        "load balancers have no node port",
        PORTS,
        "ports_of",
        _EACH_PORT.format("p._replace(node_port=0 if p.load_balancer_vips else p.node_port)", ""),
        ("steps/load-balancer-settings-change",),
    ),
    BrokenPromise(
        "the addresses of load balancers are left to these",
        PORTS,
        "_vips",
        "lambda service, family: ()",
        (
            "loadbalancer/ip-mode-proxy",
            "loadbalancer/short-circuits",
            "steps/protocol-removed-from-a-port",
            "steps/udp-client-outlives-its-backend",
        ),
    ),
    BrokenPromise(
        "there are no node ports",
        FRONTS,
        "node_port",
        "lambda scope: ()",
        ("health/healthz-of-a-node-being-removed", "senders/from-a-node"),
    ),
    BrokenPromise(
        "node ports are the ports of their Services",
        PORTS,
        "ports_of",
        _EACH_PORT.format("p._replace(node_port=p.node_port and p.port)", ""),
        ("nodeport/node-port-addresses", "nodeport/traffic-policy-cluster"),
    ),
    BrokenPromise(
        "node ports are served at the node's primary addresses",
        "proxylab.engines.embedded.node",
        "node_port_addresses",
        "lambda family, settings, node: (node.primary_address(family),)",
        ("userspace/addresses-of-the-node",),
    ),
    BrokenPromise(
        "there are no external IPs",
        FRONTS,
        "external_ip",
        "lambda scope, address: ()",
        ("hairpin/at-every-frontend", "userspace/addresses-of-the-node"),
    ),
    # Settings of a Service.
    BrokenPromise(
        "source ranges restrict node ports and external IPs",
        FRONTS,
        "dispatch_rules",
        (
            "lambda scope, whole=module.dispatch_rules: whole(scope._replace(chains=scope.chains._replace("
            "external=scope.chains.firewall)) if scope.uses_firewall_chain else scope)"
        ),
        ("loadbalancer/source-ranges",),
    ),
    BrokenPromise(
        "source ranges stay for ever",
        PORTS,
        "_source_ranges",
        (
            "lambda service, family, whole=module._source_ranges, kept={}:"
            " whole(service, family) and kept.setdefault((service.key, family), whole(service, family))"
            " or kept.get((service.key, family), ())"
        ),
        ("steps/load-balancer-settings-change",),
    ),
    BrokenPromise(
        "what pods send to other frontends keeps its source",
        BODIES,
        "external",
        (
            "lambda scope, whole=module.external: (line.replace(f' -j {module.MARK_MASQ}',"
            " f' {scope.proxy.detector.if_not_local} -j {module.MARK_MASQ}') for line in whole(scope))"
        ),
        ("nodeport/traffic-policy-cluster",),
    ),
    BrokenPromise(
        "policy Cluster preserves the source at other frontends",
        BODIES,
        "external",
        (
            "lambda scope, whole=module.external:"
            " (line for line in whole(scope) if not line.endswith(f' external destinations\" -j {module.MARK_MASQ}'))"
        ),
        ("sctp/from-outside", "nodeport/traffic-policy-cluster"),
    ),
    BrokenPromise(
        "masquerading has one source port",
        FIXED,
        "masquerade",
        (
            "lambda settings, whole=module.masquerade: tuple(r._replace(matches=('-p udp', *r.matches),"
            " target='MASQUERADE --to-ports 50000') for r in whole(settings))"
        ),
        ("nodeport/two-clients-with-one-source-port",),
    ),
    BrokenPromise(
        "the two traffic policies are mixed up",
        PORTS,
        "ports_of",
        _EACH_PORT.format(
            "p._replace(internal_policy_local=p.external_policy_local, external_policy_local=p.internal_policy_local)",
            "",
        ),
        ("clusterip/internal-traffic-policy-local", "nodeport/traffic-policy-local"),
    ),
    # Objects that come, change and go.
    BrokenPromise(
        "a deletion takes all Services",
        PORTS,
        "PortTracker.update",
        (
            "lambda self, cluster, whole=module.PortTracker.update, most={}:"
            " whole(self, cluster) if most.setdefault(id(self), len(cluster.services)) <= len(cluster.services) else ()"
        ),
        ("steps/one-of-two-services-deleted",),
    ),
    BrokenPromise(
        "Services that were another proxy's stay so",
        PORTS,
        "ports_of",
        (
            "lambda service, *given, whole=module.ports_of, kept=set(): ("
            "kept.add(service.key) if module.SERVICE_PROXY_NAME_LABEL in service.labels else None,"
            " iter(()) if service.key in kept else whole(service, *given))[1]"
        ),
        ("steps/service-proxy-name-and-headless-labels",),
    ),
    BrokenPromise(
        "Services get the endpoints of another namespace",
        PORTS,
        "slices_by_service",
        (
            "lambda slices, family, whole=module.slices_by_service: (lambda found: {(namespace, name):"
            " [x for (there, other), several in found.items() if other == name and there != namespace for x in several]"
            " for namespace, name in {(a, b) for a, _ in found for _, b in found}})(whole(slices, family))"
        ),
        ("manifests/namespaces",),
    ),
    # Conditions.
    BrokenPromise(
        "publishNotReadyAddresses is ignored",
        _SLICES,
        "_endpoint",
        (
            "lambda service, *given, whole=module._endpoint, replace=__import__('msgspec').structs.replace:"
            " whole(replace(service, publish_not_ready_addresses=False), *given)"
        ),
        ("clusterip/publish-not-ready-addresses", "steps/publish-not-ready-addresses-switched"),
    ),
    BrokenPromise(
        "endpoints that say nothing of their readiness are not ready",
        PORTS,
        "_endpoint",
        _ENDPOINT.format("e._replace(ready=e.ready and bool(endpoint.target), serving=bool(endpoint.target))"),
        ("terminating/conditions-of-endpoints",),
    ),
    BrokenPromise(
        "endpoints without a node are on each node",
        PORTS,
        "_endpoint",
        _ENDPOINT.format("e._replace(is_local=e.is_local or not endpoint.node_name)"),
        ("terminating/conditions-of-endpoints",),
    ),
    # Hints.
    BrokenPromise(
        "incomplete hints for nodes count",
        CATEGORIES,
        "_hinted",
        (
            "lambda ready, node, whole=module._hinted:"
            " tuple(e for e in ready if node.name in e.for_nodes) or whole(ready, node)"
        ),
        ("topology/incomplete-hints",),
    ),
    BrokenPromise(
        "trafficDistribution PreferSameZone gives no hints",
        _SLICES,
        "SAME_ZONE",
        "module.SAME_ZONE - {'PreferSameZone'}",
        ("topology/hints-at-node-ports",),
    ),
    BrokenPromise(
        "trafficDistribution PreferClose gives no hints",
        _SLICES,
        "SAME_ZONE",
        "module.SAME_ZONE - {'PreferClose'}",
        ("topology/prefer-same-zone",),
    ),
    # UDP flows.
    *(
        BrokenPromise(
            f"no UDP flow by {frontend} is forgotten",
            UDP,
            "_serving",
            f"lambda ports, whole=module._serving: {{k: v for k, v in whole(ports).items() if not ({of})}}",
            ("steps/udp-client-outlives-its-backend",),
        )
        for frontend, of in (
            ("cluster IPs", "k[0] in {p.cluster_ip for p in ports}"),
            ("external IPs", "k[0] in {a for p in ports for a in p.external_ips}"),
            ("addresses of load balancers", "k[0] in {a for p in ports for a in p.load_balancer_vips}"),
            ("node ports", "k[0] is None"),
        )
    ),
    BrokenPromise(
        "UDP flows to endpoints that are not ready are forgotten",
        UDP,
        "_serving",
        (
            "lambda ports, whole=module._serving: whole([p._replace(endpoints=tuple("
            "e for e in p.endpoints if e.ready)) for p in ports])"
        ),
        ("steps/a-rolling-update", "conntrack/entries-from-before-the-proxy"),
    ),
    BrokenPromise(
        "UDP flows of deleted Services are kept",
        UDP,
        "UdpReconciler.update",
        (
            "lambda self, ports, whole=module.UdpReconciler.update: (setattr(self, '_serving',"
            " {k: v for k, v in self._serving.items() if k in module._serving(ports)}), whole(self, ports))[1]"
        ),
        ("bugs/139628-udp-after-service-deletion",),
    ),
    # Families.
    BrokenPromise(
        "PreferDualStack gives one family",
        "proxylab.cluster.allocate",
        "DUAL_STACK_POLICIES",
        "frozenset({'RequireDualStack'})",
        ("dns/headless-by-name",),
    ),
    BrokenPromise(
        "a Service is served over its first family",
        PORTS,
        "ports_of",
        (
            "lambda service, family, *given, whole=module.ports_of: (p for p in whole(service, family, *given)"
            " if p.cluster_ip == service.cluster_ips[0])"
        ),
        ("families/single-stack-and-dual-stack", "steps/secondary-family"),
    ),
    BrokenPromise(
        "a Service is served over its second family",
        PORTS,
        "ports_of",
        (
            "lambda service, family, *given, whole=module.ports_of: (p for p in whole(service, family, *given)"
            " if p.cluster_ip in service.cluster_ips[1:])"
        ),
        ("families/ipv6-first", "steps/secondary-family"),
    ),
    # The proxy itself.
    BrokenPromise(
        "a proxy that ends takes its rules along",
        "proxylab.engines.embedded.iptables.node",
        "IptablesNode.close",
        "lambda self: __import__('asyncio').gather(*(self.flush(family) for family in module.Family))",
        ("userspace/proxy-stops",),
    ),
]
