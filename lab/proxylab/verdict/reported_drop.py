"""The kernel's own word for why it dropped a traced packet.

No verdict rests on it. The kernel reports when it dropped a packet, not which one: the same thread may receive other
packets of this machine in between.

The kernel drops a packet after its last sighting and, since one send(2) carries it the whole way, before the sender
sends anything else. So the module picks the first drop after the last sighting and before the first sentinel packet.
"""

from typing import Final

from proxylab.evidence.evidence import DropReason, Evidence, Observation, TraceStep
from proxylab.plan.resolved import ResolvedProbe

_MEANINGS: Final = {
    "BPF_CGROUP_EGRESS": "a BPF program of a control group",
    "BRIDGE_INGRESS_STP_STATE": "the bridge's port does not forward",
    "CPU_BACKLOG": "too many packets waited",
    "DEV_READY": "the device is down",
    "FULL_RING": "the receiver's queue is full",
    "ICMP_CSUM": "a wrong checksum",
    "IP_CSUM": "a wrong checksum",
    "IP_INADDRERRORS": "not for this machine, which does not forward",
    "IP_INHDR": "a malformed header, or TTL exceeded",
    "IP_INNOROUTES": "no route leads there",
    "IP_INVALID_DEST": "no valid destination address",
    "IP_INVALID_SOURCE": "no valid source address",
    "IP_LOCALNET": "a loopback address from the network",
    "IP_LOCAL_SOURCE": "the source is the receiver's own address",
    "IP_NOPROTO": "no handler for that protocol",
    "IP_OUTNOROUTES": "no route leads there",
    "IP_RPFILTER": "reverse-path filter",
    "IPV6DISABLED": "IPv6 is off there",
    "LOCAL_MAC": "the source MAC is the receiver's own",
    "NEIGH_FAILED": "no answer to ARP or NDP for the next hop",
    "NEIGH_QUEUEFULL": "too many wait for the next hop's MAC",
    "NETFILTER_DROP": "a rule or policy of netfilter",
    "NOMEM": "out of memory",
    "NO_SOCKET": "no socket listens there",
    "NO_TX_TARGET": "the bridge has no other port for it",
    "OTHERHOST": "the frame was for another MAC",
    "PKT_TOO_BIG": "above the MTU",
    "QDISC_DROP": "a queueing discipline",
    "SECURITY_HOOK": "a security module",
    "SKB_CSUM": "a wrong checksum",
    "SOCKET_FILTER": "the receiver's own filter",
    "SOCKET_RCVBUFF": "the receiver's buffer is full",
    "TCP_CSUM": "a wrong checksum",
    "TCP_FLAGS": "impossible TCP flags",
    "TC_EGRESS": "a classifier of tc on the way out",
    "TC_INGRESS": "a classifier of tc on the way in",
    "UDP_CSUM": "a wrong checksum",
    "UNHANDLED_PROTO": "no handler for that protocol",
    "UNICAST_IN_L2_MULTICAST": "a unicast address in a broadcast or multicast frame",
    "VXLAN_VNI_NOT_FOUND": "no tunnel with that VNI",
    "XDP": "an XDP program",
    "XFRM_POLICY": "an IPsec policy",
}
"""The meaning of the reasons that packets of a lab may meet (include/net/dropreason-core.h)."""

# The lab sets the clock of drops to that of sightings, more precisely than a packet's time between the two.
_APART_NS: Final = 1_000


def reported_drop(resolved: ResolvedProbe, evidence: Evidence) -> DropReason | None:
    """The drop that ended a traced packet or its reply; ``None`` if nothing is missing or the kernel reports none."""
    if not evidence.counters_read_at:
        return None
    seen: tuple[Observation | TraceStep, ...] = (*evidence.observations, *evidence.steps)
    last = max((each.at for each in seen if each.at <= evidence.counters_read_at), default=evidence.counters_read_at)
    for drop in evidence.drops:
        if drop.version == resolved.destination.version and last - _APART_NS <= drop.at <= evidence.counters_read_at:
            return drop
    return None


def reason_words(drop: DropReason) -> str:
    """The kernel's word with its meaning, if known: ``IP_RPFILTER (reverse-path filter)``."""
    meaning = _MEANINGS.get(drop.reason)
    return f"{drop.reason} ({meaning})" if meaning else drop.reason
