"""``Capability``: what a machine can do for a lab. ``kernel.capabilities`` tries it; ``proxylab doctor`` shows it."""

from enum import StrEnum

from proxylab.encoding import Record


class CapabilityName(StrEnum):
    """Every capability that ``proxylab doctor`` tries, by which a scenario may require it."""

    PROC = "/proc"
    VETH = "veth pairs"
    BRIDGE = "bridges"
    PACKET_SOCKETS = "packet sockets"
    IPTABLES_LEGACY = "iptables legacy"
    IPTABLES_NFT = "iptables nft"
    IP6TABLES = "ip6tables"
    NFTABLES = "nftables"
    LARGE_TRANSACTIONS = "large nft transactions"
    LARGE_BUFFERS = "large receive buffers"
    TRACING = "packet tracing"
    DROP_REASONS = "reasons for drops"
    STACK_TAPS = "taps on the programs of nodes"
    ENDING_CONNECTIONS = "ending of connections"
    IPV6 = "IPv6"
    BRIDGE_NETFILTER = "bridge-nf-call-iptables"
    VXLAN = "VXLAN devices"
    CONNTRACK = "conntrack by netlink"
    CONNTRACK_LIMIT = "limit of conntrack"
    FLOWTABLES = "nft flowtables"
    SCTP = "SCTP sockets"
    NETEM = "netem"
    IPVS = "IPVS"
    DUMMY = "dummy devices"
    IPSET = "ipset"
    NGINX = "nginx"
    OPENSSL = "openssl"
    PROMPT_LINKS = "links that carry on request"


class Capability(Record, frozen=True, kw_only=True):
    """One thing that the lab can use, and whether this machine has it.

    Attributes:
        found: a version, or the kernel's own words for no.
        works: whether the machine has it.
        cost: what the lab cannot do without it, or does slower.
        cure: what the user or an administrator can do about it.
        required: whether every lab needs it.
        of_program: whether a program is missing, which no other kernel has.
    """

    name: str
    found: str
    works: bool
    cost: str
    cure: str
    required: bool = False
    of_program: bool = False


def in_words(error: Exception) -> str:
    """The words of an error: for a kernel error, the file and the kernel's words."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
