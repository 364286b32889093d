"""What is changed in a scenario file, and which of its probes turn red by it.

Owns: the table that takes a setting out of a file, or puts one in. ``breakages`` has what is broken in the rules.
Must not: run anything.
"""

from dataclasses import dataclass, field

__all__ = ["EDITS", "Edit"]


@dataclass(frozen=True)
class Edit:
    """A text of a scenario file, what it becomes, and the probes that then do not pass in some case.

    ``over_one_family`` are those of them that pass over the other family.
    """

    file: str
    text: str
    becomes: str
    red: set[str]
    over_one_family: set[str] = field(default_factory=set)


EDITS = [
    Edit(
        "bugs/28038-node-port-as-endpoint",
        "ipFamilyPolicy: RequireDualStack, selector: {app: echo}",
        "ipFamilyPolicy: RequireDualStack, selector: {app: nobody}",
        {"another node's node port is translated again", "the client's own node's is not"},
    ),
    Edit(
        "bugs/94861-asymmetric-routing",
        "tcpBeLiberal: true",
        "tcpBeLiberal: false",
        {"what a node sees half of is carried by a liberal kernel"},
    ),
    Edit(
        "affinity/more-clients-than-the-recent-list-holds",
        "many: {addresses: 150}",
        "many: {addresses: 90}",
        {"the others are ready: of many some have been forgotten"},
    ),
    Edit(
        "affinity/timeout-counts-from-the-last-connection",
        "timeoutSeconds: 3",
        "timeoutSeconds: 300",
        {"the timeout is over since the first time, and another is ready: who came once is a stranger"},
    ),
    Edit(
        "hairpin/promiscuous-bridge-with-liberal-conntrack",
        "hairpin: promiscuous-bridge",
        "hairpin: hairpin-veth",
        {"a pod that dials itself through its Service hears nothing"},
    ),
    Edit(
        "health/healthz-of-a-node-being-removed",
        "{taints: [ToBeDeletedByClusterAutoscaler]}",
        "{}",
        {
            "one that the autoscaler is about to remove is not",
            "one that the autoscaler is about to remove is not, over IPv6",
        },
    ),
    Edit(
        "detect-local/node-cidr",
        "detectLocalMode: NodeCIDR",
        'clusterCIDR: ""',
        {"a pod is short-circuited past the policy Local", "a stranger is masqueraded"},
    ),
    Edit(
        "detect-local/bridge-interface",
        "bridgeInterface: cni0",
        "bridgeInterface: cni1",
        {"a pod is short-circuited past the policy Local", "a pod keeps its address"},
    ),
    Edit(
        "detect-local/interface-name-prefix",
        "interfaceNamePrefix: cli",
        "interfaceNamePrefix: pod",
        {"a pod is short-circuited past the policy Local", "a pod keeps its address"},
    ),
    Edit(
        "detect-local/without-cluster-cidr",
        'clusterCIDR: ""',
        "",
        {
            "a pod is not short-circuited past the policy Local",
            "a stranger is not masqueraded, and answered by somebody it never dialled",
        },
    ),
    Edit(
        "detect-local/other-nodes-pod-with-cluster-cidr",
        "Mode: ClusterCIDR",
        "Mode: NodeCIDR",
        {"the answer comes from a pod that was never dialled"},
    ),
    Edit(
        "detect-local/other-nodes-pod-with-node-cidr",
        "Mode: NodeCIDR",
        "Mode: ClusterCIDR",
        {"the second node drops it, as it would drop a stranger's"},
    ),
    Edit(
        "masquerade/all",
        "masqueradeAll: true",
        "masqueradeAll: false",
        {"a backend elsewhere sees the node", "a backend of the node sees the pods' gateway"},
    ),
    Edit(
        "nodeport/node-port-addresses",
        "nodePortAddresses: [172.18.0.0/16]",
        "nodePortAddresses: []",
        {"another one has none", "loopback has none"},
    ),
    Edit(
        "nodeport/localhost-node-ports-off",
        "localhostNodePorts: false",
        "localhostNodePorts: true",
        {"a program there keeps its port", "loopback has no node port"},
    ),
    Edit(
        "manifests/status-addresses",
        "address: 172.18.0.77",
        "address: 172.18.0.78",
        {"the node masquerades as the address of its status"},
    ),
    Edit(
        "network/daemons",
        "kubelet: {port: 10250}",
        "kubelet: {port: 10251}",
        {"a daemon hears an outside host", "a daemon hears an outside host, over IPv6"},
    ),
    Edit(
        "network/outbound-masquerade",
        "outboundMasquerade: true",
        "outboundMasquerade: false",
        {"a pod that calls the world bears its node's address"},
    ),
    Edit(
        "network/icmp-errors-are-not-rate-limited",
        "node-a: {}",
        "node-a: {sysctls: {net.ipv4.icmp_ratemask: 6168}}",
        {"every rejected flow hears of it"},
        over_one_family={"every rejected flow hears of it"},  # a sysctl of IPv4
    ),
    Edit(
        "dns/headless-by-name",
        "ready: false",
        "ready: true",
        {"a pod that is behind the name dials it as well", "the name gives the ready pods"},
    ),
    Edit(
        "dns/names-follow-readiness",
        "{new: {ready: true}}",
        "{new: {ready: false}}",
        {
            "the first terminates: the cluster IP's name leads there as well",
            "the first terminates: the name gives the other alone, though the first still serves",
            "the other becomes ready: the name gives both",
        },
    ),
    Edit(
        "dns/on-a-bridge",
        "node-a: {}",
        "node-a: {sysctls: {net.bridge.bridge-nf-call-iptables: 0, net.bridge.bridge-nf-call-ip6tables: 0}}",
        {"a pod beside the name server asks for a name of its own namespace"},
    ),
    Edit(
        "steps/service-type-changes",
        "selector: {app: echo}, ports: [{name: tcp",
        "selector: {app: nobody}, ports: [{name: tcp",
        {
            "from a name to a node port: the node port is served",
            "from a name to a node port: so is the cluster IP",
            "one number over both protocols: over TCP",
            "one number over both protocols: over UDP",
            "one number over both protocols: the cluster IP over UDP",
        },
    ),
    Edit(
        "steps/publish-not-ready-addresses-switched",
        "{publishNotReadyAddresses: false}",
        "{publishNotReadyAddresses: true}",
        {
            "no longer published: an unready pod is nobody",
            "no longer published: by a node port too",
            "it terminates and is unready: who terminates and does not serve is nobody",
            "it terminates and is unready: nor beside it",
            "it terminates and is unready: nor by its node",
        },
    ),
    Edit(
        "steps/protocol-removed-from-a-port",
        "ports: [{name: tcp, port: 80, targetPort: 8080}]}}, twin",
        "selector: {app: echo}}}, twin",
        {"UDP goes: UDP is served no more", "UDP goes: nor is it over IPv6"},
    ),
    Edit(
        "steps/affinity-timeout-at-a-node-port",
        "timeoutSeconds: 2}",
        "timeoutSeconds: 300}",
        {"the timeout is over and another is ready: the crowd belongs to nobody"},
    ),
]
