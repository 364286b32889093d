"""Matches that several kinds of rules use, and the local-traffic detectors, spelled as kube-proxy spells them."""

from functools import lru_cache

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, Protocol
from proxylab.engines.embedded.node import NodeFacts, local_source
from proxylab.engines.embedded.settings import BridgeInterface, DetectLocal, InterfaceNamePrefix

_TRANSPORTS = {protocol: f"-m {protocol.lower()} -p {protocol.lower()}" for protocol in Protocol}

FROM_LOCAL = "-m addrtype --src-type LOCAL"
TO_LOCAL = "-m addrtype --dst-type LOCAL"

INVALID_COUNTER = "ct_state_invalid_dropped_pkts"
LOCALHOST_COUNTER = "localhost_nps_accepted_pkts"
"""The names of kube-proxy's counters (pkg/proxy/metrics/metrics.go)."""

COUNTED = {
    "kubeproxy_iptables_ct_state_invalid_dropped_packets_total": INVALID_COUNTER,
    "kubeproxy_iptables_localhost_nodeports_accepted_packets_total": LOCALHOST_COUNTER,
}
"""The counter that each of these metrics shows."""


def comment(text: str) -> str:
    """A comment, quoted only where it contains a space, as kube-proxy does."""
    return f'-m comment --comment "{text}"' if " " in text else f"-m comment --comment {text}"


def transport(protocol: Protocol) -> str:
    """The protocol, and the match of that name, which has ``--dport``."""
    return _TRANSPORTS[protocol]


def to_address(protocol: Protocol, address: IPAddress, port: int) -> str:
    """Packets to that address and port."""
    return f"{transport(protocol)} -d {address!s} --dport {port}"


def mark(value: int) -> str:
    """A mark with a mask of the same bits, printed as kube-proxy prints it (``%#08x``)."""
    return f"{value:#08x}/{value:#08x}"


def count_into(counter: str) -> str:
    """Count packets into a named counter. The kernel refuses the rule where there is no such counter."""
    return f"-m nfacct --nfacct-name {counter}"


@lru_cache(maxsize=4096)  # Services with equally many endpoints have the same shares, and formatting takes time.
def share(index: int, count: int) -> str:
    """The statistic match that gives endpoint ``index`` of ``count`` its equal share.

    A rule sees only the packets that the rules before it let pass, so it takes one in ``count - index``. The last rule
    takes the rest, without a match.
    """
    left = count - index
    return f"-m statistic --mode random --probability {1 / left:0.10f}" if left > 1 else ""


class LocalDetector(Struct, frozen=True):
    """Detects traffic of this node's pods (with ``ClusterCIDR``: of all pods)."""

    if_local: str
    if_not_local: str


def local_detector(mode: DetectLocal, family: Family, node: NodeFacts) -> LocalDetector | None:
    """The detector of a mode, ``None`` where the mode has no network of this family."""
    match local_source(mode, family, node):
        case None:
            return None
        case BridgeInterface(device):
            return LocalDetector(f"-i {device}", f"! -i {device}")
        case InterfaceNamePrefix(prefix):
            return LocalDetector(f"-i {prefix}+", f"! -i {prefix}+")
        case cidr:
            return LocalDetector(f"-s {cidr}", f"! -s {cidr}")
