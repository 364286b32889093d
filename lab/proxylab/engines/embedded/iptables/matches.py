"""Conditions of rules, spelled as kube-proxy spells them.

Owns: the text of each match that more than one kind of rule uses, and that of the local-traffic detectors.
Must not: decide when a rule is needed.
"""

from functools import lru_cache

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.settings import (
    BridgeInterface,
    ClusterCIDR,
    DetectLocal,
    InterfaceNamePrefix,
    NodeCIDR,
)
from proxylab.frozen import dataclass

__all__ = [
    "FROM_LOCAL",
    "INVALID_COUNTER",
    "LOCALHOST_COUNTER",
    "TO_LOCAL",
    "LocalDetector",
    "comment",
    "count_into",
    "local_detector",
    "mark",
    "share",
    "to_address",
    "transport",
]

_TRANSPORTS = {protocol: f"-m {protocol.lower()} -p {protocol.lower()}" for protocol in Protocol}

FROM_LOCAL = "-m addrtype --src-type LOCAL"
TO_LOCAL = "-m addrtype --dst-type LOCAL"

INVALID_COUNTER = "ct_state_invalid_dropped_pkts"
LOCALHOST_COUNTER = "localhost_nps_accepted_pkts"
"""The names of kube-proxy's counters (pkg/proxy/metrics/metrics.go)."""


def comment(text: str) -> str:
    """A comment; quoted only where it must be, as kube-proxy does."""
    return f'-m comment --comment "{text}"' if " " in text else f"-m comment --comment {text}"


def transport(protocol: Protocol) -> str:
    """The protocol, and the match of that name, which ``--dport`` belongs to."""
    return _TRANSPORTS[protocol]


def to_address(protocol: Protocol, address: IPAddress, port: int) -> str:
    """Packets to that address and port."""
    return f"{transport(protocol)} -d {address!s} --dport {port}"


def mark(value: int) -> str:
    """A mark with a mask of the same bits, printed as kube-proxy prints it (``%#08x``)."""
    return f"{value:#08x}/{value:#08x}"


def count_into(counter: str) -> str:
    """Count packets into a named counter. Where there is none of that name, the rule is refused."""
    return f"-m nfacct --nfacct-name {counter}"


@lru_cache(maxsize=4096)  # Services with as many endpoints have the same shares, and decimals take time.
def share(index: int, count: int) -> str:
    """The statistic match that gives endpoint ``index`` of ``count`` its equal share.

    A rule sees only what those before it have let pass: of ``count - index`` endpoints still to be asked it takes one.
    The last one takes all that is left, and has no match.
    """
    left = count - index
    return f"-m statistic --mode random --probability {1 / left:0.10f}" if left > 1 else ""


@dataclass(frozen=True, slots=True)
class LocalDetector:
    """Tells traffic of this node's pods (with ``ClusterCIDR``: of all pods) from any other."""

    if_local: str
    if_not_local: str


def local_detector(mode: DetectLocal, family: Family, node: NodeFacts) -> LocalDetector | None:
    """The detector of a mode, ``None`` where the mode has nothing to go by in this family."""
    match mode:
        case ClusterCIDR(cidrs):
            return _from_first(cidrs, family)
        case NodeCIDR():
            return _from_first(node.pod_cidrs, family)
        case BridgeInterface(device):
            return LocalDetector(f"-i {device}", f"! -i {device}")
        case InterfaceNamePrefix(prefix):
            return LocalDetector(f"-i {prefix}+", f"! -i {prefix}+")


def _from_first(cidrs: tuple[IPNetwork, ...], family: Family) -> LocalDetector | None:
    cidr = next((cidr for cidr in cidrs if Family.of(cidr) is family), None)
    return None if cidr is None else LocalDetector(f"-s {cidr}", f"! -s {cidr}")
