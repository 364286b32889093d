"""Edits of scenario files, and the probes that each edit turns red: of settings that no proxy reads.

What a proxy reads, a mutant of objects leaves out instead (``mutant_record``).
"""

from dataclasses import dataclass, field

__all__ = ["EDITS", "Edit"]


@dataclass(frozen=True)
class Edit:
    """A text of a scenario file, its replacement, and the probes that then do not pass in some case.

    ``over_one_family`` names those of them that pass over the other family.
    """

    file: str
    text: str
    becomes: str
    red: set[str]
    over_one_family: set[str] = field(default_factory=set)


_CHANGES_THE_PORT_ALONE = (
    "table ip cni { chain x { type nat hook postrouting priority 50; "
    "ip daddr 10.244.1.10 meta l4proto udp counter snat to 10.244.0.10:51234-51299; }; }"
)

_EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"

_UNHEARD = "node-a announces the address, and no neighbour hears it"

_MARKS_ANEW = (
    "table ip queues { chain x { type filter hook forward priority 0; "
    "meta l4proto { tcp, udp } counter ip dscp set cs1; }; }"
)
_HOPS_ANEW = (
    "table inet hops { chain x { type filter hook forward priority 0; "
    "meta nfproto ipv4 counter ip ttl set 64; meta nfproto ipv6 counter ip6 hoplimit set 64; }; }"
)
_EACH_HOP = {
    "ClusterIP of an endpoint on the same node takes one hop there and back",
    "ClusterIP of an endpoint on another node takes two hops there and back",
    "ClusterIP that a node dials takes no hop on that node",
    "NodePort takes one hop at each of the nodes on the way",
    "NodePort over UDP takes one hop at each of the nodes on the way",
}
_PROMPT = "the API server answers at once again, and the Service loses its endpoint"
_ELSEWHERE = "the endpoint becomes unready, and another node has one"
_TAKEN_OVER = "another pod takes the host ports over"

_NO_LOADS = "the node of the client cannot load rules, and another endpoint is added"
_NEW_ADDRESS = "node-a gets another address"
_NODE_IS_BACK = "the Node object is back, and another pod replaces the endpoint"

EDITS = [
    Edit(
        "hostport/beside-a-node-port",
        "nodePort: 30080}",
        "nodePort: 30081}",
        {"host port leads to the Service whose node port has its number"},
    ),
    Edit(
        "leftovers/rules-of-firewalld",
        "            ct status dnat accept\n",
        "",
        {
            "NodePort leads an outside host past firewalld, which has no port open for it",
            "NodePort leads an outside host past firewalld of two nodes",
        },
    ),
    Edit(
        "leftovers/rules-of-calico",
        "          -A cali-to-wl-dispatch -o cali-near -g cali-tw-cali-near\n",
        "",
        {
            "ClusterIP leads a pod past Calico's chains to an endpoint of the same node",
            "NodePort leads an outside host past Calico's chains",
        },
    ),
    Edit(
        "steps/a-node-gets-another-address",
        '{internalIPs: [172.18.0.77, "fd00:172:18::77"]}',
        "{taints: []}",
        {
            f"{_NEW_ADDRESS}: NodePort is served at the number of the new address",
            f"{_NEW_ADDRESS}: NodePort is served at the number of the new address over IPv6",
        },
    ),
    Edit(
        "steps/loads-of-rules-fail",
        "nodes: {node-a: {ruleLoads: fail}}, pods",
        "pods",
        {
            f"{_NO_LOADS}: ClusterIP leads by the rules of before where a load failed",
        },
    ),
    Edit(
        "steps/a-node-goes-and-returns",
        "nodes: {node-a: {present: true}}, pods",
        "pods",
        {
            f"{_NODE_IS_BACK}: ClusterIP leads to the endpoint that came with the Node object",
            f"{_NODE_IS_BACK}: NodePort leads to the endpoint that came with the Node object",
        },
    ),
    Edit(
        "conntrack/no-source-port-is-left",
        ", lastPort: 65535}",
        "}",
        {"NodePort drops a connection for which masquerading finds no source port"},
    ),
    Edit(
        "conntrack/among-100000-entries",
        '      - {protocol: UDP, from: "192.0.2.9:10001", to: "198.51.100.9:53", lastPort: 60000}\n',
        "",
        {"another pod replaces the endpoint"},
    ),
    Edit(
        "leftovers/rules-of-docker-and-flannel",
        '          -A FORWARD -m comment --comment "flanneld forward" -j FLANNEL-FWD\n',
        "",
        {
            "ClusterIP leads a pod past Docker's rules to an endpoint of the same node",
            "ClusterIP leads a pod past Docker's rules to an endpoint of another node",
            "NodePort with policy Local keeps the client's address past flannel's masquerade",
            "pod that dials out is masqueraded by flannel",
        },
    ),
    Edit(
        "network/mark-for-queues-is-kept",
        "nodes: {node-a: {}, node-b: {}}",
        f'nodes: {{node-a: {{leftovers: {{nft: "{_MARKS_ANEW}"}}}}, node-b: {{}}}}',
        {
            "ClusterIP of an endpoint on the same node keeps the mark",
            "ClusterIP of an endpoint on another node keeps the mark",
            "NodePort that masquerades the client keeps the mark",
            "NodePort over UDP keeps the mark",
        },
        over_one_family={
            "ClusterIP of an endpoint on the same node keeps the mark",
            "ClusterIP of an endpoint on another node keeps the mark",
            "NodePort that masquerades the client keeps the mark",
            "NodePort over UDP keeps the mark",
        },
    ),
    Edit(
        "network/one-hop-for-each-router",
        "nodes: {node-a: {}, node-b: {}}",
        f'nodes: {{node-a: {{leftovers: {{nft: "{_HOPS_ANEW}"}}}}, node-b: {{leftovers: {{nft: "{_HOPS_ANEW}"}}}}}}',
        _EACH_HOP,
    ),
    Edit(
        "network/default-route-by-a-second-uplink",
        ", routes: [{to: default, device: eth1, via: 172.19.0.1}]",
        "",
        {
            "pod that dials out is masqueraded with the address of the uplink that leads out",
            "node dials out with the address of the uplink that leads out",
            "NodePort of the first uplink answers by the second unless rp_filter is strict",
            "NodePort at the first uplink leads to another node and answers by the second one",
        },
    ),
    Edit(
        "steps/api-server-fails",
        "apiServer: prompt, pods: {fourth: null}",
        "apiServer: prompt",
        {f"{_PROMPT}: ClusterIP without endpoints is rejected after all faults of the API server"},
    ),
    Edit(
        "loadbalancer/published-by-name",
        "hostname: named-1234.elb.example",
        "hostname: other.elb.example",
        {"alias of the balancer's hostname resolves to its address"},
    ),
    Edit(
        "loadbalancer/published-by-name",
        ", dials: nodePorts, clientIP: replaced}",
        "}",
        {
            "balancer with a hostname dials node ports for a client outside",
            "pod reaches a balancer with a hostname through the balancer, not by its own node",
            "alias of the balancer's hostname resolves to its address",
        },
    ),
    Edit(
        "loadbalancer/dials-node-ports",
        "dials: nodePorts, clientIP: replaced",
        "dials: nodePorts",
        {
            "balancer that replaces the client's address shows its own under policy Local",
            "pod reaches an address with ipMode Proxy through the balancer that hides it",
        },
    ),
    Edit(
        "loadbalancer/dials-node-ports",
        ", dials: nodePorts, healthChecked: true}",
        ", dials: nodePorts}",
        {
            "balancer that checks health dials the node port of a node with an endpoint alone",
            f"{_ELSEWHERE}: balancer follows the health checks of node ports to the other node",
        },
    ),
    Edit(
        "hostport/leads-to-a-pod",
        "{name: http, port: 8080, hostPort: 80}\n      - {name: dns",
        "{name: http, port: 8080, hostPort: 81}\n      - {name: dns",
        {"host port is served at the address of the pod's node"},
    ),
    Edit(
        "hostport/leads-to-a-pod",
        "change: {pods: {successor: {present: true}}}",
        "change: {pods: {neighbour: {labels: {app: neighbour}}}}",
        {
            f"{_TAKEN_OVER}: host port leads to the pod that has it now",
            f"{_TAKEN_OVER}: host port over UDP leads an open flow to the pod that has it now",
        },
    ),
    Edit(
        "hostport/service-lb-of-k3s",
        "      forwardsTo: default/proxied\n",
        "",
        {
            "pod of ServiceLB passes packets on to the cluster IP from its own address",
            "node's address with ipMode Proxy is left to the pod of ServiceLB",
        },
    ),
    Edit(
        "icmp/mtu-of-a-link-and-of-a-route",
        ", mtu: 1300}",
        "}",
        {"node says that a datagram to a ClusterIP is too big for its route"},
    ),
    Edit(
        "icmp/mtu-of-a-link-and-of-a-route",
        "mtu: 1300, labels",
        "labels",
        {
            "endpoint's node says that a datagram is too big for the pod's link",
            "error about a masqueraded datagram comes back from the endpoint's node",
        },
    ),
    Edit(
        "icmp/errors-about-translated-packets",
        "mtu: {nodes: 1400}",
        "mtu: {nodes: 1500}",
        {
            "node tells a pod that its datagram to a ClusterIP is too big",
            "router tells a client that its datagram to a node port is too big",
        },
    ),
    Edit(
        "loadbalancer/announced-by-one-node",
        ", gratuitousARP: lost",
        "",
        {
            f"{_UNHEARD}: router that missed the gratuitous ARP goes on sending to the former node",
        },
    ),
    Edit(
        "loadbalancer/excluded-nodes",
        f'node-c: {{labels: {{{_EXCLUDED}: ""}}}}',
        "node-c: {}",
        {"load balancer sends nothing to a node that its label excludes"},
    ),
    Edit(
        "loadbalancer/excluded-nodes",
        f'        node-c: {{labels: {{{_EXCLUDED}: "true"}}}}',
        f'        node-c: {{labels: {{{_EXCLUDED}: "0"}}}}',
        {"all nodes but one are excluded: load balancer sends everything to the only node that no label excludes"},
    ),
    Edit(
        "clusterip/one-client-port-to-two-services",
        "    node-a:\n",
        f'    node-a:\n      leftovers: {{nft: "{_CHANGES_THE_PORT_ALONE}"}}\n',
        {
            "ClusterIP over UDP keeps a client port that no other connection has",
            "ClusterIP keeps a client port that a connection to another endpoint has",
        },
        # The rule is one of IPv4.
        over_one_family={
            "ClusterIP over UDP keeps a client port that no other connection has",
            "ClusterIP keeps a client port that a connection to another endpoint has",
        },
    ),
    Edit(
        "clusterip/one-client-port-to-two-services",
        ':40001", to',
        ':40003", to',
        {"the kernel changes a client port that a connection to the same endpoint has"},
    ),
    Edit(
        "workloads/a-rolling-update-of-a-deployment",
        "terminationGracePeriodSeconds: 30\n  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}",
        "terminationGracePeriodSeconds: 0\n  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 2}}",
        {"each pod is replaced after a new one is ready, and streams go on"},
    ),
    Edit(
        "bugs/94861-asymmetric-routing",
        "tcpBeLiberal: true",
        "tcpBeLiberal: false",
        {"a node that sees only one direction of a connection forwards with tcpBeLiberal"},
    ),
    Edit(
        "ingress/hosts-and-paths",
        "path: /cart, pathType: Exact",
        "path: /cart, pathType: ImplementationSpecific",
        {
            "Exact wins over a Prefix of the same path",
            "a Prefix matches whole elements of a path and no longer word",
        },
    ),
    Edit(
        "ingress/client-address",
        "spec: {type: LoadBalancer, selector: {app: nginx}",
        "spec: {type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: nginx}",
        {"X-Forwarded-For has a node's address with externalTrafficPolicy Cluster"},
    ),
    Edit(
        "ingress/tls",
        'hosts: [shop.example, "*.shop.example"]',
        "hosts: [shop.example]",
        {"a host that the certificate names by a wildcard is served over TLS"},
    ),
    Edit(
        "ingress/endpoints-change",
        "change: {pods: {new: {ready: true}}}",
        "change: {pods: {new: {ready: false}}}",
        {
            "a second pod becomes ready: both ready pods share the requests",
            "the first pod terminates: a terminating pod gets no request although it still serves",
        },
    ),
    Edit(
        "ingress/old-manifest",
        "servicePort: web",
        "servicePort: metrics",
        {"a path without a type matches longer words, as nginx does by itself"},
    ),
    Edit(
        "ingress/http-route",
        "weight: 20",
        "weight: 0",
        {"requests to an HTTPRoute reach the pods of both Services that share them"},
    ),
    Edit(
        "network/daemons",
        "kubelet: {port: 10250}",
        "kubelet: {port: 10251}",
        {"a daemon on a node is reached from outside", "a daemon on a node is reached from outside over IPv6"},
    ),
    Edit(
        "network/outbound-masquerade",
        "outboundMasquerade: true",
        "outboundMasquerade: false",
        {"outbound masquerade gives a pod its node's address towards an outside host"},
    ),
    Edit(
        "dns/on-a-bridge",
        "node-a: {}",
        "node-a: {sysctls: {net.bridge.bridge-nf-call-iptables: 0, net.bridge.bridge-nf-call-ip6tables: 0}}",
        {"DNS name resolves for a pod on the bridge of the name server"},
    ),
    # What holds in mode userspace alone does not hold in mode iptables.
    Edit(
        "steps/proxy-mode-changes-from-userspace",
        "mode: [userspace]",
        "mode: [iptables]",
        {
            "streams reach the Service in mode userspace",
            (
                "the proxy changes to mode iptables, and streams reach the Service as the client: "
                "ClusterIP shows the node where the proxy is still in mode userspace"
            ),
        },
    ),
]
