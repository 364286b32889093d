"""Edits of scenario files, and the probes that each edit turns red.

The table removes a setting from a file, or adds one. ``breakages`` changes the rules instead.
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

_MARKS_ANEW = (
    "table ip queues { chain x { type filter hook forward priority 0; "
    "meta l4proto { tcp, udp } counter ip dscp set cs1; }; }"
)
_PROMPT = "the API server answers at once again, and the Service loses its endpoint"
_ELSEWHERE = "the endpoint becomes unready, and another node has one"
_TAKEN_OVER = "another pod takes the host ports over"
_GOES_ON = "node-a's proxy goes on"
_HEARD = "node-b announces the address, and neighbours hear it"
_UNHEARD = "node-a announces the address, and no neighbour hears it"

EDITS = [
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
        "network/default-route-by-a-second-uplink",
        ", routes: [{to: default, device: eth1, via: 172.19.0.1}]",
        "",
        {
            "pod that dials out is masqueraded with the address of the uplink that leads out",
            "node dials out with the address of the uplink that leads out",
            "NodePort at the first uplink answers by the second one unless rp_filter is strict",
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
        "icmp/errors-about-translated-packets",
        "mtu: {nodes: 1400}",
        "mtu: {nodes: 1500}",
        {
            "node tells a pod that its datagram to a ClusterIP is too big",
            "router tells a client that its datagram to a node port is too big",
        },
    ),
    Edit(
        "icmp/errors-about-translated-packets",
        "send: {as: packet, ttl: 3}\n    expect: {error",
        "send: {as: packet, ttl: 2}\n    expect: {error",
        {"error of the endpoint's node about a masqueraded packet comes back to the client"},
    ),
    Edit(
        "steps/proxy-paused-and-resumed",
        "change: {engines: {node-a: resume}}",
        "change: {pods: {client: {labels: {app: client}}}}",
        {f"{_GOES_ON}: proxy that goes on catches up with what it has missed"},
    ),
    Edit(
        "loadbalancer/health-check-of-a-paused-proxy",
        "change: {engines: {node-a: resume}}\n    until: {balancers: {edge: [node-a, node-b]}}",
        "change: {pods: {echo-1: {labels: {app: echo}}}}",
        {f"{_GOES_ON}: load balancer sends to a node again whose proxy goes on"},
    ),
    Edit(
        "loadbalancer/announced-by-one-node",
        '"fd00:172:18::ff00/120"], announcedBy: node-a}',
        '"fd00:172:18::ff00/120"], announcedBy: node-c}',
        {
            "load-balancer IP in the nodes' segment enters at the node that announces it",
            "host on the nodes' segment reaches the announced address without the router",
        },
    ),
    Edit(
        "loadbalancer/announced-by-one-node",
        "segment: {announcedBy: node-b}",
        "segment: {announcedBy: node-b, gratuitousARP: lost}",
        {
            f"{_HEARD}: announced address enters at the node that announced it last",
            f"{_HEARD}: host on the nodes' segment follows the gratuitous ARP",
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
        "steps/one-of-two-services-deleted",
        "spec: {ipFamilyPolicy: RequireDualStack, selector: {app: echo}, ports: [{port: 80",
        "spec: {ipFamilyPolicy: RequireDualStack, selector: {app: none}, ports: [{port: 80",
        {
            "the first Service is deleted: ClusterIP of the second Service still reaches the pod that both had",
            (
                "a Service with the same name and another port is created: "
                "ClusterIP of the second Service is not disturbed by a new first one"
            ),
        },
    ),
    Edit(
        "workloads/a-rolling-update-of-a-deployment",
        "terminationGracePeriodSeconds: 30\n  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}",
        "terminationGracePeriodSeconds: 0\n  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 2}}",
        {"each pod is replaced after a new one is ready, and streams go on"},
    ),
    Edit(
        "workloads/an-update-without-grace",
        "maxSurge: 0, maxUnavailable: 100%",
        "maxSurge: 1, maxUnavailable: 0",
        {"all old pods end at once, and streams lose packets until new pods are ready"},
    ),
    Edit(
        "workloads/a-stateful-set-by-name",
        "pod-name: db-0",
        "pod-name: db-1",
        {
            "ClusterIP of a Service for one pod reaches that pod alone",
            (
                "the StatefulSet is scaled to two pods and updated: "
                "ClusterIP of a Service for one pod reaches the pod that has its name again"
            ),
        },
    ),
    Edit(
        "workloads/a-daemon-set-on-each-node",
        'taints: ["dedicated=storage:NoSchedule"]',
        'taints: ["dedicated=storage:PreferNoSchedule"]',
        {"internalTrafficPolicy Local drops on a node whose taint keeps the DaemonSet away"},
    ),
    Edit(
        "workloads/containers-run-their-command",
        "[{port: 80, targetPort: http}]",
        "[{port: 80, targetPort: 8081}]",
        {"ClusterIP reaches a program of one's own in each pod of a Deployment"},
    ),
    Edit(
        "workloads/the-output-of-helm-template",
        "            - name: http\n              containerPort: 8080",
        "            - name: web\n              containerPort: 8080",
        {"ClusterIP of a chart's Service reaches the pods of its Deployment"},
    ),
    Edit(
        "bugs/28038-node-port-as-endpoint",
        "ipFamilyPolicy: RequireDualStack, selector: {app: echo}",
        "ipFamilyPolicy: RequireDualStack, selector: {app: none}",
        {
            "ClusterIP to an endpoint that is another node's NodePort is translated twice",
            "ClusterIP to an endpoint that is the client node's own NodePort is refused",
        },
    ),
    Edit(
        "bugs/94861-asymmetric-routing",
        "tcpBeLiberal: true",
        "tcpBeLiberal: false",
        {"a node that sees only one direction of a connection forwards with tcpBeLiberal"},
    ),
    Edit(
        "affinity/more-clients-than-the-recent-list-holds",
        "many: {addresses: 150}",
        "many: {addresses: 90}",
        {"three more pods become ready: ClientIP affinity forgets some of 150 clients in mode iptables only"},
    ),
    Edit(
        "affinity/timeout-counts-from-the-last-connection",
        "timeoutSeconds: 8",
        "timeoutSeconds: 800",
        {
            (
                "timeoutSeconds pass since the first connection and a second pod is ready: "
                "ClientIP affinity that no connection renewed has ended"
            )
        },
    ),
    Edit(
        "nodeport/loopback-addresses-only",
        'nodePortAddresses: [127.0.0.0/8, "::1/128"]',
        'nodePortAddresses: [172.18.0.0/16, "fd00:172:18::/64"]',
        {
            "NodePort at 127.0.0.1 is served in iptables if nodePortAddresses lists loopback",
            "NodePort from outside is refused if nodePortAddresses lists loopback alone",
            "NodePort from outside is refused over IPv6 if the list has loopback alone",
        },
    ),
    Edit(
        "spread/five-hundred-endpoints",
        "targetPort: 8080",
        "targetPort: 8081",
        {"ClusterIP of a Service with 500 endpoints delivers each of 200 packets"},
    ),
    Edit(
        "conntrack/half-closed-connections",
        "targetPort: 8080",
        "targetPort: 8081",
        {"ClusterIP over TCP carries a connection that both sides end in order"},
    ),
    Edit(
        "dns/coredns-caches-answers",
        "cache 30",
        "loadbalance",
        {"another pod takes over from one that terminates: DNS name gives a terminating pod from the cache of CoreDNS"},
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
        "hairpin/promiscuous-bridge-with-liberal-conntrack",
        "hairpin: promiscuous-bridge",
        "hairpin: hairpin-veth",
        {"ClusterIP from a pod to itself is dropped by the node or by the pod's own stack"},
    ),
    Edit(
        "health/healthz-of-a-node-being-removed",
        "{taints: [ToBeDeletedByClusterAutoscaler]}",
        "{}",
        {
            "healthz of a node with the taint ToBeDeletedByClusterAutoscaler answers 503",
            "healthz of a node with ToBeDeletedByClusterAutoscaler answers 503 over IPv6",
        },
    ),
    Edit(
        "detect-local/node-cidr",
        "detectLocalMode: NodeCIDR",
        'clusterCIDR: ""',
        {
            "NodeCIDR exempts a pod of the node from externalTrafficPolicy Local",
            "NodeCIDR masquerades an outside host at the cluster IP",
        },
    ),
    Edit(
        "detect-local/bridge-interface",
        "bridgeInterface: cni0",
        "bridgeInterface: cni1",
        {
            "BridgeInterface exempts a pod of the node from externalTrafficPolicy Local",
            "BridgeInterface preserves the client IP of a pod at the cluster IP",
        },
    ),
    Edit(
        "detect-local/interface-name-prefix",
        "interfaceNamePrefix: cli",
        "interfaceNamePrefix: pod",
        {
            "InterfaceNamePrefix exempts a pod of the node from externalTrafficPolicy Local",
            "InterfaceNamePrefix preserves the client IP of a pod at the cluster IP",
        },
    ),
    Edit(
        "detect-local/without-cluster-cidr",
        'clusterCIDR: ""',
        "",
        {
            "empty clusterCIDR drops a pod of the node under externalTrafficPolicy Local",
            "empty clusterCIDR does not masquerade an outside host, nor translate its reply",
            "empty clusterCIDR masquerades only in ipvs what a node sends from a cluster IP",
        },
    ),
    Edit(
        "detect-local/other-nodes-pod-with-cluster-cidr",
        "Mode: ClusterCIDR",
        "Mode: NodeCIDR",
        {"NodePort of another node with policy Local and ClusterCIDR replies untranslated"},
    ),
    Edit(
        "detect-local/other-nodes-pod-with-node-cidr",
        "Mode: NodeCIDR",
        "Mode: ClusterCIDR",
        {"NodePort of another node with policy Local and NodeCIDR drops a pod's packet"},
    ),
    Edit(
        "masquerade/a-foreign-masquerade-rule",
        "-A POSTROUTING -s 10.244.0.0/16 -o eth0 -j MASQUERADE",
        "-A POSTROUTING -s 10.245.0.0/16 -o eth0 -j MASQUERADE",
        {"ClusterIP from a pod is masqueraded by a foreign rule on the way to another node"},
        {"ClusterIP from a pod is masqueraded by a foreign rule on the way to another node"},
    ),
    Edit(
        "network/pods-on-the-nodes-subnet",
        "clusterCIDR: 172.18.0.0/16,fd00:172:18::/48",
        "clusterCIDR: 172.18.128.0/17,fd00:172:18:8000::/49",
        {"ClusterIP from a neighbour of the nodes gets an untranslated reply"},
    ),
    Edit(
        "masquerade/all",
        "masqueradeAll: true",
        "masqueradeAll: false",
        {
            "masqueradeAll hides a pod from backends on its own node and on another",
        },
    ),
    Edit(
        "nodeport/node-port-addresses",
        "nodePortAddresses: [172.18.0.0/16]",
        "nodePortAddresses: []",
        {
            "NodePort at an address outside nodePortAddresses is refused",
            "NodePort at 127.0.0.1 outside nodePortAddresses is refused",
        },
    ),
    Edit(
        "loadbalancer/health-check-on-node-port-addresses",
        "nodePortAddresses: [172.18.0.0/16]",
        "nodePortAddresses: []",
        {
            "healthCheckNodePort at an address outside nodePortAddresses is refused",
            "healthCheckNodePort at 127.0.0.1 outside nodePortAddresses is refused",
        },
    ),
    Edit(
        "nodeport/localhost-node-ports-off",
        "localhostNodePorts: false",
        "localhostNodePorts: true",
        {
            "a program on 127.0.0.1 keeps a NodePort's number with localhostNodePorts off",
            "NodePort at 127.0.0.1 is refused with localhostNodePorts off",
        },
    ),
    Edit(
        "manifests/status-addresses",
        "address: 172.18.0.77",
        "address: 172.18.0.78",
        {"NodePort masquerades with the IPv4 InternalIP of the Node manifest"},
    ),
    Edit(
        "network/daemons",
        "kubelet: {port: 10250}",
        "kubelet: {port: 10251}",
        {"a daemon on a node is reached from outside", "a daemon on a node is reached from outside over IPv6"},
    ),
    Edit(
        "network/fixed-addresses",
        'outside: {addresses: [203.0.113.1, "2001:db8:113::1"]}',
        'outside: {addresses: [203.0.113.3, "2001:db8:113::3"]}',
        {"LoadBalancer source ranges admit the first address of a segment"},
    ),
    Edit(
        "manifests/leading-zeros",
        "10.244.001.020",
        "10.244.001.016",
        {
            "ClusterIP with leading zeros is the decimal one",
            "external IP with leading zeros is the decimal one",
            "LoadBalancer IP with leading zeros admits the decimal source range",
            "another port of the old Service is published: ClusterIP with leading zeros survives an update",
        },
    ),
    Edit(
        "nodeport/range-of-its-own",
        "serviceNodePortRange: 20-8079",
        "serviceNodePortRange: 20-1019",
        {
            "NodePort that the API server allocates is the first behind the lower band",
            "IPv6 NodePort that the API server allocates is the first behind the lower band",
        },
    ),
    Edit(
        "network/outbound-masquerade",
        "outboundMasquerade: true",
        "outboundMasquerade: false",
        {"outbound masquerade gives a pod its node's address towards an outside host"},
    ),
    Edit(
        "network/icmp-errors-are-not-rate-limited",
        "node-a: {}",
        "node-a: {sysctls: {net.ipv4.icmp_ratemask: 6168}}",
        {"ClusterIP over UDP without endpoints rejects each of 200 flows"},
        over_one_family={"ClusterIP over UDP without endpoints rejects each of 200 flows"},  # a sysctl of IPv4
    ),
    Edit(
        "dns/headless-by-name",
        "ready: false",
        "ready: true",
        {
            "DNS name of a headless Service gives an endpoint its own address too",
            "DNS name of a headless Service gives the ready pods only",
        },
    ),
    Edit(
        "dns/names-follow-readiness",
        "{new: {ready: true}}",
        "{new: {ready: false}}",
        {
            "the first pod terminates: DNS name of a ClusterIP Service leads to the remaining ready pod",
            "the first pod terminates: DNS name of a headless Service leaves out a terminating pod that still serves",
            "a second pod becomes ready: DNS name of a headless Service gives both ready pods",
        },
    ),
    Edit(
        "dns/on-a-bridge",
        "node-a: {}",
        "node-a: {sysctls: {net.bridge.bridge-nf-call-iptables: 0, net.bridge.bridge-nf-call-ip6tables: 0}}",
        {"DNS name resolves for a pod on the bridge of the name server"},
    ),
    Edit(
        "steps/service-type-changes",
        "selector: {app: echo}, ports: [{name: tcp",
        "selector: {app: none}, ports: [{name: tcp",
        {
            (
                "the type changes from ExternalName to NodePort: "
                "NodePort is served after the type changes from ExternalName to NodePort"
            ),
            (
                "the type changes from ExternalName to NodePort: "
                "ClusterIP is served after the type changes from ExternalName to NodePort"
            ),
            "one port number is served over TCP and UDP: NodePort over TCP is served beside a NodePort over UDP",
            "one port number is served over TCP and UDP: NodePort over UDP is served beside a NodePort over TCP",
            "one port number is served over TCP and UDP: ClusterIP over UDP is served at the port number of TCP",
        },
    ),
    Edit(
        "steps/publish-not-ready-addresses-switched",
        "{publishNotReadyAddresses: false}",
        "{publishNotReadyAddresses: true}",
        {
            (
                "publishNotReadyAddresses is switched off: "
                "ClusterIP without publishNotReadyAddresses rejects if its only pod is unready"
            ),
            (
                "publishNotReadyAddresses is switched off: "
                "NodePort without publishNotReadyAddresses rejects if its only pod is unready"
            ),
            (
                "the pod terminates and is unready: "
                "ClusterIP rejects a pod of another node if its only pod terminates unready"
            ),
            (
                "the pod terminates and is unready: "
                "ClusterIP rejects a pod of the same node if its only pod terminates unready"
            ),
            (
                "the pod terminates and is unready: "
                "NodePort of the endpoint's node rejects if the only pod terminates unready"
            ),
        },
    ),
    Edit(
        "steps/protocol-removed-from-a-port",
        "ports: [{name: tcp, port: 80, targetPort: 8080}]}}, twin",
        "selector: {app: echo}}}, twin",
        {
            (
                "UDP is removed from the Service and the second Service is deleted: "
                "ClusterIP over UDP is not translated after UDP is removed"
            ),
            (
                "UDP is removed from the Service and the second Service is deleted: "
                "ClusterIP over UDP is not translated over IPv6 after UDP is removed"
            ),
        },
    ),
    Edit(
        "steps/affinity-timeout-at-a-node-port",
        "timeoutSeconds: 2}",
        "timeoutSeconds: 300}",
        {
            (
                "timeoutSeconds pass without a connection: "
                "ClientIP affinity at a NodePort ends after timeoutSeconds without a connection"
            ),
            "timeoutSeconds pass without a connection: ClientIP affinity with policy Local ends after timeoutSeconds",
        },
    ),
    Edit(
        "steps/affinity-timeout-at-a-node-port",
        "sessionAffinity: ClientIP\n  selector",
        "selector",
        {"a second pod becomes ready: ClientIP affinity at a NodePort returns all clients to their pod"},
    ),
    Edit(
        "steps/affinity-timeout-at-the-second-port",
        "timeoutSeconds: 2}",
        "timeoutSeconds: 300}",
        {
            (
                "three more pods become ready, and timeoutSeconds pass: "
                "ClientIP affinity at the second port ends after timeoutSeconds"
            )
        },
    ),
    Edit(
        "dns/by-a-program-of-the-author",
        "selector: {app: kube-dns}, ports: [{name: dns",
        "selector: {app: web}, ports: [{name: dns",
        {"a Service's name is resolved by the program behind kube-dns"},
    ),
    # What holds in mode userspace alone does not hold in mode iptables.
    Edit(
        "userspace/accepted-then-closed",
        "mode: userspace",
        "mode: iptables",
        {
            "ClusterIP of a closed port refuses, but mode userspace accepts and closes",
            "ClusterIP over UDP without endpoints rejects, but mode userspace drops",
            "ClusterIP without endpoints rejects, but mode userspace accepts and closes",
            "NodePort without endpoints rejects, but mode userspace accepts and closes",
        },
    ),
    Edit(
        "userspace/addresses-of-the-node",
        "selector: {app: echo}",
        "selector: {app: none}",
        {
            "external IP of no node is served to a pod at a bridge, but not in userspace",
            "external IP of no node is served to a node, but not in userspace",
            "external IP of no node is served to outside",
            "external IP that the node has is served to a pod at its bridge",
            "external IP that the node has is served to outside",
            "external IP that the node has is served to the node itself",
            "NodePort at a second address of the node is served, but refused in nftables",
        },
    ),
    Edit(
        "userspace/input-rule-before-the-process",
        "selector: {app: echo}",
        "selector: {app: none}",
        {"NodePort from outside passes an INPUT rule that drops new connections"},
    ),
    Edit(
        "userspace/every-pod-sees-the-node",
        "mode: userspace",
        "mode: iptables",
        {
            "ClusterIP by HTTP shows the client, but in mode userspace its node",
            "ClusterIP by UDP shows the client, but in mode userspace its gateway",
            "ClusterIP to another node shows the client, but in mode userspace its node",
            "ClusterIP to the same node shows the client, but in mode userspace its gateway",
        },
    ),
    Edit(
        "userspace/proxy-stops",
        "mode: userspace",
        "mode: iptables",
        {
            (
                "the proxy of the client's node stops: "
                "ClusterIP is refused after the proxy stopped in mode userspace only"
            ),
            "the proxy starts again: ClusterIP is served again after the proxy started",
        },
    ),
    Edit(
        "userspace/round-robin-and-affinity",
        "mode: userspace",
        "mode: iptables",
        {
            "ClusterIP spreads connections evenly over two endpoints in every mode",
            "ClusterIP with ClientIP affinity keeps to one endpoint in every mode",
        },
    ),
    Edit(
        "userspace/udp-client-keeps-its-endpoint",
        "mode: userspace",
        "mode: iptables",
        {
            "another pod is ready instead, and only in mode userspace the stream stays",
            (
                "another pod is ready instead, and only in mode userspace the stream stays: "
                "UDP from another port reaches the ready pod in every mode"
            ),
            "the first pod is ready again: UDP from the same port reaches the ready pod after udpIdleTimeout",
        },
    ),
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
