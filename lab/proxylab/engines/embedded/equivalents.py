"""Mutants of rules that no packet can tell from the rule, each with its proof.

``proxylab mutate`` does not run these mutants. A row is a mode, classes of rules, changes, and why the kernel treats
every packet of every scenario alike. Without such a proof, a mutant that nothing notices needs a probe.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from proxylab.engines.embedded.mutation import ABSENT

__all__ = ["EQUIVALENTS", "proof_of"]


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
_LOOPBACK: Final = "nat KUBE-NODEPORTS -d LOOPBACK -p PROTOCOL --dport PORT --nfacct-name COUNTER -j KUBE-EXT-*"

_NFTABLES: Final = "nftables"
_TRANSLATIONS: Final = (
    "endpoint-* meta l4proto PROTOCOL dnat to ENDPOINT",
    "local-* meta l4proto PROTOCOL dnat to ENDPOINT",
    "local-* meta l4proto PROTOCOL dnat ip addr . port to numgen random mod N map { … }",
    "service-* meta l4proto PROTOCOL dnat to ENDPOINT",
    "service-* meta l4proto PROTOCOL dnat ip addr . port to numgen random mod N map { … }",
)

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
        (_LOOPBACK,),
        (ABSENT, "without -d", "without --nfacct-name"),
        "the next rule leads the same packets to the same chain, so that only a counter differs",
    ),
    _Equivalent(
        _IPTABLES,
        ("filter KUBE-FORWARD --ctstate INVALID --nfacct-name COUNTER -j DROP",),
        ("without --nfacct-name",),
        "the counter matches every packet",
    ),
    _Equivalent(
        _NFTABLES,
        _TRANSLATIONS,
        ("meta l4proto of TCP and UDP",),
        "a packet comes into the chain only by elements of the same service port, whose keys have its protocol",
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
