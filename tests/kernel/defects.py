"""Defects in the code of an engine that no rule and no object shows, and the probes that each of them turns red.

One row a kind of decision: which UDP flows a proxy forgets, what its health servers answer, which rules of others it
takes over, what its process copies, how names of Services resolve. ``scenarios/mutations.json`` has the mutants of
rules, sets and objects, which ``proxylab mutate`` makes; a row here names code, so that it breaks with each new name.
``edits`` changes scenario files instead.
"""

from dataclasses import dataclass, field

__all__ = ["DEFECTS", "CodeDefect"]

_EMBEDDED = "proxylab.engines.embedded"
_CATEGORIES = f"{_EMBEDDED}.categories"
_NAMES = "proxylab.cluster.kube_dns"
_NODE_WORK = f"{_EMBEDDED}.node_work"
_PORTS = f"{_EMBEDDED}.ports"
_UDP = f"{_EMBEDDED}.udp"
_USERSPACE = f"{_EMBEDDED}.userspace"


@dataclass(frozen=True)
class CodeDefect:
    """A replacement in an engine, and the probes of each file that do not pass in some case of it.

    All other probes of these files hold in all cases. ``over_one_family`` names the red probes that hold over the other
    family, and ``by_chance`` those whose verdict depends on the moment of a stream packet.
    """

    name: str
    module: str
    attribute: str
    becomes: str
    red: dict[str, set[str]]
    over_one_family: set[str] = field(default_factory=set)
    by_chance: set[str] = field(default_factory=set)
    engine: str = "embedded/iptables"


_EACH_PORT = "lambda *given, whole=module.ports_of, **named: ({} for port in whole(*given, **named))"
_REPLACED = "another pod replaces the endpoint"
_TO_NFTABLES = "changes to 1.37 in mode nftables, and connections lose nothing"
_REFUSED_AFTER_ITS_UPGRADE = {
    f"the first node {_TO_NFTABLES}: NodePort on 127.0.0.1 is refused by the node in mode nftables",
    f"the second node {_TO_NFTABLES}: NodePort on 127.0.0.1 is refused by the second node in mode nftables",
    f"the last node {_TO_NFTABLES}: NodePort on 127.0.0.1 is refused by the endpoint's node in mode nftables",
}


def _process(change: str) -> str:
    """The command of the process of mode userspace, with a change to its module ``program``."""
    text = f"from {_USERSPACE} import program; {change}; program._main(*program.sys.argv[1:])"
    return f"(module.sys.executable, '-c', '{text}')"


DEFECTS = [
    # UDP flows.
    CodeDefect(
        "no flow of UDP is forgotten after any change",
        _UDP,
        "UdpReconciler.update",
        "lambda self, ports: False",
        {
            "bugs/139628-udp-after-service-deletion": {
                "the Service is deleted and its UDP flows lose their translation",
                "the pods are deleted, another Service changes, and UDP flows are rejected",
            },
            "bugs/130542-target-port-changes": {"the target port changes to 9090 and UDP streams follow"},
            "bugs/48370-udp-before-the-service-exists": {
                "the Service gets an endpoint and the standing UDP flow reaches it"
            },
            "conntrack/entries-from-before-the-proxy": {"clients from before the proxy send on"},
            "dns/replaced-server": {
                (
                    "another pod replaces the name server: "
                    "kube-dns over UDP from the same source port reaches the new name server"
                )
            },
            "steps/a-rolling-update": {"the old pod is deleted, and streams go on with the new pod"},
            "steps/link-failure": {"the pod is unready, a spare one is ready, and the UDP stream reaches the spare"},
            "steps/scaled-to-zero-under-streams": {
                "the only pod is deleted, and streams are rejected",
                "an unready pod is added, and streams are still rejected",
                "the pod becomes ready, and streams reach it without loss",
            },
            "steps/secondary-family": {"another pod replaces the first, and UDP streams of both families follow"},
            "steps/udp-client-outlives-its-backend": {
                f"{_REPLACED}: ClusterIP over UDP from the same source port reaches the new endpoint",
                f"{_REPLACED}: NodePort over UDP from the same source port reaches the new endpoint",
                f"{_REPLACED}: external IP over UDP from the same source port reaches the new endpoint",
                f"{_REPLACED}: load balancer IP over UDP from the same source port reaches the new endpoint",
                "no endpoint is ready: ClusterIP over UDP from the same source port is rejected",
            },
            "steps/udp-streams-while-pods-are-replaced": {
                "another pod on the node replaces the first, and all UDP streams follow"
            },
        },
        # The engine loads one table after another: a stream packet may fall between REJECT and DNAT.
        by_chance={"the first pod is ready and all UDP streams reach it"},
    ),
    CodeDefect(
        "every flow of UDP is forgotten when a proxy begins",
        _UDP,
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
    # Rules of others, and of the mode before.
    CodeDefect(
        "a beginning that looks at no other mode's rules",
        f"{_EMBEDDED}.sync",
        "EmbeddedEngine._take_over",
        "lambda self: __import__('asyncio').sleep(0, ())",
        {
            "leftovers/rules-of-another-proxy": {
                "ClusterIP from a pod reaches the current endpoint in spite of stale rules",
                "ClusterIP over UDP is not dropped by a stale rule",
            }
        },
    ),
    CodeDefect(
        "a proxy of mode nftables that leaves the rules of mode iptables",
        f"{_EMBEDDED}.iptables.node",
        "IptablesNode.remove",
        "lambda self, family: __import__('asyncio').sleep(0, False)",
        {
            "steps/proxy-mode-switches": {
                (
                    "the proxy changes to mode nftables, and streams lose nothing: "
                    "NodePort on 127.0.0.1 is refused in mode nftables"
                )
            },
            "steps/upgrade-node-by-node": _REFUSED_AFTER_ITS_UPGRADE,
        },
    ),
    CodeDefect(
        "a node that keeps its engine and configuration in each step",
        "proxylab.engines.fleet",
        "Fleet._start_anew",
        "lambda self, node, choice, whole=module.Fleet._start_anew: whole(self, node, self.chosen(node))",
        {
            "steps/configuration-of-one-node": {
                (
                    "the proxy of one node masquerades all, and open connections keep their source: "
                    "ClusterIP from a pod of the node with the changed configuration is masqueraded"
                )
            },
            "steps/upgrade-node-by-node": _REFUSED_AFTER_ITS_UPGRADE,
        },
    ),
    # Health servers.
    CodeDefect(
        "health servers say nothing of their answers' type",
        _NODE_WORK,
        "_JSON",
        "{}",
        {
            "loadbalancer/what-a-health-check-says": {
                "healthCheckNodePort names its Service and weights the node by its two pods",
                "healthCheckNodePort of a node without pods says 503, weight 0, and the same type",
                "healthz of the proxy is JSON that says the node is eligible",
            }
        },
    ),
    CodeDefect(
        "livez asks whether the node stays",
        _NODE_WORK,
        "healthz",
        "lambda path, *of, whole=module.healthz, **named: whole('/healthz', *of, **named)",
        {
            "health/healthz-of-a-node-being-removed": {
                "livez of a node with the taint ToBeDeletedByClusterAutoscaler answers 200",
                "livez of a node whose Node object is being deleted answers 200 over IPv6",
            }
        },
    ),
    CodeDefect(
        "health checks count endpoints of all nodes",
        _NODE_WORK,
        "local_endpoints",
        (
            "lambda ports, service:"
            " len({e.address for p in ports if p.service == service for e in p.endpoints if e.ready})"
        ),
        {
            "terminating/local-policy-fallback": {
                "healthCheckNodePort of a node with only a terminating endpoint answers 503"
            }
        },
    ),
    # Names of Services, which the lab's name server resolves.
    CodeDefect(
        "headless Services without a name",
        _NAMES,
        "_headless",
        "lambda name, slices: ()",
        {
            "dns/headless-by-name": {
                "DNS name of a headless Service gives an endpoint its own address too",
                "port of a headless Service is not translated to its targetPort",
                "DNS name of a headless Service gives the ready pods only",
                "DNS name with publishNotReadyAddresses gives unready and terminating pods too",
            },
            "dns/names-follow-readiness": {
                "DNS name of a headless Service gives its only ready pod",
                "a second pod becomes ready: DNS name of a headless Service gives both ready pods",
                (
                    "the first pod terminates: "
                    "DNS name of a headless Service leaves out a terminating pod that still serves"
                ),
            },
        },
    ),
    CodeDefect(
        "names of Services that lead to the address beside theirs",
        _NAMES,
        "_with_cluster_ips",
        "lambda name, service: ((name, module._address(address + 1)) for address in service.cluster_ips)",
        {
            "dns/cluster-ip-by-name": {
                "DNS name of a Service without endpoints leads to a rejection",
                "DNS name of a Service in the pod's namespace resolves beside the name server",
                "DNS name of a Service in the pod's namespace resolves from another node",
                "DNS name with its namespace resolves for a pod of another namespace",
                "full DNS name of a Service resolves from a host-network pod",
            },
            "dns/external-name": {"ExternalName of a cluster Service leads to the endpoints of that Service"},
            "dns/records": {"DNS name of a ClusterIP Service leads to its endpoints"},
        },
    ),
    # What an object that is well-formed cannot show: a hint that is missing, a family that is too many.
    CodeDefect(
        "incomplete zone hints count",
        _CATEGORIES,
        "_hinted",
        "lambda ready, node: tuple(e for e in ready if node.zone in e.for_zones) or tuple(ready)",
        {"topology/incomplete-hints": {"one endpoint without a zone hint makes all endpoints serve"}},
    ),
    CodeDefect(
        "single-stack Services have node ports of both families",
        _PORTS,
        "ports_of",
        (
            "lambda service, family, *given, whole=module.ports_of, replace=__import__('msgspec').structs.replace,"
            " others=tuple(map(__import__('ipaddress').ip_address, ('10.96.0.99', 'fd00:10:96::99'))), **named:"
            " whole(replace(service, cluster_ips=(*service.cluster_ips, *others)), family, *given, **named)"
        ),
        {
            "families/single-stack-node-port": {
                "NodePort of a Service of IPv4 is refused over IPv6",
                "NodePort of a Service of IPv6 is refused over IPv4",
            }
        },
    ),
    # A little more than the scenarios promise to see, so that the test itself fails by chance once in a million runs.
    CodeDefect(
        "a share that is an eighth too large",
        f"{_EMBEDDED}.iptables.matches",
        "share",
        "lambda index, count: '-m statistic --mode random --probability 0.5625' if count - index > 1 else ''",
        {
            "spread/skew-of-a-tenth": {"ClusterIP over UDP gives each of two endpoints half, to within a tenth of it"},
            "spread/skew-of-three-points": {
                "ClusterIP over UDP gives two endpoints shares nearer to half than 53 to 47"
            },
        },
    ),
    # What stays where it should go, and what comes without being asked for.
    CodeDefect(
        "every port is one of TCP",
        f"{_EMBEDDED}.iptables.dispatch_rules",
        "transport",
        "lambda protocol: '-p tcp -m tcp'",
        {
            "sctp/from-outside": {
                "NodePort over SCTP from outside is masqueraded by the entry node",
                "TCP at a node port of SCTP is refused by the node",
                "external IP over SCTP from outside is masqueraded by the entry node",
                "load-balancer IP over SCTP from outside is masqueraded by the entry node",
            },
        },
    ),
    CodeDefect(
        "load balancers have a node port in any case",
        _PORTS,
        "ports_of",
        _EACH_PORT.format("port._replace(node_port=30080)"),
        {
            "steps/load-balancer-settings-change": {
                "NodePort is refused over IPv6 while allocateLoadBalancerNodePorts is false",
                "NodePort is refused while allocateLoadBalancerNodePorts is false",
            },
        },
    ),
    CodeDefect(
        "ports of a Service stay for ever",
        _PORTS,
        "ports_of",
        (
            "lambda service, family, slices, node, whole=module.ports_of, kept={}, **named:"
            " (ports := kept.setdefault((service.key, family, node), {})).update("
            "{(p.protocol, p.port): p for p in whole(service, family, slices, node, **named)})"
            " or iter([*ports.values()])"
        ),
        {
            "steps/service-edited-and-deleted": {
                "the Service loses its first port: NodePort of the removed Service port is refused",
                "the Service loses its first port: NodePort of the removed Service port is refused over IPv6",
                "the type changes to ExternalName: NodePort of a Service that became an ExternalName is refused",
                (
                    "the type changes to ExternalName: "
                    "NodePort of a Service that became an ExternalName is refused over IPv6"
                ),
            },
            "steps/service-type-changes": {
                (
                    "the type changes from ClusterIP to ExternalName: "
                    "ClusterIP is not translated after it changes to ExternalName again"
                ),
                (
                    "the type changes from ClusterIP to ExternalName: "
                    "ClusterIP over IPv6 is not translated after it changes to ExternalName again"
                ),
                (
                    "the type changes from NodePort to ExternalName: "
                    "ClusterIP is not translated after the type changes from NodePort to ExternalName"
                ),
                (
                    "the type changes from NodePort to ExternalName: "
                    "ClusterIP over IPv6 is not translated after the type changes to ExternalName"
                ),
                (
                    "the type changes from NodePort to ExternalName: "
                    "NodePort is refused after the type changes to ExternalName"
                ),
                (
                    "the type changes from NodePort to ExternalName: "
                    "NodePort is refused over IPv6 after the type changes to ExternalName"
                ),
            },
        },
    ),
    CodeDefect(
        "node ports stay for ever",
        _PORTS,
        "ports_of",
        (
            "lambda *given, whole=module.ports_of, kept={}, **named: (port._replace(node_port=port.node_port or"
            " kept.get(port[:5:2], 0)) for port in whole(*given, **named)"
            " if not port.node_port or kept.setdefault(port[:5:2], port.node_port))"
        ),
        {
            "steps/service-type-changes": {
                (
                    "the type changes from ExternalName to ClusterIP: "
                    "NodePort is refused after the type changes from ExternalName to ClusterIP"
                ),
                (
                    "the type changes from ExternalName to ClusterIP: "
                    "NodePort over IPv6 is refused after the type changes to ClusterIP"
                ),
            },
        },
    ),
    CodeDefect(
        "endpoints stay for ever",
        _PORTS,
        "_endpoints",
        (
            "lambda port, slices, node, whole=module._endpoints, kept={}:"
            " (ends := kept.setdefault((node, port.name, port.port, port.protocol, *sorted("
            "{(s.service, s.address_type) for s in slices})), {})).update("
            "{e.name: e for e in whole(port, slices, node)}) or tuple(ends[name] for name in sorted(ends))"
        ),
        {
            "steps/endpoints-move": {
                (
                    "the first endpoint is unready and a selector changes, without a lost packet: "
                    "ClusterIP with a changed selector reaches only the newly selected pod"
                ),
            },
            "steps/service-edited-and-deleted": {
                (
                    "a Service of the same name is created for other pods: "
                    "ClusterIP of the recreated Service reaches only its own pods"
                ),
            },
        },
    ),
    CodeDefect(
        "the port of a headless Service is translated to its targetPort",
        _PORTS,
        "PortTracker.update",
        (
            "lambda self, cluster, whole=module.PortTracker.update, replace=__import__('msgspec').structs.replace:"
            " (pods := lambda s: tuple(e.addresses[0] for x in cluster.slices"
            " if (x.namespace, x.service) == (s.namespace, s.name) for e in x.endpoints)) and whole(self, replace("
            "cluster, services=tuple(replace(s, headless=False, cluster_ips=pods(s), external_ips=pods(s))"
            " if s.name == 'front' else s for s in cluster.services),"
            " slices=tuple(replace(x, labels={}) for x in cluster.slices)))"
        ),
        {
            "dns/headless-by-name": {
                "port of a headless Service is not translated to its targetPort",
            },
        },
    ),
    # The process of mode userspace.
    CodeDefect(
        "the rules of mode userspace lead past the process",
        f"{_USERSPACE}.rules",
        "_portals",
        (
            "lambda port, to, listen, host, whole=module._portals:"
            " whole(port, port.endpoints[0].port, *[port.endpoints[0].address] * 2)"
        ),
        {
            "userspace/every-pod-sees-the-node": {
                "ClusterIP by HTTP shows the client, but in mode userspace its node",
                "ClusterIP by UDP shows the client, but in mode userspace its gateway",
                "ClusterIP from a pod to itself shows the node's gateway in every mode",
                "ClusterIP to another node shows the client, but in mode userspace its node",
                "ClusterIP to the same node shows the client, but in mode userspace its gateway",
                "NodePort from outside shows the entry node's address in every mode",
            },
        },
        engine="embedded/userspace",
    ),
    CodeDefect(
        "the process takes the first endpoint",
        f"{_USERSPACE}.process",
        "_COMMAND",
        _process(
            f"from {_USERSPACE} import balance;"
            " balance.EndpointBalancer.choose = lambda self, client, now, failed=False: self._endpoints[0]"
        ),
        {
            "userspace/round-robin-and-affinity": {
                "ClusterIP spreads connections evenly over two endpoints in every mode"
            }
        },
        engine="embedded/userspace",
    ),
    CodeDefect(
        "the process tries one endpoint",
        f"{_USERSPACE}.process",
        "_COMMAND",
        _process("program._DIAL_SECONDS = program._DIAL_SECONDS[:1]"),
        {
            "userspace/another-endpoint-is-tried": {
                (
                    "another pod, which listens, becomes ready: "
                    "ClusterIP fails at an endpoint that does not listen, unless in mode userspace"
                ),
                (
                    "another pod, which listens, becomes ready: "
                    "ClusterIP from a node reaches the pod that listens in mode userspace only"
                ),
            }
        },
        engine="embedded/userspace",
    ),
    CodeDefect(
        "the process copies a thousand bytes of each datagram",
        f"{_USERSPACE}.process",
        "_COMMAND",
        _process("program._LONGEST_DATAGRAM = 1000"),
        {
            "userspace/large-data": {"a datagram that fills most of a frame comes whole through a NodePort"},
        },
        engine="embedded/userspace",
    ),
    CodeDefect(
        "the process outlives the proxy",
        f"{_USERSPACE}.process",
        "StartedProcess.close",
        "lambda self: __import__('asyncio').sleep(0)",
        {
            "userspace/proxy-stops": {
                (
                    "the proxy of the client's node stops: "
                    "ClusterIP is refused after the proxy stopped in mode userspace only"
                )
            }
        },
        engine="embedded/userspace",
    ),
]
