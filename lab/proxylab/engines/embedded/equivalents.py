"""Mutants of rules that no packet can tell from the rule, each with its proof.

``proxylab mutate`` does not run these mutants. A row is a mode, classes of rules, changes, and why the kernel treats
every packet of every scenario alike. Without such a proof, a mutant that nothing notices needs a probe.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from proxylab.engines.embedded.mutation import ABSENT


class _Equivalent(NamedTuple):
    """One row."""

    mode: str
    classes: Sequence[str]
    changes: Sequence[str]
    proof: str


_IPTABLES: Final = "iptables"
_TO_ENDPOINT: Final = (
    "nat KUBE-SEP-* -p PROTOCOL -j DNAT --to-destination ENDPOINT",
    "nat KUBE-SEP-* -p PROTOCOL --name KUBE-SEP-* --set -j DNAT --to-destination ENDPOINT",
)
_MARKS_BY_NETWORK: Final = (
    "nat KUBE-SVC-* ! -s NETWORK -d ADDRESS -p PROTOCOL --dport PORT -j KUBE-MARK-MASQ # SERVICE cluster IP"
)
_MARKS_BY_DEVICE: Final = (
    "nat KUBE-SVC-* -d ADDRESS ! -i DEVICE -p PROTOCOL --dport PORT -j KUBE-MARK-MASQ # SERVICE cluster IP"
)
_MARKS_ALL: Final = "nat KUBE-SVC-* -d ADDRESS -p PROTOCOL --dport PORT -j KUBE-MARK-MASQ # SERVICE cluster IP"
_MARKS_LOCAL: Final = (
    "nat KUBE-SVL-* ! -s NETWORK -d ADDRESS -p PROTOCOL --dport PORT -j KUBE-MARK-MASQ # SERVICE cluster IP"
)

_NFTABLES: Final = "nftables"
_TRANSLATIONS: Final = (
    "endpoint-* meta l4proto PROTOCOL dnat to ENDPOINT",
    "local-* meta l4proto PROTOCOL dnat to ENDPOINT",
    "local-* meta l4proto PROTOCOL dnat ip addr . port to numgen random mod N map { … }",
    "service-* meta l4proto PROTOCOL dnat to ENDPOINT",
    "service-* meta l4proto PROTOCOL dnat ip addr . port to numgen random mod N map { … }",
)
_IPVS: Final = "ipvs"
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
_USERSPACE: Final = "userspace"

EQUIVALENTS: Final = (
    _Equivalent(
        _IPTABLES,
        ("nat KUBE-FW-* # other traffic to SERVICE will be dropped by KUBE-PROXY-FIREWALL",),
        (ABSENT,),
        "a rule without target does nothing but count",
    ),
    _Equivalent(
        _IPTABLES,
        (*_TO_ENDPOINT, _MARKS_BY_NETWORK, _MARKS_BY_DEVICE, _MARKS_ALL, _MARKS_LOCAL),
        ("-p of TCP and UDP",),
        "a packet comes into the chain only by rules of the same service port, and these match its protocol",
    ),
    _Equivalent(
        _IPTABLES,
        (_MARKS_BY_NETWORK, _MARKS_BY_DEVICE),
        ("without -d", "without --dport"),
        "packets to other addresses and ports come from KUBE-EXT-, which has marked them before, or which sends only "
        "pods here, and a pod does not match this rule",
    ),
    _Equivalent(
        _IPTABLES,
        (_MARKS_ALL, _MARKS_LOCAL),
        ("without --dport",),
        "a packet to the cluster IP comes into the chain only by the rule for this port of it",
    ),
    _Equivalent(
        _IPTABLES,
        (
            "filter FORWARD --ctstate NEW -j KUBE-EXTERNAL-SERVICES # kubernetes externally-visible service portals",
            "filter FORWARD --ctstate NEW -j KUBE-SERVICES # kubernetes service portals",
        ),
        ("without --ctstate",),
        "KUBE-FORWARD comes first: it accepts the packets of open connections and drops invalid ones (with "
        "tcpBeLiberal only malformed packets are left, which no probe sends)",
    ),
    _Equivalent(
        _IPTABLES,
        ("filter KUBE-FORWARD --ctstate INVALID --nfacct-name COUNTER -j DROP",),
        ("without --nfacct-name",),
        "the counter matches every packet",
    ),
    _Equivalent(
        _IPTABLES,
        ("filter OUTPUT -j KUBE-FIREWALL",),
        (ABSENT,),
        "what a node itself sends to 127.0.0.0/8 goes by device lo into the same node, where INPUT leads it to the "
        "same rule; no probe binds its socket to another device",
    ),
    _Equivalent(
        _NFTABLES,
        _TRANSLATIONS,
        ("meta l4proto of TCP and UDP",),
        "a packet comes into the chain only by elements of the same service port, whose keys have its protocol",
    ),
    _Equivalent(
        _IPVS,
        ("filter FORWARD -j KUBE-PROXY-FIREWALL # kube-proxy firewall rules",),
        (ABSENT,),
        "the node has every load-balancer IP, so that it forwards no packet to one",
    ),
    _Equivalent(
        _IPVS,
        ("filter KUBE-FORWARD --mark MARK/MARK -j ACCEPT # kubernetes forwarding rules",),
        (ABSENT, "-j DROP", "-j RETURN"),
        "the node has every address whose packets get the mark: IPVS takes these in INPUT and sends them by OUTPUT",
    ),
    _Equivalent(
        _IPVS,
        ("filter KUBE-IPVS-FILTER --match-set KUBE-HEALTH-CHECK-NODE-PORT dst -j RETURN",),
        ("-j ACCEPT",),
        "KUBE-NODE-PORT, which comes later in INPUT, accepts the same set",
    ),
    _Equivalent(
        _IPVS,
        (*_SERVED, *_ADMITTED),
        ("-j ACCEPT",),
        "behind it stand only rules for other packets, and those of other programs, on whose work no verdict rests",
    ),
    _Equivalent(
        _IPVS,
        (_ADMITTED[1], "ipset KUBE-LOAD-BALANCER-SOURCE-IP"),
        (ABSENT,),
        _FROM_ITSELF,
    ),
    _Equivalent(_IPVS, (_ADMITTED[1],), ("-j DROP",), _FROM_ITSELF),
    _Equivalent(
        _IPVS,
        (*_NODE_PORT_LOCAL.values(), "nat KUBE-SERVICES -s LOOPBACK -j RETURN"),
        ("-j ACCEPT",),
        "behind it stand only rules that accept, and those of other programs, on whose work no verdict rests",
    ),
    _Equivalent(
        _IPVS,
        tuple(
            f"nat KUBE-SERVICES --match-set {each} dst,dst -j ACCEPT"
            for each in ("KUBE-CLUSTER-IP", "KUBE-LOAD-BALANCER")
        ),
        ("without --match-set",),
        "they are the last rules of the chain; the packets accepted besides meet only rules of other programs",
    ),
    _Equivalent(
        _IPVS,
        tuple(_NODE_PORT_LOCAL.values()),
        ("-p of TCP and UDP",),
        "a number over another protocol belongs to the same Service, since no two have one number, and to its policy",
    ),
    _Equivalent(
        _IPVS,
        (_NODE_PORT_SCTP,),
        ("-p of TCP and UDP",),
        "the members of the set have the protocol",
    ),
    _Equivalent(
        _IPVS,
        _FROM_OUTSIDE,
        (ABSENT, "without ! --physdev-is-in", "without ! --src-type"),
        "the node has every external IP, so that the next rule accepts all packets to it",
    ),
    _Equivalent(
        _IPVS,
        _TO_NODE,
        ("without --dst-type",),
        "the node has every external IP, so that each packet to it matches",
    ),
    _Equivalent(
        _IPVS,
        _PERSISTENT,
        ("-s sh",),
        "persistence asks the scheduler once for each client, and a hash of its address is as good a choice as a turn",
    ),
    _Equivalent(
        _USERSPACE,
        ("filter KUBE-NODEPORT-NON-LOCAL -p PROTOCOL --dport PORT --state NEW -j ACCEPT",),
        ("-p of TCP and UDP",),
        "the port is the one of the proxy's process, which the kernel chooses, so that no sender can dial its number",
    ),
    _Equivalent(
        _USERSPACE,
        ("filter KUBE-NODEPORT-NON-LOCAL -p PROTOCOL --dport PORT --state NEW -j ACCEPT",),
        ("without --state",),
        "the rule accepts packets of open connections besides, and each firewall under which a NodePort works does so",
    ),
)


def proof_of(mode: str, rule_class: str, change: str) -> str:
    """Why that mutant is equivalent; empty if nothing proves it."""
    return next(
        (
            each.proof
            for each in EQUIVALENTS
            if each.mode == mode and rule_class in each.classes and change in each.changes
        ),
        "",
    )
