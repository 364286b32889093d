"""What ended packets besides rules: a node's stack, by the kernel's counters, and the policies of chains.

A counter is a witness only if it accounts for every packet of the probe. The lab reads the counters of a node before a
probe and again before the first sentinel packet leaves, so that they count the probe's packets only.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Evidence, KernelCount
from proxylab.evidence.words import amount
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.verdict.foreign import may_meet, suspicion

__all__ = [
    "COUNTERS",
    "KernelDrop",
    "drop_at",
    "dropped_with_sentinels",
    "ended_with_sentinels",
    "kernel_drop",
    "policy_drop",
]

_REASONS = {
    "TcpExtIPReversePathFilter": "its reverse-path filter",
    "IpInAddrErrors": "its routing: the packet is not for this node, and forwarding is off",
    "Ip6InAddrErrors": "its routing: the packet is not for this node, and forwarding is off",
    "IpInHdrErrors": "its IP layer: a malformed header (or TTL exceeded)",
    "Ip6InHdrErrors": "its IP layer: a malformed header (or hop limit exceeded)",
    "IpInDiscards": "its IP layer, out of memory",
    "Ip6InDiscards": "its IP layer, out of memory",
    "IpFragFails": "its forwarding: the packet is larger than the next link's MTU, and forbids fragments",
    "Ip6InTooBigErrors": "its forwarding: the packet is larger than the next link's MTU",
    "IpOutDiscards": "its IP layer on the way out",
    "Ip6OutDiscards": "its IP layer on the way out",
    "IpOutNoRoutes": "its routing: no route leads there",
    "Ip6OutNoRoutes": "its routing: no route leads there",
    "ConntrackInsertFailed": "its connection tracking: two flows would share one tuple",
    "XfrmInPolBlock": "its IPsec policy on the way in or through",
    "XfrmInNoPols": "its IPsec policy: the packet came without protection",
    "XfrmOutPolBlock": "its IPsec policy on the way out",
    "ConntrackDrop": "its connection tracking: the table is full",
}
"""Why a counter counted a packet (networking/snmp_counter in Linux's documentation; RFC 2011)."""

_RECEIVED = {4: "IpInReceives", 6: "Ip6InReceives"}
_PASSED_ON = {4: ("IpForwDatagrams", "IpInDelivers"), 6: ("Ip6OutForwDatagrams", "Ip6InDelivers")}

_DISCOVERY = ("Icmp6InNeighborSolicits", "Icmp6InNeighborAdvertisements")
_MULTICAST = "Ip6InMcastPkts"

COUNTERS = frozenset(
    {*_REASONS, *_RECEIVED.values(), *chain.from_iterable(_PASSED_ON.values()), *_DISCOVERY, _MULTICAST}
)
"""The counters that evidence holds, where they moved."""

_LOST_TO_RULES = frozenset({"IpOutDiscards", "Ip6OutDiscards"})
"""What a stack counts of its own packets, such as ICMP errors, also where a rule in OUTPUT or POSTROUTING drops one."""

_IPSEC = "Xfrm"
_ROUTING = "its routing"
_ENDING = re.compile(r"-j (DROP|REJECT|NFQUEUE|TPROXY|SYNPROXY)\b|-P \S+ DROP")
_ENDED = frozenset({"DROP", "REJECT"})
_POLICY = re.compile(r"-P (\S+) DROP")
_DROPS = re.compile(r"-j DROP\b|-P \S+ DROP")
_DROPS_OR_REJECTS = re.compile(r"-j (?:DROP|REJECT)\b|-P \S+ DROP")


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
        return not self.counter.startswith(_IPSEC) and self.by != _ROUTING

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
    for count in evidence.kernel:
        if node in resolved.nodes and count.node == node and _tells(count, resolved, packets):
            if count.counter in _LOST_TO_RULES and _may_be_by_rule(resolved, evidence, node):
                continue
            return KernelDrop(count.node, _REASONS[count.counter], packets, count.counter)
    return _unrouted(resolved, evidence, set(evidence.counted).intersection(ended), packets, plan)


def drop_at(
    resolved: ResolvedProbe, evidence: Evidence, namespace: str, packets: int, own: IPAddress | None
) -> KernelDrop | None:
    """The drop by the stack of that pod or host that accounts for exactly ``packets`` packets.

    ``own`` is its own address, if all packets came from it: no stack accepts its own address from the network.
    """
    for count in evidence.kernel:
        if count.node == namespace and _tells(count, resolved, packets):
            return KernelDrop(namespace, _REASONS[count.counter], packets, count.counter)
    unrouted = _unrouted(resolved, evidence, (namespace,), packets, None)
    if unrouted is None or own is None:
        return unrouted
    return replace(unrouted, by=f"its routing, since {namespace} itself has the source address {own}")


def _tells(count: KernelCount, resolved: ResolvedProbe, packets: int) -> bool:
    """Whether a counter shows a drop of exactly as many packets of the probe's IP version."""
    return (
        count.packets == packets and count.counter in _REASONS and _counts(count.counter, resolved.destination.version)
    )


def _counts(counter: str, version: int) -> bool:
    """Whether a counter counts packets of that IP version; connection tracking and IPsec count both in one."""
    if counter.startswith(("Conntrack", _IPSEC)):
        return True
    return counter.startswith("Ip6") is (version == 6)


def _unrouted(
    resolved: ResolvedProbe, evidence: Evidence, reached: Iterable[str], packets: int, plan: Plan | None
) -> KernelDrop | None:
    """A drop without a counter: the stack received every packet, passed none on, and no rule or counter took any.

    IpInReceives counts before the hook prerouting (ip_rcv_core in net/ipv4/ip_input.c). Only the rules of that hook and
    routing stand between it and the other counters, so exclusion shows routing: no rule may have ended the packets.
    Where a foreign rule may have, the two cannot be told apart.
    """
    version = resolved.destination.version
    for node in reached:
        counts = {count.counter: count.packets for count in evidence.kernel if count.node == node}
        others = counts.get(_RECEIVED[version], 0) - packets
        if others not in _neighbours_packets(counts, version):
            continue
        if any(counts.get(name) for name in _REASONS):
            continue
        if _may_be_by_rule(resolved, evidence, node):
            continue
        by = f"{_ROUTING}{_martian(resolved, node, plan)}"
        return KernelDrop(node, by, packets, _RECEIVED[version], others)
    return None


def _neighbours_packets(counts: Mapping[str, int], version: int) -> Collection[int]:
    """How many packets may have come besides a probe's, if the stack passed none of the probe's on.

    IPv6 asks for neighbours and tells of its multicast groups in packets of its own (RFC 4861, RFC 3810), and at times
    of its own: a kernel asks again for a neighbour that it has not heard from. What it delivers of them has counters of
    ICMPv6; of multicast packets, which may be among those, the counter has delivered and other ones.
    """
    passed_on = sum(counts.get(name, 0) for name in _PASSED_ON[version])
    discovery = sum(counts.get(name, 0) for name in _DISCOVERY) if version == 6 else 0
    multicast = counts.get(_MULTICAST, 0) if version == 6 else 0
    return range(max(discovery, multicast), discovery + multicast + 1) if passed_on == discovery else ()


def _may_be_by_rule(resolved: ResolvedProbe, evidence: Evidence, node: str) -> bool:
    """Whether a rule of the node ended packets, or a foreign one may have."""
    ended = (each.target in _ENDED or _ENDING.search(each.text) for each in evidence.counts if each.node == node)
    return any(ended) or bool(suspicion(resolved, evidence, node))


def _martian(resolved: ResolvedProbe, node: str, plan: Plan | None) -> str:
    """Why routing refuses a packet between these addresses, where it must (RFC 1812, section 5.3.7)."""
    source, destination = resolved.sender.address, resolved.destination
    if plan is not None and plan.namespace(node).has(source):
        return f", since {node} itself has the source address {source}"
    if _never_a_source(source):
        return f", since {source} is no valid source address"
    if destination.is_loopback:
        return f", since no network may carry the loopback address {destination}"
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


def _counted_with_sentinels(evidence: Evidence, packets: int, ended: Collection[str], rules: re.Pattern[str]) -> bool:
    all_of_them = packets + sum(not each.answered for each in evidence.sentinels)
    return packets > 0 and any(
        count.packets == all_of_them and {count.node} == set(ended) and rules.search(count.text)
        for count in evidence.counts
    )


def policy_drop(resolved: ResolvedProbe, evidence: Evidence, packets: int, ended: Collection[str]) -> str:
    """The sentence that a chain's policy dropped as many packets as the probe has, or more; empty if none did.

    It is a policy of the one node where the packets ended, and one that they may have met. The count includes sentinel
    packets and perhaps others, so this explains a loss and proves none.
    """
    for count in evidence.counts:
        if {count.node} != set(ended) or not may_meet(count, resolved, evidence):
            continue
        if 0 < packets <= count.packets and (policy := _POLICY.fullmatch(count.text)):
            counted = f"which counted {amount(count.packets, 'packet')}"
            return f"{count.node} dropped the packet by the policy of {policy[1]}, {counted}."
    return ""
