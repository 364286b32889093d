"""What all service ports of one proxy share."""

from msgspec import Struct

from proxylab.addresses import Family, IPAddress
from proxylab.engines.embedded.node import NodeFacts, local_source
from proxylab.engines.embedded.settings import BridgeInterface, InterfaceNamePrefix, ProxySettings


class LocalDetector(Struct, frozen=True):
    """Detects traffic of this node's pods (with ``ClusterCIDR``: of all pods)."""

    if_local: str
    if_not_local: str


class ProxyScope(Struct, frozen=True):
    """The proxy of one family on one node.

    Attributes:
        ip: the family's name in nft: ``ip`` or ``ip6``.
        detector: ``None`` where no traffic is known to be a pod's.
        mark: the mark of packets to masquerade, printed as kube-proxy prints it (``%#08x``).
    """

    family: Family
    ip: str
    node: NodeFacts
    node_address: IPAddress
    detector: LocalDetector | None
    mark: str
    masquerade_all: bool

    @classmethod
    def of(cls, family: Family, node: NodeFacts, settings: ProxySettings) -> "ProxyScope":
        """The scope of the proxy of that family on that node."""
        ip = "ip" if family is Family.IPV4 else "ip6"
        return cls(
            family,
            ip,
            node,
            node.primary_address(family),
            _detector(ip, family, node, settings),
            f"{settings.masquerade_mark:#08x}",
            settings.masquerade_all,
        )

    @property
    def masquerade(self) -> str:
        """The statement that marks a packet for masquerading."""
        return f"mark set mark or {self.mark}"


def _detector(ip: str, family: Family, node: NodeFacts, settings: ProxySettings) -> LocalDetector | None:
    match local_source(settings.detect_local, family, node):
        case None:
            return None
        case BridgeInterface(device):
            return LocalDetector(f'iifname "{device}"', f'iifname != "{device}"')
        case InterfaceNamePrefix(prefix):
            return LocalDetector(f'iifname "{prefix}*"', f'iifname != "{prefix}*"')
        case cidr:
            return LocalDetector(f"{ip} saddr {cidr}", f"{ip} saddr != {cidr}")
