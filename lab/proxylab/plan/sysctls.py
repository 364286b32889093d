"""The sysctls of every namespace, so that no setting of the machine leaks into a lab.

The initial values of a new network namespace decide which keys the lab writes (``kernel.sandbox.sysctl`` writes them):

* ``net.ipv4.conf.{all,default}``, and with them ``ip_forward``, are copies from the machine's first namespace, not from
  the parent (``net.core.devconf_inherit_init_net`` at 0, devinet_init_net in net/ipv4/devinet.c). The lab writes every
  key of these that affects a packet, in every namespace with addresses; in pods and hosts only keys that matter without
  forwarding. The rest of the group is about IGMP, IPsec and the like.
* ``conf.lo`` begins with the copied default and may keep it when the default changes later (devinet_copy_dflt_conf
  skips keys that count as set). In nodes packets re-enter through ``lo``, so the lab writes its keys there too.
* ``net.ipv6.conf`` starts from the kernel's own values unless ``devconf_inherit_init_net`` changes that. An IPv4 lab
  switches IPv6 off, so that captures show no router solicitation or neighbour discovery. A lab with IPv6 accepts no
  address, route or redirect from the network, skips duplicate address detection, and lets no device generate a
  link-local address (``addr_gen_mode`` 1), which would be ready some time after the link: every address is the plan's.
  The segments have no addresses and no IPv6.
* ``net.bridge.bridge-nf-call-*`` start at 1 in every namespace (br_netfilter), which is right only in nodes: elsewhere
  the fabric would run the packets of all nodes through conntrack.
* ``net.netfilter.nf_conntrack_*`` start from the kernel's own values, which differ between kernel versions
  (``udp_timeout_stream`` was 180) and decide when the kernel forgets a translation. The lab writes them in nodes, which
  alone track connections.
* ``net.ipv4.icmp_ratemask`` starts from a constant that a lab cannot use: a node would send each sender one destination
  unreachable a second (after a burst of six), and most rejected flows would get no error. ``net.ipv6.icmp.ratemask`` is
  its IPv6 counterpart, a list of types; the lab empties it.
* ``fib_multipath_hash_policy`` of both families starts at 0, layer 3; the router hashes on ports.
* ``net.ipv4.tcp_no_metrics_save`` starts at 0: a connection's metrics would affect the next probe.
* All other keys of ``net.ipv4``, ``net.core``, ``net.unix`` that a namespace may write start from constants
  (``ip_local_port_range``, ``ip_default_ttl``, ``icmp_ratelimit``, ``icmp_echo_ignore_*``, ``tcp_syncookies``,
  ``tcp_tw_reuse``, ``tcp_timestamps``, ``somaxconn`` and the others; inet_init_net, tcp_sk_init). Setting them
  in a parent changes nothing in its child. Not written: each write costs a build microseconds.
* ``tcp_rmem``, ``tcp_wmem`` and ``tcp_congestion_control`` are copied from the machine's first namespace, but decide
  only how fast data flows, never where it goes. Not written.

``neigh`` parameters belong to devices, which do not exist yet and will copy the machine's. They could matter on the
segments, which use ARP, but only as timers that are longer than any probe.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from proxylab.addresses import Family
from proxylab.plan.model import Role, Sysctl

DEVICES_AT_HAND: Final = ("all", "default", "lo")
"""The devices of per-device keys that exist before the first link; keys of other devices follow later."""

_FORWARDING_ROLES: Final = frozenset({Role.NODE, Role.ROUTER})

_CONF: Final[Mapping[str, str]] = {
    # Accepted sources. No reverse path filter: the paths of a Service proxy are asymmetric by design.
    "rp_filter": "0",
    "accept_local": "0",
    "route_localnet": "0",
    # No redirects: they would leave route exceptions behind for the next probe.
    "accept_redirects": "0",
    # ARP on a segment.
    "arp_accept": "0",
    "arp_announce": "0",
    "arp_filter": "0",
    "arp_ignore": "0",
}
_CONF_OF_FORWARDERS: Final[Mapping[str, str]] = {
    **_CONF,
    # Keys that matter only for forwarding or for rules that mark packets, so not in a pod or host.
    "accept_source_route": "0",
    "bc_forwarding": "0",
    "ignore_routes_with_linkdown": "0",
    "log_martians": "0",
    "proxy_arp": "0",
    "proxy_arp_pvlan": "0",
    "secure_redirects": "1",
    "send_redirects": "0",
    "shared_media": "1",
    "src_valid_mark": "0",
}

_IPV6_CONF: Final[Mapping[str, str]] = {
    "disable_ipv6": "0",
    "accept_dad": "0",
    "accept_ra": "0",
    "accept_redirects": "0",
    "accept_source_route": "0",
    "autoconf": "0",
    "dad_transmits": "0",
    "hop_limit": "64",
    "ignore_routes_with_linkdown": "0",
    "proxy_ndp": "0",
    "router_solicitations": "0",
    "use_oif_addrs_only": "0",
    "use_tempaddr": "0",
}

_CONNTRACK: Final[Mapping[str, str]] = {
    # Documentation/networking/nf_conntrack-sysctl.rst; seconds.
    "checksum": "1",
    "generic_timeout": "600",
    "icmp_timeout": "30",
    "log_invalid": "0",
    "tcp_be_liberal": "0",
    "tcp_ignore_invalid_rst": "0",
    "tcp_loose": "1",
    "tcp_max_retrans": "3",
    # The kernel's own is 10. The sender's kernel closes a crafted flow at once, since it has no socket for the answer.
    # The entry must outlive the rest of the probe, which takes longer with thousands of flows.
    "tcp_timeout_close": "120",
    "tcp_timeout_close_wait": "60",
    "tcp_timeout_established": "432000",
    "tcp_timeout_fin_wait": "120",
    "tcp_timeout_last_ack": "30",
    "tcp_timeout_max_retrans": "300",
    "tcp_timeout_syn_recv": "60",
    "tcp_timeout_syn_sent": "120",
    "tcp_timeout_time_wait": "120",
    "tcp_timeout_unacknowledged": "300",
    "udp_timeout": "30",
    "udp_timeout_stream": "120",
}


def sysctls_for(
    role: Role, families: Collection[Family], overrides: Mapping[str, str] | None = None
) -> tuple[Sysctl, ...]:
    """All sysctls of a namespace in a lab of these families, in the order in which the lab writes them.

    ``overrides`` replace the lab's own values, and must exist in the kernel; names that the lab does not write itself
    follow at the end.
    """
    own = {sysctl.name: sysctl for sysctl in _own(role, families)}
    for name, value in (overrides or {}).items():
        own[dotted(name)] = Sysctl(dotted(name), value)
    return tuple(own.values())


OF_THE_KERNEL: Final = {"net.netfilter.nf_conntrack_max": "1048576"}
"""Sysctls that only the kernel's first network namespace can write, and that hold in all; each with the lab's value.

The lab writes them in a guest, whose first namespace is the lab's own. Each namespace counts entries of its own against
the one limit (``__nf_conntrack_alloc`` in net/netfilter/nf_conntrack_core.c).
"""


def _own(role: Role, families: Collection[Family]) -> Iterator[Sysctl]:
    forwarding = "1" if role in _FORWARDING_ROLES else "0"
    # First, since a change of ip_forward sets accept_redirects anew (inet_forward_change).
    yield Sysctl("net.ipv4.ip_forward", forwarding)
    if role is not Role.SEGMENT:
        yield Sysctl("net.ipv4.conf.default.forwarding", forwarding)
        for device in DEVICES_AT_HAND if role is Role.NODE else ("all", "default"):
            for key, value in (_CONF_OF_FORWARDERS if role in _FORWARDING_ROLES else _CONF).items():
                yield Sysctl(f"net.ipv4.conf.{device}.{key}", value)
        yield Sysctl("net.ipv4.icmp_ratemask", "0")
        yield Sysctl("net.ipv4.tcp_no_metrics_save", "1", required=False)  # per namespace since 4.15
    if role is Role.ROUTER:
        yield Sysctl("net.ipv4.fib_multipath_hash_policy", "1", required=False)
    if Family.IPV6 in families and role is not Role.SEGMENT:
        yield from _ipv6(role, forwarding)
    else:
        for device in ("all", "default"):
            yield Sysctl(f"net.ipv6.conf.{device}.disable_ipv6", "1", required=False)
    for table in ("iptables", "ip6tables", "arptables"):
        yield Sysctl(f"net.bridge.bridge-nf-call-{table}", "1" if role is Role.NODE else "0", required=False)
    if role is Role.NODE:
        # Not required: tcp_ignore_invalid_rst is new in 5.14, and conntrack may be a module that the first rule loads.
        for key, value in _CONNTRACK.items():
            yield Sysctl(f"net.netfilter.nf_conntrack_{key}", value, required=False)


def _ipv6(role: Role, forwarding: str) -> Iterator[Sysctl]:
    for device in ("all", "default"):
        # Forwarding first: it changes what accept_ra and accept_redirects mean.
        yield Sysctl(f"net.ipv6.conf.{device}.forwarding", forwarding)
        for key, value in _IPV6_CONF.items():
            yield Sysctl(f"net.ipv6.conf.{device}.{key}", value)
    yield Sysctl("net.ipv6.conf.default.addr_gen_mode", "1")
    yield Sysctl("net.ipv6.icmp.ratemask", "", required=False)  # since kernel 5.2
    if role is Role.ROUTER:
        yield Sysctl("net.ipv6.fib_multipath_hash_policy", "1", required=False)


def dotted(name: str) -> str:
    """A name in either of the two spellings of sysctl(8), ``net.ipv4.conf.eth0/1.x`` or ``net/ipv4/conf/eth0.1/x``.

    The first of the two characters is the separator; the other one stands for a dot in a device name.
    """
    slash, dot = name.find("/"), name.find(".")
    slashed = slash != -1 and (dot == -1 or slash < dot)
    return name.translate(str.maketrans("./", "/.")) if slashed else name


def path_of(name: str) -> str:
    """The file below /proc/sys of a dotted name: net/ipv4/conf/eth0.1/x of ``net.ipv4.conf.eth0/1.x``."""
    return name.translate(str.maketrans("./", "/."))


def device_of(name: str) -> str | None:
    """The device of a dotted per-device key, such as ``eth0`` in ``net.ipv4.conf.eth0.rp_filter``."""
    match name.split("."):
        case ["net", "ipv4" | "ipv6" | "mpls", "conf" | "neigh", device, _]:
            return device
    return None
