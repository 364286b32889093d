"""Defects in one rule, or in one match of a rule, that few scenarios notice: rows of the table in ``breakages``."""

from breakages import BODIES, CATEGORIES, FIXED, FRONTS, MATCHES, PORTS, SCOPE, Breakage

__all__ = ["SINGLE_RULES"]

_PAST_FORWARD = {
    "NodePort from outside to a pod of the node passes FORWARD with policy DROP",
    "NodePort from outside to a pod elsewhere passes FORWARD with policy DROP",
}
# A little more than the scenario promises to see, so that the test itself fails by chance once in a million runs.
_SHARE = "lambda index, count: '-m statistic --mode random --probability {}' if count - index > 1 else ''"
_OWN_CONNECTION = "{} from a node port without endpoints: the node's own {}"

SINGLE_RULES = [
    Breakage(
        "FORWARD accepts no marked packets",
        FIXED,
        "forwarding",
        "lambda settings, whole=module.forwarding: tuple(r for r in whole(settings) if '--mark' not in str(r))",
        {"network/forward-policy-drop": _PAST_FORWARD},
    ),
    Breakage(
        "FORWARD accepts no packets of open connections",
        FIXED,
        "forwarding",
        "lambda settings, whole=module.forwarding: tuple(r for r in whole(settings) if 'RELATED' not in str(r))",
        {"network/forward-policy-drop": _PAST_FORWARD},
    ),
    Breakage(
        "INPUT accepts no health checks",
        FIXED,
        "JUMPS",
        "tuple(r for r in module.JUMPS if r.target != module.names.ACCEPT_HEALTH_CHECKS.name)",
        {
            "health/input-rule-before-the-health-check": {
                "healthCheckNodePort behind an INPUT rule that drops TCP answers 200"
            }
        },
    ),
    Breakage(
        "source ranges are not kept from the node's own programs",
        FIXED,
        "JUMPS",
        "tuple(r for r in module.JUMPS if (r.chain, r.target) != (module.names.FILTER_INPUT, 'KUBE-PROXY-FIREWALL'))",
        {
            "loadbalancer/address-on-the-node": {
                "loadBalancerSourceRanges drops an outside host at an address that the node has"
            }
        },
    ),
    Breakage(
        "source ranges leave out the load balancer's own address",
        BODIES,
        "source_ranges",
        "lambda scope, whole=module.source_ranges: (line for line in whole(scope) if '-s 192.0.2.1' not in line)",
        {
            "loadbalancer/address-on-the-node": {
                "loadBalancerSourceRanges admits the node that has the address and dials from it",
                "loadBalancerSourceRanges admits the node that dials from a second such address",
            }
        },
    ),
    Breakage(
        "one address of each family",
        PORTS,
        "_of_family",
        "lambda addresses, family, whole=module._of_family: whole(addresses, family)[:1]",
        {
            "externalip/several-addresses": {
                "the second external IP of a Service is served",
                "the second external IP of a Service is served over IPv6",
                "the second load-balancer IP of a Service is served",
                "the second load-balancer IP of a Service is served over IPv6",
            },
            "loadbalancer/source-ranges-of-several-addresses": {
                "source ranges with the nodes' network admit a node at the second address, IPv4",
                "source ranges with the nodes' network admit a node at the second address, IPv6",
            },
        },
    ),
    Breakage(
        "node ports of SCTP are left out",
        FRONTS,
        "node_port",
        "lambda scope, whole=module.node_port: () if scope.port.protocol == 'SCTP' else whole(scope)",
        {"sctp/from-outside": {"NodePort over SCTP from outside is masqueraded by the entry node"}},
    ),
    Breakage(
        "masqueradeBit is always 14",
        FIXED,
        "mark",
        "lambda value: '0x4000/0x4000'",
        {
            "masquerade/mark-at-another-bit": {
                "ClusterIP from a pod preserves its IP though another program marks with 0x4000",
                "NodePort from outside is masqueraded by the mark at bit 10",
            }
        },
    ),
    Breakage(
        "incomplete zone hints count",
        CATEGORIES,
        "_hinted",
        "lambda ready, node: tuple(e for e in ready if node.zone in e.for_zones) or tuple(ready)",
        {"topology/incomplete-hints": {"one endpoint without a zone hint makes all endpoints serve"}},
    ),
    Breakage(
        "zone hints of endpoints that are not ready count",
        CATEGORIES,
        "_cluster_endpoints",
        (
            "lambda endpoints, node, whole=module._cluster_endpoints:"
            " whole(endpoints, node) if all(e.for_zones for e in endpoints) else module._usable(endpoints)"
        ),
        {"topology/incomplete-hints": {"a missing zone hint of an endpoint that is not ready disturbs nothing"}},
    ),
    Breakage(
        "half of timeoutSeconds",
        BODIES,
        "remembered",
        "lambda scope, chain, it, seconds, whole=module.remembered: whole(scope, chain, it, seconds // 2)",
        {
            "affinity/holds-until-the-timeout": {
                (
                    "three more pods become ready, and more than half of timeoutSeconds passes: "
                    "ClientIP affinity at a NodePort still holds after half of timeoutSeconds"
                )
            },
            "affinity/holds-at-every-frontend": {
                f"more than half of timeoutSeconds passes: {each}"
                for each in (
                    "ClientIP affinity at the ClusterIP holds after half of timeoutSeconds",
                    "ClientIP affinity at the NodePort holds after half of timeoutSeconds",
                    "ClientIP affinity at the external IP holds after half of timeoutSeconds",
                    "ClientIP affinity at the load balancer IP holds after half of timeoutSeconds",
                )
            },
        },
    ),
    Breakage(
        "refusals of packets that begin no connection",
        FIXED,
        "JUMPS",
        "tuple(r._replace(matches=tuple(m for m in r.matches if m != module.NEW)) for r in module.JUMPS)",
        {
            "nodeport/own-connection-from-the-node-port": {
                _OWN_CONNECTION.format("TCP", "connection gets answers"),
                _OWN_CONNECTION.format("UDP", "datagram gets its answer"),
            },
            "steps/node-port-of-an-open-connection": {
                "Services get the three ports as node ports, and the connections lose nothing"
            },
        },
    ),
    Breakage(
        "refusals at cluster IPs of a node's own programs",
        FIXED,
        "JUMPS",
        (
            "(*module.JUMPS, module._jump(module.names.FILTER_INPUT, module.names.REJECT_INTERNAL, 'portals',"
            " module.NEW))"
        ),
        {
            "steps/a-cluster-ip-that-the-node-has": {
                (
                    "a Service without endpoints gets the address, and the connection loses nothing: "
                    "a pod reaches the node's program at a cluster IP without endpoints"
                )
            }
        },
    ),
    Breakage(
        "no masquerade of a pod that reaches itself",
        BODIES,
        "hairpin",
        "lambda scope, endpoint: ()",
        {"families/ipv6-first": {"ClusterIP over IPv6 from a pod to itself is masqueraded"}},
    ),
    Breakage(
        "an endpoint counts once for each EndpointSlice",
        PORTS,
        "_endpoints",
        (
            "lambda port, slices, node, whole=module._endpoints:"
            " tuple(e for one in slices for e in whole(port, [one], node))"
        ),
        {"manifests/several-endpoint-slices": {"ClusterIP counts an endpoint of two EndpointSlices once"}},
    ),
    Breakage(
        "no refusal at external frontends",
        FRONTS,
        "_refused",
        "lambda scope, destination: ()",
        {
            "nodeport/local-policy-with-host-network-endpoints": {
                "NodePort with policy Local drops on the node without the host-network pod"
            },
        },
    ),
    Breakage(
        "endpoints that are not ready serve",
        CATEGORIES,
        "_cluster_endpoints",
        "lambda endpoints, node: tuple(endpoints)",
        {"bugs/105657-udp-before-the-endpoint-is-ready": {"the endpoint appears and is not ready, so UDP is rejected"}},
    ),
    Breakage(
        "no short circuit at external IPs",
        BODIES,
        "short_circuit",
        "lambda scope: iter(())",
        {
            "externalip/local-policy": {
                "external IP with policy Local serves a pod on a node without endpoint",
                "external IP with policy Local serves a node without endpoint, masqueraded",
            }
        },
    ),
    Breakage(
        "every port is one of TCP",
        FRONTS,
        "transport",
        "lambda protocol: '-p tcp -m tcp'",
        {
            "nodeport/one-number-over-tcp-and-udp": {
                "NodePort 30053 over UDP reaches the pod with the target port of UDP"
            },
            "sctp/from-outside": {
                "NodePort over SCTP from outside is masqueraded by the entry node",
                "external IP over SCTP from outside is masqueraded by the entry node",
                "load-balancer IP over SCTP from outside is masqueraded by the entry node",
                "TCP at a node port of SCTP is refused by the node",
            },
        },
    ),
    Breakage(
        "hints for nodes do not count",
        CATEGORIES,
        "_hinted",
        "lambda ready, node: tuple(e for e in ready if node.zone in e.for_zones) or tuple(ready)",
        {
            "steps/preferred-node-loses-its-endpoint": {
                "PreferSameNode keeps a pod on its node while the node has a ready endpoint",
                (
                    "the endpoint on the client's node is ready again: "
                    "PreferSameNode returns to the endpoint of the client's node"
                ),
            }
        },
    ),
    Breakage(
        "a share that is an eighth too large",
        MATCHES,
        "share",
        _SHARE.format(0.5625),
        {"spread/skew-of-a-tenth": {"ClusterIP over UDP gives each of two endpoints half, to within a tenth of it"}},
    ),
    Breakage(
        "shares of 54 to 46",
        MATCHES,
        "share",
        _SHARE.format(0.54),
        {"spread/skew-of-three-points": {"ClusterIP over UDP gives two endpoints shares nearer to half than 53 to 47"}},
    ),
    Breakage(
        "masquerading keeps a free source port",
        FIXED,
        "masquerade",
        "lambda settings, whole=module.masquerade: tuple(r._replace(target='MASQUERADE') for r in whole(settings))",
        {
            "masquerade/random-source-ports": {
                "NodePort from outside leaves the entry node from another port than the client's",
                "NodePort from a pod leaves the pod's node from another port than the pod's",
            }
        },
    ),
    Breakage(
        "an endpoint that serves need not terminate to be the last resort",
        CATEGORIES,
        "_usable",
        "lambda endpoints, whole=module._usable: whole(endpoints) or tuple(e for e in endpoints if e.serving)",
        {
            "terminating/conditions-of-endpoints": {
                "ClusterIP rejects if an endpoint serves, and is neither ready nor terminating"
            }
        },
    ),
    Breakage(
        "an endpoint that terminates is never ready",
        CATEGORIES,
        "_cluster_endpoints",
        (
            "lambda endpoints, node, whole=module._cluster_endpoints:"
            " whole([e for e in endpoints if not (e.ready and e.terminating)], node)"
        ),
        {"terminating/conditions-of-endpoints": {"ClusterIP reaches an endpoint that is ready although it terminates"}},
    ),
    Breakage(
        "no masquerade of a pod that reaches itself, at any frontend",
        BODIES,
        "hairpin",
        "lambda scope, endpoint: ()",
        {
            "hairpin/at-every-frontend": {
                "ClusterIP over UDP from a pod to itself is masqueraded",
                "NodePort with policy Local from a pod to itself is masqueraded",
            }
        },
    ),
    Breakage(
        "the first endpoint gets seven in ten",
        MATCHES,
        "share",
        _SHARE.format(0.7),
        {
            "spread/at-a-node-port": {
                "NodePort with policy Cluster spreads over the endpoints of all nodes evenly",
                "external IP spreads over the endpoints of all nodes evenly",
                "load balancer IP spreads over the endpoints of all nodes evenly",
                "NodePort with policy Local spreads over the endpoints of its node evenly",
                "external IP with policy Local spreads over the endpoints of its node evenly",
            }
        },
    ),
    Breakage(
        "no refusal of clients within the source ranges",
        FRONTS,
        "_refused",
        "lambda scope, destination: ()",
        {
            "loadbalancer/source-ranges-without-endpoints": {
                "load balancer IP without endpoints rejects an outside host within the ranges",
                "load balancer IP without endpoints rejects outside its ranges in iptables only",
            }
        },
    ),
    Breakage(
        "source ranges restrict the cluster IP",
        SCOPE,
        "PortScope.internal_chain",
        "property(lambda scope: scope.chains.firewall if scope.port.source_ranges else scope.chains.cluster)",
        {
            "loadbalancer/source-ranges-without-endpoints": {
                "ClusterIP with loadBalancerSourceRanges serves a pod outside the ranges"
            }
        },
    ),
    Breakage(
        "affinity under policy Cluster alone",
        BODIES,
        "remembered",
        (
            "lambda scope, chain, it, seconds, whole=module.remembered: whole(scope, chain, it, seconds).replace("
            "' -m recent', ' -m statistic --mode random --probability 0 -m recent', chain == scope.chains.local)"
        ),
        {
            "affinity/over-udp": {
                "NodePort over UDP with policy Local and ClientIP affinity keeps to one endpoint",
            }
        },
    ),
    Breakage(
        "a node without local endpoint rejects",
        CATEGORIES,
        "_refusal",
        "lambda has_endpoints, none_here: module.TrafficRefusal.REJECT if none_here or not has_endpoints else None",
        {
            "clusterip/internal-policy-local-on-the-host-network": {
                "ClusterIP with internalTrafficPolicy Local drops a node without endpoint",
                "ClusterIP with internalTrafficPolicy Local drops a pod far from its endpoint",
            }
        },
    ),
    Breakage(
        "zone hints lead to the node's own endpoints alone",
        CATEGORIES,
        "_hinted",
        "lambda ready, node: tuple(e for e in ready if e.is_local and node.zone in e.for_zones) or tuple(ready)",
        {
            "topology/hints-at-node-ports": {
                "ClusterIP keeps a pod in its zone of two nodes",
                "NodePort follows the zone of its node to an endpoint on another node",
            }
        },
    ),
    Breakage(
        "every target port is 8080",
        PORTS,
        "_endpoint",
        "lambda endpoint, port, node_name, whole=module._endpoint: whole(endpoint, 8080, node_name)",
        {
            "clusterip/a-port-name-with-two-numbers": {
                "ClusterIP at a port without targetPort reaches the pods at the same number",
                "ClusterIP reaches each pod at the number that it gives the target port's name",
            }
        },
    ),
    Breakage(
        "no endpoint is on the node",
        PORTS,
        "_endpoint",
        "lambda *given, whole=module._endpoint: whole(*given)._replace(is_local=False)",
        {
            "clusterip/internal-policy-local-on-the-host-network": {
                "ClusterIP with internalTrafficPolicy Local reaches a host-network pod",
                "ClusterIP with internalTrafficPolicy Local serves the node of a host-network pod",
            }
        },
    ),
    Breakage(
        "internalTrafficPolicy Local restricts node ports",
        PORTS,
        "_external_policy_local",
        "lambda service: service.internal_traffic_policy is module.TrafficPolicy.LOCAL",
        {
            "clusterip/internal-policy-local-on-the-host-network": {
                "NodePort ignores internalTrafficPolicy Local on a node without endpoint"
            }
        },
    ),
    Breakage(
        "no masquerade at node ports and external IPs of a pod that reaches itself",
        FIXED,
        "masquerade",
        "lambda settings: ()",
        {
            "hairpin/at-every-frontend": {
                "ClusterIP over UDP from a pod to itself is masqueraded",
                "NodePort over TCP from a pod to itself is masqueraded",
                "NodePort over UDP from a pod to itself is masqueraded",
                "NodePort with policy Local from a pod to itself is masqueraded",
                "external IP over TCP from a pod to itself is masqueraded",
            }
        },
    ),
]
