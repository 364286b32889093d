"""What ended packets besides rules: a node's stack, by the kernel's counters, and the policies of chains.

A counter is a witness only if it accounts for every packet of the probe. The lab reads the counters of a node before a
probe and again before the first sentinel packet leaves, so that they count the probe's packets only.

Of a traced packet the kernel also says why it dropped it (``reported_drop``). No verdict rests on that: the kernel
reports when it dropped a packet, not which one, and the same thread may receive other packets of this machine in
between. The kernel drops a packet after its last sighting and, since one send(2) carries it the whole way, before the
sender sends anything else. So the module picks the first drop after the last sighting and before the first sentinel
packet.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Final

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import DropReason, Evidence, ForeignRule, Observation, RuleCount, TraceStep
from proxylab.evidence.words import amount
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.rules.effects import CHANGING_HOPS, Effect, Effects, effects
from proxylab.rules.texts import effects_of, read_rule
from proxylab.verdict.foreign import is_policy, may_meet, suspicion

_REVERSE_PATH = "TcpExtIPReversePathFilter"
_OTHER_ERRORS_OF_IPSEC = (
    "AcquireError FwdHdrError InBufferError InError InHdrError InIptfsError InNoStates InPolError InStateDirError "
    "InStateExpired InStateInvalid InStateMismatch InStateModeError InStateProtoError InStateSeqError "
    "OutBundleCheckError OutBundleGenError OutError OutNoQueueSpace OutPolDead OutPolError OutStateDirError "
    "OutStateExpired OutStateInvalid OutStateModeError OutStateProtoError OutStateSeqError"
)

_CLASHED = "ConntrackInsertFailed"
_REASONS = {
    _REVERSE_PATH: "its reverse-path filter",
    "IpInAddrErrors": "its routing: the packet is not for this node, and forwarding is off",
    "Ip6InAddrErrors": "its routing: an invalid address, or forwarding is off",
    "IpInHdrErrors": "its IP layer: a malformed header (or TTL exceeded)",
    "Ip6InHdrErrors": "its IP layer: a malformed header (or an invalid address, or hop limit exceeded)",
    "IpExtInTruncatedPkts": "its IP layer: the packet is shorter than its header says",
    "Ip6InTruncatedPkts": "its IP layer: the packet is shorter than its header says",
    "IpInDiscards": "its IP layer, out of memory",
    "Ip6InDiscards": "its IP layer: IPsec, IPv6 switched off there, or no memory",
    "IpFragFails": "its forwarding: the packet is larger than the next link's MTU, and forbids fragments",
    "Ip6InTooBigErrors": "its forwarding: the packet is larger than the next link's MTU",
    "IpOutDiscards": "its IP layer on the way out",
    "Ip6OutDiscards": "its IP layer on the way out",
    "IpOutNoRoutes": "its routing: no route leads there",
    "Ip6OutNoRoutes": "its routing: no route leads there",
    _CLASHED: "its connection tracking: another flow has the same tuple, such as the last free source port",
    "ConntrackDrop": "its connection tracking: the table is full",
    "XfrmInPolBlock": "its IPsec policy on the way in or through",
    "XfrmInTmplMismatch": "its IPsec policy: the packet came without the protection that it asks for",
    "XfrmInNoPols": "its IPsec: no policy allows the packet",
    "XfrmOutPolBlock": "its IPsec policy on the way out",
    "XfrmOutNoStates": "its IPsec policy on the way out: no state fits",
    **dict.fromkeys((f"Xfrm{error}" for error in _OTHER_ERRORS_OF_IPSEC.split()), "an error of its IPsec"),
}
"""Why a counter counted a packet (networking/snmp_counter in Linux's documentation; RFC 2011)."""

_RECEIVED = {4: "IpInReceives", 6: "Ip6InReceives"}
_TOLD_OF_NO_HOPS = {"IpInHdrErrors": "IcmpOutTimeExcds", "Ip6InHdrErrors": "Icmp6OutTimeExcds"}
_PASSED_ON = {4: ("IpForwDatagrams", "IpInDelivers"), 6: ("Ip6OutForwDatagrams", "Ip6InDelivers")}

_DISCOVERY = ("Icmp6InNeighborSolicits", "Icmp6InNeighborAdvertisements")
_MULTICAST = "Ip6InMcastPkts"

_TOO_LARGE, _TOLD_TOO_LARGE = "IpFragFails", "IcmpOutDestUnreachs"

COUNTERS = frozenset(
    {
        *_REASONS,
        *_RECEIVED.values(),
        *chain.from_iterable(_PASSED_ON.values()),
        *_DISCOVERY,
        _MULTICAST,
        _TOLD_TOO_LARGE,
        *_TOLD_OF_NO_HOPS.values(),
    }
)
"""The counters that evidence holds, where they moved."""

_ON_THE_WAY_OUT = re.compile(r"Out|Fwd|Acquire|FragFails|TooBig")

_LOST_TO_RULES = frozenset({"IpOutDiscards", "Ip6OutDiscards"})
"""What a stack counts of its own packets, such as ICMP errors, also where a rule in OUTPUT or POSTROUTING drops one."""

_IPSEC = "Xfrm"
_UNEXPLAINED = frozenset(
    {"IpInHdrErrors", "Ip6InHdrErrors", "IpExtInTruncatedPkts", "Ip6InTruncatedPkts", "Ip6InDiscards"}
)
"""What counts packets that another may have damaged, and those that IPsec drops."""

_UNROUTED = "its routing (or a program in its hooks, or IPsec)"
_UNROUTED_AT_POD = "its stack (routing, or a rule or program in its hooks, or IPsec)"
"""What may have dropped without a counter. The lab lists no BPF programs of type netfilter, and no rules of pods."""

_ENDING = frozenset({Effect.DROP, Effect.REJECT, Effect.TAKE})
_ENDED = frozenset({"DROP", "REJECT"})
_DROPS = frozenset({Effect.DROP})
_DROPS_OR_REJECTS = frozenset({Effect.DROP, Effect.REJECT})


class KernelDrop(Struct, frozen=True):
    """A node that dropped every packet of a probe: what dropped them, and the counter that shows it.

    ``others`` is how many packets the counter counted that are not the probe's.
    """

    node: str
    by: str
    packets: int
    counter: str
    others: int = 0

    @property
    def is_known(self) -> bool:
        """Whether addresses or a counter show why; no lab has policies of IPsec, or routes that drop."""
        return not self.counter.startswith(_IPSEC) and self.counter not in _UNEXPLAINED and self.by != _UNROUTED

    def __str__(self) -> str:
        counted = f"{self.counter} counted {amount(self.packets + self.others, 'packet')}"
        if self.others:
            counted += f", {self.others} of them of neighbour discovery or multicast"
        if self.counter in _RECEIVED.values():
            counted += f", and the stack forwarded, delivered or refused {'no other' if self.others else 'none'}"
        return f"{self.node} dropped the packet by {self.by}: {counted}"


def kernel_drop(
    resolved: ResolvedProbe, evidence: Evidence, packets: int, ended: Collection[str], plan: Plan | None = None
) -> KernelDrop | None:
    """The drop by the stack of one node that accounts for exactly ``packets`` packets.

    A counter with more or fewer is no witness: it counted other packets too, or not all. Nor is one of a node where the
    packets did not end (``ended`` names where they did): it counted something else, such as a neighbour solicitation.
    """
    if not packets or len(ended) != 1:
        return None
    (node,) = ended
    counts = _counts_of(evidence, node)
    is_answered = _delivered(counts, resolved.destination.version) >= packets
    for counter in _witnesses(counts, resolved, packets) if node in resolved.nodes else ():
        if counter in _LOST_TO_RULES and _may_be_by_rule(resolved, evidence, node):
            continue
        if counter == _TOO_LARGE and counts.get(_TOLD_TOO_LARGE, 0) < packets:
            continue  # it was cut into fragments, of which something dropped one (ip_do_fragment)
        told = _TOLD_OF_NO_HOPS.get(counter, "")
        if counts.get(told) == packets and not suspicion(resolved, evidence, node, CHANGING_HOPS):
            return KernelDrop(node, "its forwarding: the packet had no hops left (TTL or hop limit)", packets, told)
        if not (is_answered and _ON_THE_WAY_OUT.search(counter)):
            return KernelDrop(node, _REASONS[counter], packets, counter)
    if node not in evidence.metered_nodes:
        return None
    source = resolved.sender.address
    is_own = plan is not None and plan.namespace(node).has(source)
    by = _martian(node, source, resolved.destination, is_own=is_own) or _UNROUTED
    return _unrouted(resolved, evidence, node, packets, by)


def answer_drop(resolved: ResolvedProbe, evidence: Evidence, answers: int, ended: Collection[str]) -> KernelDrop | None:
    """The drop of exactly as many answers by the stack of the node that they came into, by the counter of its reason.

    The node received the requests, too, so that what it received shows nothing of the answers.
    """
    drop = kernel_drop(resolved, evidence, answers, ended)
    return drop if drop is not None and drop.counter not in _RECEIVED.values() else None


def drop_at(
    resolved: ResolvedProbe, evidence: Evidence, namespace: str, packets: int, came: tuple[IPAddress, IPAddress] | None
) -> KernelDrop | None:
    """The drop by the stack of that pod or host that accounts for exactly ``packets`` packets.

    ``came`` is the source of all packets, and their destination, if that is its own address. What a stack counts on the
    way out is its answer. Of packets that it delivered, only policies of IPsec drop any (tcp_v4_rcv in
    net/ipv4/tcp_ipv4.c).
    """
    counts = _counts_of(evidence, namespace)
    is_delivered = _delivered(counts, resolved.destination.version) >= packets
    for counter in _witnesses(counts, resolved, packets):
        if not _ON_THE_WAY_OUT.search(counter) and (counter.startswith(_IPSEC) or not is_delivered):
            return KernelDrop(namespace, _REASONS[counter], packets, counter)
    by = came and _martian(namespace, *came, is_own=came[0] == came[1])
    return _unrouted(resolved, evidence, namespace, packets, by or _UNROUTED_AT_POD)


def _counts_of(evidence: Evidence, node: str) -> Mapping[str, int]:
    return {count.counter: count.packets for count in evidence.kernel if count.node == node}


def _witnesses(counts: Mapping[str, int], resolved: ResolvedProbe, packets: int) -> Iterator[str]:
    """The counters that show a drop of exactly as many packets of the probe's IP version.

    Those of IPsec come first: IPv6 counts its drops as discarded, too (ip6_forward in net/ipv6/ip6_output.c). So does
    the one of a clash: connection tracking counts it as a drop, too (nf_ct_resolve_clash in nf_conntrack_core.c).
    """
    for counter in sorted(counts, key=lambda counter: not counter.startswith((_IPSEC, _CLASHED))):
        if counts[counter] == packets and counter in _REASONS and _counts(counter, resolved.destination.version):
            yield counter


def _counts(counter: str, version: int) -> bool:
    """Whether a counter counts packets of that IP version; connection tracking and IPsec count both in one."""
    if counter.startswith(("Conntrack", _IPSEC)):
        return True
    return counter.startswith("Ip6") is (version == 6)


def _unrouted(resolved: ResolvedProbe, evidence: Evidence, node: str, packets: int, by: str) -> KernelDrop | None:
    """A drop without a counter: the stack received every packet, passed none on, and no rule or counter took any.

    IpInReceives counts before the hook prerouting (ip_rcv_core in net/ipv4/ip_input.c). Only what works in that hook
    and routing stand between it and the other counters, so exclusion shows those: no rule may have ended the packets.
    Where a foreign rule may have, the two cannot be told apart.
    """
    version = resolved.destination.version
    counts = _counts_of(evidence, node)
    others = counts.get(_RECEIVED[version], 0) - packets
    if others not in _neighbours_packets(counts, version) or any(counts.get(name) for name in _REASONS):
        return None
    if _may_be_by_rule(resolved, evidence, node):
        return None
    return KernelDrop(node, by, packets, _RECEIVED[version], others)


def _neighbours_packets(counts: Mapping[str, int], version: int) -> Collection[int]:
    """How many packets may have come besides a probe's, if the stack passed none of the probe's on.

    IPv6 asks for neighbours and tells of its multicast groups in packets of its own (RFC 4861, RFC 3810), and at times
    of its own: a kernel asks again for a neighbour that it has not heard from. What it delivers of them has counters of
    ICMPv6; of multicast packets, which may be among those, the counter has delivered and other ones.
    """
    passed_on = sum(counts.get(name, 0) for name in _PASSED_ON[version])
    discovery = _discovery(counts, version)
    multicast = counts.get(_MULTICAST, 0) if version == 6 else 0
    return range(max(discovery, multicast), discovery + multicast + 1) if passed_on == discovery else ()


def _discovery(counts: Mapping[str, int], version: int) -> int:
    return sum(counts.get(name, 0) for name in _DISCOVERY) if version == 6 else 0


def _delivered(counts: Mapping[str, int], version: int) -> int:
    """How many packets the stack delivered besides those of neighbour discovery."""
    return counts.get(_PASSED_ON[version][1], 0) - _discovery(counts, version)


def _may_be_by_rule(resolved: ResolvedProbe, evidence: Evidence, node: str) -> bool:
    """Whether a rule of the node ended packets, or a foreign one may have."""
    ended = (each.target in _ENDED or effects_of(each.text) & _ENDING for each in evidence.counts if each.node == node)
    return any(ended) or bool(suspicion(resolved, evidence, node))


def _martian(node: str, source: IPAddress, destination: IPAddress, *, is_own: bool) -> str:
    """Why routing refuses a packet between these addresses, where it must (RFC 1812, section 5.3.7); or nothing."""
    if is_own:
        return f"its routing, since {node} itself has the source address {source}"
    if _never_a_source(source):
        return f"its routing, since {source} is no valid source address"
    if destination.is_loopback:
        return f"its routing, since no network may carry the loopback address {destination}"
    return ""


def _never_a_source(address: IPAddress) -> bool:
    return address.is_loopback or address.is_multicast or address.is_unspecified or address.is_reserved


def dropped_with_sentinels(evidence: Evidence, packets: int, ended: Collection[str]) -> bool:
    """Whether one rule or policy dropped all these packets, and each sentinel packet that did not come back.

    The lab reads the counters of iptables after the sentinel packets. A policy, or the rule for invalid packets, drops
    those as well. It drops a packet once, so a count of exactly as many leaves none that may be late.
    """
    return _counted_with_sentinels(evidence, packets, ended, _DROPS)


def ended_with_sentinels(evidence: Evidence, answers: int, ended: Collection[str]) -> bool:
    """As ``dropped_with_sentinels``, for answers, which a rule that rejects them keeps from the sender as well."""
    return _counted_with_sentinels(evidence, answers, ended, _DROPS_OR_REJECTS)


def _counted_with_sentinels(evidence: Evidence, packets: int, ended: Collection[str], ends: Effects) -> bool:
    all_of_them = packets + sum(not each.answered for each in evidence.sentinels)
    return packets > 0 and any(
        count.packets == all_of_them and {count.node} == set(ended) and _counter_shows(count, ends)
        for count in evidence.counts
    )


def _counter_shows(count: RuleCount, ends: Effects) -> bool:
    """Whether a rule of iptables ends packets so: its counter is the kernel's, read after the sentinel packets."""
    rule = read_rule(count.text)
    return rule is not None and not rule.is_nft and bool(effects(rule) & ends)


def policy_drop(resolved: ResolvedProbe, evidence: Evidence, packets: int, ended: Collection[str]) -> str:
    """The sentence that a chain's policy dropped as many packets as the probe has, or more; empty if none did.

    It is a policy of the one node where the packets ended, and one that they may have met. The count may include
    sentinel packets and others, so this explains a loss and proves none.
    """
    counts: tuple[RuleCount | ForeignRule, ...] = (*evidence.counts, *evidence.foreign)
    for count in counts:
        if {count.node} != set(ended) or not is_policy(count.text) or not may_meet(count, resolved, evidence):
            continue
        counted = count.packets or 0
        if 0 < packets <= counted and effects_of(count.text) & _DROPS:
            by = f"the policy of {count.chain}, which counted {amount(counted, 'packet')}"
            return f"{count.node} dropped the packet by {by}."
    return ""


def reverse_path_counted(evidence: Evidence, node: str) -> bool:
    """Whether the reverse-path filter of a node counted packets; also where the lab did not read its counter."""
    return not evidence.counters_read_at or bool(_counts_of(evidence, node).get(_REVERSE_PATH))


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
