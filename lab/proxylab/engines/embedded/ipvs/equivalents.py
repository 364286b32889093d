"""Mutants of rules of mode ipvs that no packet of any scenario can tell from the rule, each with its proof."""

from typing import Final

from proxylab.engines.embedded.mutation import ABSENT, Equivalent

_EXTERNAL: Final = (
    "--match-set KUBE-EXTERNAL-IP dst,dst -j ACCEPT "
    "# Kubernetes service external ip + port for masquerade and filter purpose"
)
_EXTERNAL_LOCAL: Final = (
    "--match-set KUBE-EXTERNAL-IP-LOCAL dst,dst -j ACCEPT "
    "# Kubernetes service external ip + port with externalTrafficPolicy=local"
)
_FROM_OUTSIDE: Final = tuple(
    f"nat KUBE-SERVICES ! --physdev-is-in ! --src-type LOCAL {each}" for each in (_EXTERNAL, _EXTERNAL_LOCAL)
)
_TO_NODE: Final = tuple(f"nat KUBE-SERVICES --dst-type LOCAL {each}" for each in (_EXTERNAL, _EXTERNAL_LOCAL))
_NODE_PORT_LOCAL: Final = {
    "TCP": "nat KUBE-NODE-PORT -p PROTOCOL --match-set KUBE-NODE-PORT-LOCAL-TCP dst -j RETURN "
    "# Kubernetes nodeport TCP port with externalTrafficPolicy=local",
    "UDP": "nat KUBE-NODE-PORT -p PROTOCOL --match-set KUBE-NODE-PORT-LOCAL-UDP dst -j RETURN "
    "# Kubernetes nodeport UDP port with externalTrafficPolicy=local",
    "SCTP": "nat KUBE-NODE-PORT -p PROTOCOL --match-set KUBE-NODE-PORT-LOCAL-SCTP-HASH dst,dst -j RETURN "
    "# Kubernetes nodeport SCTP port with externalTrafficPolicy=local with type 'hash ip:port'",
}
_NODE_PORT_SCTP: Final = (
    "nat KUBE-NODE-PORT -p PROTOCOL --match-set KUBE-NODE-PORT-SCTP-HASH dst,dst -j KUBE-MARK-MASQ "
    "# Kubernetes nodeport SCTP port for masquerade purpose with type 'hash ip:port'"
)
_PERSISTENT: Final = tuple(
    f"ipvs {each} -A ENDPOINT -s rr -p SECONDS"
    for each in ("KUBE-CLUSTER-IP", "KUBE-EXTERNAL-IP", "KUBE-LOAD-BALANCER", "KUBE-NODE-PORT")
)
_ADMITTED: Final = tuple(
    f"filter KUBE-SOURCE-RANGES-FIREWALL --match-set {name} dst,dst,src -j RETURN # {remark}"
    for name, remark in (
        (
            "KUBE-LOAD-BALANCER-SOURCE-CIDR",
            "Kubernetes service load balancer ip + port + source cidr for packet filter purpose",
        ),
        (
            "KUBE-LOAD-BALANCER-SOURCE-IP",
            "Kubernetes service load balancer ip + port + source IP for packet filter purpose",
        ),
    )
)
_FROM_ITSELF: Final = (
    "IPVS takes what a node sends in OUTPUT, and the kernel drops what comes in from an address of the node itself"
)
_SERVED: Final = tuple(
    f"filter KUBE-IPVS-FILTER --match-set {each} dst,dst -j RETURN"
    for each in ("KUBE-CLUSTER-IP", "KUBE-EXTERNAL-IP", "KUBE-EXTERNAL-IP-LOCAL")
)

EQUIVALENTS: Final = (
    Equivalent(
        ("filter FORWARD -j KUBE-PROXY-FIREWALL # kube-proxy firewall rules",),
        (ABSENT,),
        "the node has every load-balancer IP, so that it forwards no packet to one",
    ),
    Equivalent(
        ("filter KUBE-FORWARD --mark MARK/MARK -j ACCEPT # kubernetes forwarding rules",),
        (ABSENT, "-j DROP", "-j RETURN"),
        "the node has every address whose packets get the mark: IPVS takes these in INPUT and sends them by OUTPUT",
    ),
    Equivalent(
        ("filter KUBE-IPVS-FILTER --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j RETURN",),
        ("-j ACCEPT",),
        "KUBE-NODE-PORT, which comes later in INPUT, accepts the same set",
    ),
    Equivalent(
        (*_SERVED, *_ADMITTED),
        ("-j ACCEPT",),
        "behind it stand only rules for other packets, and those of other programs, on whose work no verdict rests",
    ),
    Equivalent(
        (_ADMITTED[1], "ipset KUBE-LOAD-BALANCER-SOURCE-IP"),
        (ABSENT,),
        _FROM_ITSELF,
    ),
    Equivalent((_ADMITTED[1],), ("-j DROP",), _FROM_ITSELF),
    Equivalent(
        (*_NODE_PORT_LOCAL.values(), "nat KUBE-SERVICES -s LOOPBACK -j RETURN"),
        ("-j ACCEPT",),
        "behind it stand only rules that accept, and those of other programs, on whose work no verdict rests",
    ),
    Equivalent(
        tuple(
            f"nat KUBE-SERVICES --match-set {each} dst,dst -j ACCEPT"
            for each in ("KUBE-CLUSTER-IP", "KUBE-LOAD-BALANCER")
        ),
        ("without --match-set",),
        "they are the last rules of the chain; the packets accepted besides meet only rules of other programs",
    ),
    Equivalent(
        tuple(_NODE_PORT_LOCAL.values()),
        ("-p of TCP and UDP",),
        "a number over another protocol belongs to the same Service, since no two have one number, and to its policy",
    ),
    Equivalent(
        (_NODE_PORT_SCTP,),
        ("-p of TCP and UDP",),
        "the members of the set have the protocol",
    ),
    Equivalent(
        _FROM_OUTSIDE,
        (ABSENT, "without ! --physdev-is-in", "without ! --src-type"),
        "the node has every external IP, so that the next rule accepts all packets to it",
    ),
    Equivalent(
        _TO_NODE,
        ("without --dst-type",),
        "the node has every external IP, so that each packet to it matches",
    ),
    Equivalent(
        _PERSISTENT,
        ("-s sh",),
        "persistence asks the scheduler once for each client, and a hash of its address is as good a choice as a turn",
    ),
)
