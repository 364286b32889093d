"""The closed words of a scenario, and a place in its file.

Owns: the enums whose values an author writes, and ``Position``.
Must not: know where in a scenario a word may stand.
"""

from enum import StrEnum
from typing import Final

from proxylab.frozen import dataclass

__all__ = [
    "RUNNING_MODES",
    "Frontend",
    "Manner",
    "Mode",
    "Outcome",
    "Position",
    "Reply",
    "Spread",
]


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a scenario file. Line and column count from 1, as editors do."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Frontend(StrEnum):
    """``via``: the front of a Service that a probe dials."""

    CLUSTER_IP = "clusterIP"
    NODE_PORT = "nodePort"
    EXTERNAL_IP = "externalIP"
    LOAD_BALANCER_IP = "loadBalancerIP"
    HEALTH_CHECK_NODE_PORT = "healthCheckNodePort"
    DNS_NAME = "dnsName"


class Manner(StrEnum):
    """``send.as``: kernel sockets with data both ways, or single packets that scapy builds."""

    CONNECT = "connect"
    PACKET = "packet"


class Outcome(StrEnum):
    """What becomes of a flow."""

    DELIVERED = "delivered"
    REJECTED = "rejected"
    REFUSED = "refused"
    DROPPED = "dropped"
    UNTRANSLATED = "untranslated"


class Spread(StrEnum):
    """How flows are shared among the backends."""

    EVEN = "even"
    STICKY = "sticky"


class Reply(StrEnum):
    """``reply``: whose address the sender sees on the answer: the one it dialled, or the backend's own."""

    TRANSLATED = "translated"
    UNTRANSLATED = "untranslated"


class Mode(StrEnum):
    """The mode of a proxy, as ``KubeProxyConfiguration`` spells it."""

    IPTABLES = "iptables"
    NFTABLES = "nftables"
    IPVS = "ipvs"


RUNNING_MODES: Final = (Mode.IPTABLES, Mode.NFTABLES)
"""Those that some engine runs."""
