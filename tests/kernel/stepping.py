"""Defects in an engine, and the steps of the scenarios that each turns red.

These rows of ``breakages`` are for scenarios about a change, or about the state before it.
"""

from breakages import BODIES, CATEGORIES, FRONTS, PORTS, UDP, Breakage

__all__ = ["STEPPING"]

NOTHING = "lambda self: __import__('asyncio').sleep(0, ())"

NFTABLES_PORTS = "proxylab.engines.embedded.nftables.service"
FIRST_NODE = "the first node changes to 1.37 in mode nftables, and connections lose nothing"
SECOND_NODE = "the second node changes to 1.37 in mode nftables, and connections lose nothing"
LAST_NODE = "the last node changes to 1.37 in mode nftables, and connections lose nothing"
REFUSED_AFTER_ITS_UPGRADE = {
    f"{FIRST_NODE}: NodePort on 127.0.0.1 is refused by the node in mode nftables",
    f"{SECOND_NODE}: NodePort on 127.0.0.1 is refused by the second node in mode nftables",
    f"{LAST_NODE}: NodePort on 127.0.0.1 is refused by the endpoint's node in mode nftables",
}

STEPPING = [
    Breakage(
        "a metric that counts no Service without a local endpoint",
        CATEGORIES,
        "ports_without_local",
        "lambda ports, node: (0, 0)",
        {
            "steps/metric-of-services-without-local-endpoint": {
                "nothing changes, and the node without endpoint counts each policy",
                "the first pod is not ready any more, and the other node counts each policy",
            }
        },
    ),
    Breakage(
        "no flow of UDP is forgotten after any change",
        UDP,
        "UdpReconciler.update",
        "lambda self, ports: False",
        {
            "bugs/139628-udp-after-service-deletion": {
                "the Service is deleted and its UDP flows lose their translation",
                "the pods are deleted, another Service changes, and UDP flows are rejected",
            },
            "conntrack/entries-from-before-the-proxy": {"clients from before the proxy send on"},
            "steps/secondary-family": {"another pod replaces the first, and UDP streams of both families follow"},
            "steps/udp-streams-while-pods-are-replaced": {
                "another pod on the node replaces the first, and all UDP streams follow"
            },
        },
        # The engine loads one table after another: a stream packet may fall between REJECT and DNAT.
        by_chance={"the first pod is ready and all UDP streams reach it"},
    ),
    Breakage(
        "health that looks at no Node",
        "proxylab.engines.embedded.health",
        "Health.look_at",
        "lambda self, node: setattr(self, 'node_eligible', True)",
        {
            "steps/healthz-follows-node-removal": {
                "the autoscaler taints node-a for removal: healthz of the tainted node answers 503",
                "the autoscaler taints node-a for removal: healthz of the tainted node answers 503 over IPv6",
                (
                    "the Node object of node-a is being deleted: "
                    "healthz of a node whose Node object is being deleted answers 503"
                ),
                (
                    "the Node object of node-a is being deleted: "
                    "healthz of a node whose Node object is being deleted answers 503 over IPv6"
                ),
            }
        },
    ),
    Breakage(
        "no source is of any range",
        BODIES,
        "source_ranges",
        "lambda scope: iter(())",
        {
            "steps/load-balancer-settings-change": {
                (
                    "loadBalancerSourceRanges admit both halves of the address space: "
                    "source ranges of both halves of the address space admit an outside host"
                ),
                (
                    "loadBalancerSourceRanges admit both halves of the address space: "
                    "source ranges of both halves of the address space admit a pod"
                ),
            }
        },
    ),
    Breakage(
        "a terminating endpoint is not used",
        CATEGORIES,
        "_usable",
        "lambda endpoints: tuple(each for each in endpoints if each.ready)",
        {
            "steps/a-rolling-update-behind-a-load-balancer": {
                (
                    "the old pod terminates but serves, and no UDP stream loses a packet: "
                    "NodePort with policy Local is served by the terminating pod of the node"
                )
            },
            "steps/last-endpoint-terminates": {
                f"the only endpoint terminates and still serves: {probe}"
                for probe in (
                    "internalTrafficPolicy Cluster uses a terminating endpoint of the pod's node",
                    "internalTrafficPolicy Cluster uses a terminating endpoint of another node",
                    "internalTrafficPolicy Local uses a terminating endpoint of the pod's node",
                    "internalTrafficPolicy Local drops if only another node's endpoint terminates",
                    "externalTrafficPolicy Cluster at a terminating endpoint's node is served",
                    "externalTrafficPolicy Cluster at another node reaches the terminating endpoint",
                    "externalTrafficPolicy Local at a terminating endpoint's node serves a far pod",
                    "externalTrafficPolicy Local at a terminating endpoint's node serves its own pod",
                    "externalTrafficPolicy Local at a node without endpoint serves the node's own pod",
                    "externalTrafficPolicy Local at a node without endpoint drops for another node",
                )
            },
        },
    ),
    Breakage(
        "hints that are not followed",
        CATEGORIES,
        "_hinted",
        "lambda ready, node: tuple(ready)",
        {
            "steps/endpoints-move": {
                (
                    "endpoints on two more nodes are added, and the stream loses nothing: "
                    "PreferSameNode prefers the pod's node to two other nodes"
                ),
                (
                    "the first endpoint is unready and a selector changes, without a lost packet: "
                    "PreferSameNode falls back to the endpoint of the pod's zone"
                ),
                "the first endpoint is ready again: PreferSameNode returns to the endpoint of the pod's node",
            }
        },
    ),
    Breakage(
        "a beginning that looks at no other mode's rules",
        "proxylab.engines.embedded.sync",
        "EmbeddedEngine._take_over",
        NOTHING,
        {
            "leftovers/rules-of-another-proxy": {
                "ClusterIP from a pod reaches the current endpoint in spite of stale rules",
                "ClusterIP over UDP is not dropped by a stale rule",
            }
        },
    ),
    Breakage(
        "a proxy of mode nftables that leaves the rules of mode iptables",
        "proxylab.engines.embedded.iptables.node",
        "IptablesNode.remove",
        "lambda self, family: __import__('asyncio').sleep(0, False)",
        {
            "steps/proxy-mode-switches": {
                (
                    "the proxy changes to mode nftables, and streams lose nothing: "
                    "NodePort on 127.0.0.1 is refused in mode nftables"
                )
            },
            "steps/upgrade-node-by-node": REFUSED_AFTER_ITS_UPGRADE,
        },
    ),
    Breakage(
        "a node that keeps its engine and configuration in each step",
        "proxylab.engines.fleet",
        "Fleet._start_anew",
        "lambda self, node, choice, whole=module.Fleet._start_anew: whole(self, node, self.chosen(node))",
        {
            "steps/upgrade-node-by-node": REFUSED_AFTER_ITS_UPGRADE,
            "steps/configuration-of-one-node": {
                (
                    "the proxy of one node masquerades all, and open connections keep their source: "
                    "ClusterIP from a pod of the node with the changed configuration is masqueraded"
                )
            },
        },
    ),
    Breakage(
        "a proxy of mode nftables that captures no cluster IP",
        NFTABLES_PORTS,
        "_internal",
        "lambda port, endpoints, chains, protocol: {}",
        {
            "steps/upgrade-node-by-node": {
                f"{FIRST_NODE}: ClusterIP in mode nftables reaches an endpoint on a node in mode iptables",
                f"{LAST_NODE}: ClusterIP is served once all nodes are in mode nftables",
            }
        },
    ),
    Breakage(
        "a proxy of mode nftables that captures no node port",
        NFTABLES_PORTS,
        "_external",
        "lambda port, endpoints, chains, protocol: {}",
        {
            "steps/upgrade-node-by-node": {
                f"{FIRST_NODE}: NodePort of a node in mode nftables reaches an endpoint of one in mode iptables",
                f"{SECOND_NODE}: NodePort of the second node is served after its change to mode nftables",
                f"{LAST_NODE}: NodePort of the endpoint's node is served once all nodes are in mode nftables",
            }
        },
    ),
    Breakage(
        "labels that take no Service away",
        PORTS,
        "SERVICE_PROXY_NAME_LABEL",
        "'nobody'",
        {
            "steps/service-proxy-name-and-headless-labels": {
                (
                    "labels service-proxy-name and headless are added: "
                    "ClusterIP with label service-proxy-name is not translated"
                )
            }
        },
    ),
    Breakage(
        "no flow of UDP is ever forgotten",
        UDP,
        "UdpReconciler.update",
        "lambda self, ports: False",
        {
            "steps/a-rolling-update": {"the old pod is deleted, and streams go on with the new pod"},
            "steps/scaled-to-zero-under-streams": {
                "the only pod is deleted, and streams are rejected",
                "an unready pod is added, and streams are still rejected",
                "the pod becomes ready, and streams reach it without loss",
            },
            "bugs/48370-udp-before-the-service-exists": {
                "the Service gets an endpoint and the standing UDP flow reaches it"
            },
            "bugs/130542-target-port-changes": {"the target port changes to 9090 and UDP streams follow"},
            "steps/link-failure": {"the pod is unready, a spare one is ready, and the UDP stream reaches the spare"},
        },
    ),
    Breakage(
        "every flow of UDP is forgotten when a proxy begins",
        UDP,
        "UdpReconciler.__call__",
        "lambda self, flow: flow.destination in self._wanted",
        {
            "steps/proxy-killed-under-streams": {
                "the proxy is started again, and streams lose nothing",
                "the proxy is restarted, and streams keep their conntrack entries",
            },
            "steps/rules-are-flushed-under-a-stream": {
                "a second pod is ready, the first terminates, and the UDP stream stays",
                "the rules are flushed and restored, and the UDP stream keeps its pod",
            },
        },
    ),
    Breakage(
        "endpoints are told by their addresses alone",
        UDP,
        "UdpReconciler.__call__",
        "lambda self, flow: flow.reply_source[0] not in {end[0] for end in self._wanted.get(flow.destination, "
        "self._wanted.get((None, flow.destination[1]), {flow.reply_source}))}",
        {
            "bugs/130542-target-port-changes": {"the target port changes to 9090 and UDP streams follow"},
            "steps/a-rolling-update": set(),
        },
    ),
    Breakage(
        "the policy Local rejects nothing",
        FRONTS,
        "_refused",
        "lambda scope, destination: ()",
        {
            "steps/external-policy-on-three-nodes": {
                "NodePort of a third node with policy Local drops an outside host",
                (
                    "externalTrafficPolicy changes back to Local: "
                    "NodePort of a third node with policy Local again drops an outside host"
                ),
            }
        },
    ),
    Breakage(
        "a Service with external IPs of both families is left out",
        PORTS,
        "PortTracker.update",
        (
            "lambda self, cluster, whole=module.PortTracker.update, replace=__import__('msgspec').structs.replace:"
            " whole(self, replace(cluster, services=tuple("
            "s for s in cluster.services if len({a.version for a in s.external_ips}) < 2)))"
        ),
        {
            "bugs/73157-external-ip-of-the-wrong-family": {
                (
                    "a Service with external IPs of both families is created: "
                    "the Service with an external IP of the wrong family is served at its cluster IP"
                ),
            },
        },
    ),
]
