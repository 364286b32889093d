"""Defects in one rule, or in one match of a rule, that few scenarios notice: rows of the table in ``breakages``."""

from breakages import BODIES, CATEGORIES, FIXED, FRONTS, MATCHES, PORTS, Breakage

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
        "lambda scope, whole=module.source_ranges: (line for line in whole(scope) if '-s 192.0.2.10 ' not in line)",
        {
            "loadbalancer/address-on-the-node": {
                "loadBalancerSourceRanges admits the node that has the address and dials from it"
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
            }
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
            }
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
]
