"""Mutants of rules of mode iptables that no packet of any scenario can tell from the rule, each with its proof."""

from typing import Final

from proxylab.engines.embedded.mutation import ABSENT, Equivalent

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

EQUIVALENTS: Final = (
    Equivalent(
        ("nat KUBE-FW-* # other traffic to SERVICE will be dropped by KUBE-PROXY-FIREWALL",),
        (ABSENT,),
        "a rule without target does nothing but count",
    ),
    Equivalent(
        (*_TO_ENDPOINT, _MARKS_BY_NETWORK, _MARKS_BY_DEVICE, _MARKS_ALL, _MARKS_LOCAL),
        ("-p of TCP and UDP",),
        "a packet comes into the chain only by rules of the same service port, and these match its protocol",
    ),
    Equivalent(
        (_MARKS_BY_NETWORK, _MARKS_BY_DEVICE),
        ("without -d", "without --dport"),
        "packets to other addresses and ports come from KUBE-EXT-, which has marked them before, or which sends only "
        "pods here, and a pod does not match this rule",
    ),
    Equivalent(
        (_MARKS_ALL, _MARKS_LOCAL),
        ("without --dport",),
        "a packet to the cluster IP comes into the chain only by the rule for this port of it",
    ),
    Equivalent(
        (
            "filter FORWARD --ctstate NEW -j KUBE-EXTERNAL-SERVICES # kubernetes externally-visible service portals",
            "filter FORWARD --ctstate NEW -j KUBE-SERVICES # kubernetes service portals",
        ),
        ("without --ctstate",),
        "KUBE-FORWARD comes first: it accepts the packets of open connections and drops invalid ones (with "
        "tcpBeLiberal only malformed packets are left, which no probe sends)",
    ),
    Equivalent(
        ("filter KUBE-FORWARD --ctstate INVALID --nfacct-name COUNTER -j DROP",),
        ("without --nfacct-name",),
        "the counter matches every packet",
    ),
    Equivalent(
        ("filter OUTPUT -j KUBE-FIREWALL",),
        (ABSENT,),
        "what a node itself sends to 127.0.0.0/8 goes by device lo into the same node, where INPUT leads it to the "
        "same rule; no probe binds its socket to another device",
    ),
)
