"""Defects in the rules, and the probes of the scenarios that each defect turns red.

The table removes a rule from the renderer, or changes how it chooses; ``edits`` changes scenario files instead.

One test applies one defect to all files that concern it. Most files dial over both families, and the same code renders
the rules of each. So a probe that turns red does so over both, and the table names exceptions with their reason.
"""

from dataclasses import dataclass, field

__all__ = ["BREAKAGES", "Breakage"]

BODIES = "proxylab.engines.embedded.iptables.service_chains"
FIXED = "proxylab.engines.embedded.iptables.fixed"
FRONTS = "proxylab.engines.embedded.iptables.dispatch_rules"
MATCHES = "proxylab.engines.embedded.iptables.matches"
SCOPE = "proxylab.engines.embedded.iptables.scope"
CATEGORIES = "proxylab.engines.embedded.categories"
PORTS = "proxylab.engines.embedded.ports"
NAMES = "proxylab.cluster.kube_dns"
NODE_WORK = "proxylab.engines.embedded.node_work"
UDP = "proxylab.engines.embedded.udp"


@dataclass(frozen=True)
class Breakage:
    """A replacement in the renderer, and the probes of each file that do not pass in some case of it.

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


BREAKAGES = [
    Breakage(
        "no masquerade",
        FIXED,
        "masquerade",
        "lambda settings: ()",
        {
            "nodeport/masquerade-address-by-network": {
                "NodePort from a node at itself has the outgoing device's source IP",
                "NodePort from localhost has the outgoing device's source IP",
                "NodePort from a pod at its own node has the outgoing device's source IP",
                "NodePort from outside has the outgoing device's source IP",
            },
            "nodeport/two-clients-with-one-source-port": {
                "NodePort over UDP from the first pod with source port 40000 is answered",
                "NodePort over UDP from a second pod with source port 40000 is answered",
            },
            "externalip/unassigned-address": {
                "external IP from a pod over TCP is translated and masqueraded by its node",
                "external IP from outside is translated and masqueraded by the entry node",
                "external IP from a pod over UDP is translated and masqueraded by its node",
            },
            "masquerade/all": {"masqueradeAll hides a pod from backends on its own node and on another"},
            "clusterip/host-network-endpoints": {
                "NodePort from outside to a host-network endpoint elsewhere is masqueraded"
            },
            "manifests/hosts-as-endpoints": {"NodePort without selector reaches hosts of a manual EndpointSlice"},
            "detect-local/cluster-cidr": {"ClusterCIDR masquerades an outside host at the cluster IP"},
            "fragments/datagrams-above-the-mtu": {"NodePort over UDP masquerades all fragments from outside"},
            "senders/from-a-node": {
                "ClusterIP from a node reaches a pod of the node",
                "ClusterIP from a node reaches a pod of another node",
                "ClusterIP from a node translates a crafted UDP datagram",
                "ClusterIP from a node translates a crafted TCP SYN",
                "NodePort from a node at its own address is served",
                "NodePort over UDP from a node at its own address is served",
                "NodePort from a node at another node is masqueraded by that node",
            },
            "senders/from-loopback": {
                "NodePort on localhost with externalTrafficPolicy Local is masqueraded",
                "NodePort on localhost reaches a pod of another node in mode iptables",
                "NodePort on localhost reaches a pod of the node in mode iptables",
            },
        },
        # ::1 has no node ports that could be masqueraded.
        over_one_family={
            "NodePort from localhost has the outgoing device's source IP",
            "NodePort on localhost with externalTrafficPolicy Local is masqueraded",
            "NodePort on localhost reaches a pod of another node in mode iptables",
            "NodePort on localhost reaches a pod of the node in mode iptables",
        },
    ),
    Breakage(
        "external IPs in spite of their feature gate",
        "proxylab.engines.catalogue",
        "allows_external_ips",
        "lambda configuration: True",
        {"externalip/feature-gate-off": {"external IP from outside is served while its feature gate is on"}},
    ),
    Breakage(
        "no rule against hairpins",
        BODIES,
        "hairpin",
        "lambda scope, endpoint: ()",
        {
            "hairpin/on-a-bridge": {"ClusterIP from a pod to itself on a bridge needs hairpin or no bridge-nf-call"},
            "hairpin/on-a-promiscuous-bridge": {
                "ClusterIP from a pod to itself on a promiscuous bridge needs no bridge-nf-call"
            },
            "network/hairpin": {"ClusterIP from a pod to itself is delivered and masqueraded"},
        },
    ),
    Breakage(
        "one in n for every endpoint",
        BODIES,
        "share",
        "lambda index, count: '' if count - index == 1 else f'-m statistic --mode random --probability {1 / count:f}'",
        {
            "spread/two-three-four-and-seven-endpoints": {
                "ClusterIP gives each of four endpoints a quarter of the connections",
                "ClusterIP gives each of seven endpoints a seventh of the connections",
                "ClusterIP gives each of three endpoints a third of the connections",
            }
        },
    ),
    Breakage(
        "a mark that nothing clears",
        FIXED,
        "postrouting",
        "lambda settings, whole=module.postrouting: tuple(rule for rule in whole(settings) if 'xor' not in str(rule))",
        {
            "masquerade/once-through-a-tunnel": {
                "ClusterIP from a node through VXLAN does not masquerade the outer packet",
                "NodePort from outside through VXLAN masquerades the inner packet only",
            }
        },
    ),
    Breakage(
        "rules that ask for an address alone",
        SCOPE,
        "to_address",
        "lambda protocol, address, port: f'-d {address}'",
        {"icmp/echo-requests": {"echo request to an empty Service is untranslated, or rejected in nftables"}},
    ),
    Breakage(
        "no guard of loopback",
        FIXED,
        "loopback_guard",
        "lambda: ()",
        {
            "bugs/92315-neighbours-reach-loopback": {
                "UDP for 127.0.0.1 from a host on the node's link is dropped",
                "an echo request for 127.0.0.1 from a host on the node's link is dropped",
            }
        },
    ),
    Breakage(
        "every source is of the range",
        BODIES,
        "source_ranges",
        "lambda scope: iter((f'-A {scope.chains.firewall} -j {scope.chains.external}',))",
        {
            "loadbalancer/source-ranges": {
                "loadBalancerSourceRanges drops an outside host outside the range",
                "loadBalancerSourceRanges drops a node outside the range",
                "loadBalancerSourceRanges drops a pod outside the range",
            },
            "loadbalancer/kube-xlb-and-kube-mark-drop": {
                "load balancer IP with source ranges drops a node outside the range in OUTPUT"
            },
        },
    ),
    Breakage(
        "no external IPs",
        FRONTS,
        "external_ip",
        "lambda scope, address: ()",
        {
            "externalip/unassigned-address": {
                "external IP from a node is translated on the node itself",
                "external IP from a pod over TCP is translated and masqueraded by its node",
                "external IP from outside is translated and masqueraded by the entry node",
                "external IP from a pod over UDP is translated and masqueraded by its node",
            },
            "externalip/hijacked-address": {
                "external IP that is another host's address redirects a node to the Service",
                "external IP that is another host's address redirects a pod to the Service",
            },
        },
    ),
    Breakage(
        "no refusal but at the cluster IP",
        FRONTS,
        "_refused",
        "lambda scope, destination: ()",
        {
            "rejections/at-every-frontend": {
                "NodePort without endpoints rejects the node itself",
                "NodePort without endpoints rejects a pod at another node",
                "NodePort without endpoints rejects a pod at its own node",
                "external IP without endpoints rejects a pod",
                "load balancer IP without endpoints rejects a pod on the pod's own node",
                "external IP without endpoints rejects an outside host",
                "load balancer IP without endpoints rejects an outside host",
                "NodePort without endpoints rejects an outside host",
            },
            "rejections/daemon-on-the-node-port": {
                "NodePort at an address outside nodePortAddresses rejects in iptables only",
                "NodePort without endpoints rejects a pod before a daemon on the port",
                "IPv6 NodePort at an address outside nodePortAddresses rejects in iptables only",
                "NodePort without endpoints rejects an outside host before a daemon on the port",
            },
            "rejections/no-local-endpoint-or-no-endpoint": {
                "NodePort with policy Local rejects if the Service has no endpoint",
                "NodePort with policy Local drops if all endpoints are on other nodes",
            },
            "loadbalancer/health-checked": {"load balancer IP with policy Local drops on a node without endpoint"},
        },
    ),
    Breakage(
        "no refusal at the cluster IP",
        FIXED,
        "JUMPS",
        "tuple(rule for rule in module.JUMPS if (rule.chain[0], rule.target) != module.names.REJECT_INTERNAL)",
        {
            "clusterip/no-endpoints": {
                "ClusterIP without a ready pod is rejected at once",
                "ClusterIP over TCP without a matching pod is rejected at once",
                "ClusterIP over UDP without a matching pod is rejected at once",
                "ClusterIP from outside without a matching pod is rejected by the entry node",
                "ClusterIP without a ready pod rejects each of 50 packets",
            },
            "clusterip/internal-traffic-policy-local": {
                "ClusterIP with internalTrafficPolicy Local drops on a node without endpoint"
            },
            "clusterip/publish-not-ready-addresses": {
                "ClusterIP without publishNotReadyAddresses rejects while no pod is ready"
            },
            "manifests/namespaces": {"ClusterIP in a namespace without matching pods is rejected"},
            "rejections/no-local-endpoint-or-no-endpoint": {
                "ClusterIP with policy Local rejects if the Service has no endpoint",
                "ClusterIP with policy Local drops if all endpoints are on other nodes",
                "ClusterIP beside an external IP drops under internalTrafficPolicy Local",
                "ClusterIP without another frontend drops under internalTrafficPolicy Local",
            },
        },
    ),
    Breakage(
        "no short circuit",
        BODIES,
        "short_circuit",
        "lambda scope: iter(())",
        {
            "loadbalancer/short-circuits": {
                "load balancer IP with policy Local serves the node itself by any endpoint",
                "NodePort with policy Local serves the node itself by any endpoint",
                "load balancer IP with policy Local serves a pod of the node by any endpoint",
            },
            "loadbalancer/kube-xlb-and-kube-mark-drop": {
                "load balancer IP with policy Local sends a node by KUBE-MARK-MASQ to KUBE-SVC",
                "load balancer IP with policy Local sends a pod to KUBE-SVC",
            },
            "detect-local/cluster-cidr": {"ClusterCIDR exempts a pod of the node from externalTrafficPolicy Local"},
            "senders/from-loopback": {"NodePort on localhost with externalTrafficPolicy Local is masqueraded"},
        },
        # ::1 has no node ports.
        over_one_family={"NodePort on localhost with externalTrafficPolicy Local is masqueraded"},
    ),
    Breakage(
        "no last resort",
        CATEGORIES,
        "_usable",
        "lambda endpoints: tuple(each for each in endpoints if each.ready)",
        {
            "terminating/fallback-without-ready-endpoints": {
                "ClusterIP without ready endpoint reaches a terminating endpoint that serves"
            },
            "terminating/local-policy-fallback": {
                "NodePort with policy Local is served by the node's terminating endpoint"
            },
        },
    ),
    Breakage(
        "no hints",
        CATEGORIES,
        "_hinted",
        "lambda ready, node: tuple(ready)",
        {
            "topology/prefer-same-node": {
                "PreferSameNode keeps a pod on its node if that has an endpoint",
                "PreferSameNode keeps a pod in its zone if its node has no endpoint",
            },
            "topology/prefer-same-zone": {
                "PreferClose keeps a pod of zone east in its zone",
                "PreferClose keeps a pod of zone west in its zone",
                "zone hints for another zone are followed under internalTrafficPolicy Cluster",
            },
        },
    ),
    Breakage(
        "hints of the west under the policy Local as well",
        CATEGORIES,
        "_usable",
        "lambda endpoints, usable=module._usable: tuple(e for e in usable(endpoints) if 'west' not in e.for_zones)",
        {"topology/prefer-same-zone": {"zone hints are ignored under internalTrafficPolicy Local"}},
    ),
    Breakage(
        "a cluster IP with every port of it",
        SCOPE,
        "to_address",
        "lambda protocol, address, port: f'-p {protocol.lower()} -d {address!s}'",
        {
            "clusterip/several-ports": {"port metrics reaches only pods with target port metrics"},
            "untranslated/unused-port-of-a-cluster-ip": {
                "unused ClusterIP port is untranslated, or rejected in nftables",
                "unused IPv6 ClusterIP port is untranslated, or rejected in nftables",
                "unused ClusterIP port from a node is untranslated, or rejected in nftables",
                "unused IPv6 ClusterIP port from a node is untranslated, or rejected in nftables",
            },
        },
    ),
    Breakage(
        "no DNAT",
        BODIES,
        "translation",
        "lambda scope, endpoint: ()",
        {
            "bugs/74839-segment-out-of-window": {
                "ClusterIP from a pod carries a TCP connection to a pod on another node"
            },
            "bugs/117924-segment-out-of-window-at-a-node": {
                "ClusterIP from a node carries a TCP connection to a pod of the node"
            },
            "clusterip/in-a-second-service-cidr": {
                "ClusterIP in the first ServiceCIDR is served to a pod",
                "ClusterIP in a second ServiceCIDR is served to a pod",
                "ClusterIP in a second ServiceCIDR is served to an outside host",
            },
            "clusterip/headless": {"ClusterIP with the pods of a headless Service is translated"},
            "clusterip/one-port-over-tcp-and-udp": {
                "ClusterIP port 53 over UDP reaches the UDP target port",
                "ClusterIP port 53 over TCP reaches the TCP target port",
                "ClusterIP port 53 over UDP spreads evenly over the endpoints",
                "ClusterIP port 53 over TCP preserves the source of the pod that serves UDP",
                "ClusterIP port 53 over UDP preserves the source of the pod that serves TCP",
                "internalTrafficPolicy Local over TCP preserves the pod that serves UDP",
                "internalTrafficPolicy Local over UDP preserves the pod that serves TCP",
            },
            "hairpin/same-node-reply-past-a-bridge": {
                "ClusterIP needs bridge-nf-call for the reply of a backend on the client's bridge",
            },
            "network/host-network-and-shared-netns": {
                "ClusterIP reaches every endpoint in a shared namespace",
                "ClusterIP from a pod reaches host-network endpoints on all nodes",
                "ClusterIP from a pod in a shared namespace reaches a pod in another one",
            },
        },
    ),
    Breakage(
        "every Service is ours",
        PORTS,
        "SERVICE_PROXY_NAME_LABEL",
        "'nobody'",
        {
            "clusterip/service-proxy-name-label": {
                "ClusterIP with label service-proxy-name is not translated",
                "ClusterIP with label service-proxy-name and no endpoints is not rejected",
            }
        },
    ),
    Breakage(
        "every balancer's address is the Service's",
        PORTS,
        "_vips",
        "lambda service, family: module._of_family([e.ip for e in service.load_balancer_ingress if e.ip], family)",
        {
            "loadbalancer/ip-mode-proxy": {
                "load balancer IP with ipMode Proxy is not translated for a pod",
                "load balancer IP with ipMode Proxy is not translated for a node",
            }
        },
    ),
    Breakage(
        "the policy for strangers at the cluster IP as well",
        SCOPE,
        "PortScope.internal_chain",
        "property(lambda scope: scope.chains.local if scope.endpoints.local else scope.chains.cluster)",
        {
            "clusterip/ignores-external-traffic-policy": {
                "ClusterIP ignores externalTrafficPolicy Local for a pod beside an endpoint"
            }
        },
    ),
    Breakage(
        "no node ports",
        FRONTS,
        "node_port",
        "lambda scope: ()",
        {
            "nodeport/node-port-addresses": {
                "NodePort at an address within nodePortAddresses is served",
                "NodePort at any IPv6 address is served if nodePortAddresses lists only IPv4",
            },
            "nodeport/localhost-node-ports-off": {
                "NodePort at the node's address is served with localhostNodePorts off"
            },
            "steps/node-port-of-an-open-connection": {
                f"Services get the three ports as node ports, and the connections lose nothing: {each}"
                for each in (
                    "TCP from a server's port to a node port without its connection is a new one",
                    "UDP from a server's port to a node port without its flow is a new one",
                )
            },
            "network/strict-reverse-path": {
                "NodePort at the first uplink is served with any rp_filter",
                "NodePort at a second uplink is served unless rp_filter is strict",
            },
        },
    ),
    Breakage(
        "no load-balancer IPs",
        FRONTS,
        "load_balancer_vip",
        "lambda scope, address: ()",
        {
            "loadbalancer/without-node-ports": {"load balancer IP without allocated node ports is served"},
            "loadbalancer/health-checked": {
                "load balancer with health checks leaves out a node without endpoint",
                "load balancer IP with policy Local drops on a node without endpoint",
            },
        },
    ),
]
