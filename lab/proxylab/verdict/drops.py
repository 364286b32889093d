"""Drops that no rule made: what a node's own stack counted of the packets of a probe.

Owns: which of the kernel's counters tell of a drop, and in what words; and the drop that has no counter of its own.
Must not: take a counter for a witness that does not account for every packet.

The counters of a node are read before a probe and again before its first fence leaves, so that they tell of the probe's
packets and of nothing that was sent to learn about them.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Evidence, KernelCount
from proxylab.evidence.words import amount
from proxylab.frozen import dataclass
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.verdict.foreign import may_have_ended

__all__ = ["COUNTERS", "KernelDrop", "drop_at", "kernel_drop", "policy_drop"]

_REASONS = {
    "TcpExtIPReversePathFilter": "its reverse-path filter",
    "IpInAddrErrors": "its routing: the packet is not for this node, and forwarding is off",
    "Ip6InAddrErrors": "its routing: the packet is not for this node, and forwarding is off",
    "IpInHdrErrors": "its IP layer: a malformed header (or TTL exceeded)",
    "Ip6InHdrErrors": "its IP layer: a malformed header (or hop limit exceeded)",
    "IpInDiscards": "its IP layer, out of memory",
    "Ip6InDiscards": "its IP layer, out of memory",
    "IpOutDiscards": "its IP layer on the way out",
    "Ip6OutDiscards": "its IP layer on the way out",
    "IpOutNoRoutes": "its routing: no route leads there",
    "Ip6OutNoRoutes": "its routing: no route leads there",
    "ConntrackInsertFailed": "its connection tracking: two flows would share one tuple",
    "ConntrackDrop": "its connection tracking: the table is full",
}
"""What a counter says of a packet that it counted (networking/snmp_counter in Linux's documentation; RFC 2011)."""

_RECEIVED = {4: "IpInReceives", 6: "Ip6InReceives"}
_PASSED_ON = {4: ("IpForwDatagrams", "IpInDelivers"), 6: ("Ip6OutForwDatagrams", "Ip6InDelivers")}

COUNTERS = frozenset({*_REASONS, *_RECEIVED.values(), *(name for names in _PASSED_ON.values() for name in names)})
"""The counters that evidence is to have, where they moved."""


_ENDING = re.compile(r"-j (DROP|REJECT)\b|-P \S+ DROP")
_ENDED = frozenset({"DROP", "REJECT"})
_POLICY = re.compile(r"-P (\S+) DROP")


@dataclass(frozen=True, slots=True)
class KernelDrop:
    """A node that dropped every packet of a probe: by what, and which counter says so."""

    node: str
    by: str
    packets: int
    counter: str

    def __str__(self) -> str:
        counted = f"{self.counter} counted {amount(self.packets, 'packet')}"
        if self.counter in _RECEIVED.values():
            counted += ", and the stack forwarded, delivered or refused none"
        return f"{self.node} dropped the packet by {self.by}: {counted}"


def kernel_drop(
    resolved: ResolvedProbe, evidence: Evidence, packets: int, plan: Plan | None = None
) -> KernelDrop | None:
    """The drop that accounts for exactly ``packets`` packets, if the stack of one node made one.

    A counter that counted more or fewer is no witness: it tells of something else as well, or not of all.
    """
    if not packets:
        return None
    for count in evidence.kernel:
        if count.node in resolved.nodes and _tells(count, resolved, packets):
            return KernelDrop(count.node, _REASONS[count.counter], packets, count.counter)
    return _unrouted(resolved, evidence, evidence.counted, packets, plan)


def drop_at(
    resolved: ResolvedProbe, evidence: Evidence, namespace: str, packets: int, own: IPAddress | None
) -> KernelDrop | None:
    """The drop that accounts for exactly ``packets`` packets, if the stack of that pod or host made one.

    ``own`` is an address of its own from which all of them came, which no stack takes from a wire.
    """
    for count in evidence.kernel:
        if count.node == namespace and _tells(count, resolved, packets):
            return KernelDrop(namespace, _REASONS[count.counter], packets, count.counter)
    unrouted = _unrouted(resolved, evidence, (namespace,), packets, None)
    if unrouted is None or own is None:
        return unrouted
    return replace(unrouted, by=f"its routing, since {namespace} itself has the source address {own}")


def _tells(count: KernelCount, resolved: ResolvedProbe, packets: int) -> bool:
    """Whether a counter tells of a drop, and of as many packets of the errand's IP version."""
    return (
        count.packets == packets and count.counter in _REASONS and _counts(count.counter, resolved.destination.version)
    )


def _counts(counter: str, version: int) -> bool:
    """Whether a counter counts packets of that IP version; connection tracking counts both in one."""
    if counter.startswith("Conntrack"):
        return True
    return counter.startswith("Ip6") is (version == 6)


def _unrouted(
    resolved: ResolvedProbe, evidence: Evidence, reached: Iterable[str], packets: int, plan: Plan | None
) -> KernelDrop | None:
    """A drop without a counter: the stack got every packet, passed none on, and no rule and no counter took any.

    IpInReceives counts before the hook prerouting (ip_rcv_core in net/ipv4/ip_input.c). Between it and every other
    counter stand the rules of that hook and routing, so routing is shown by exclusion: no rule of anybody may have
    ended the packets. Where a foreign rule may have, nothing tells the two apart.
    """
    version = resolved.destination.version
    for node in reached:
        counts = {count.counter: count.packets for count in evidence.kernel if count.node == node}
        if counts.get(_RECEIVED[version]) != packets:
            continue
        if any(counts.get(name) for name in (*_PASSED_ON[version], *_REASONS)):
            continue
        if any(
            count.node == node and (count.target in _ENDED or _ENDING.search(count.text)) for count in evidence.counts
        ):
            continue
        if may_have_ended(evidence, node):
            continue
        return KernelDrop(node, f"its routing{_martian(resolved, node, plan)}", packets, _RECEIVED[version])
    return None


def _martian(resolved: ResolvedProbe, node: str, plan: Plan | None) -> str:
    """Why routing refuses a packet between these addresses, where it must (RFC 1812, section 5.3.7)."""
    source, destination = resolved.sender.address, resolved.destination
    if plan is not None and source in (address.interface.ip for address in plan.namespace(node).addresses):
        return f", since {node} itself has the source address {source}"
    if _never_a_source(source):
        return f", since {source} is no valid source address"
    if destination.is_loopback:
        return f", since no network may carry the loopback address {destination}"
    return ""


def _never_a_source(address: IPAddress) -> bool:
    return address.is_loopback or address.is_multicast or address.is_unspecified or address.is_reserved


def policy_drop(evidence: Evidence, packets: int) -> str:
    """That a chain's policy dropped as many packets as the probe has, or more, as a sentence; empty if none did.

    They may have been others, and fences are among them, so this explains a loss and proves none.
    """
    for count in evidence.counts:
        if 0 < packets <= count.packets and (policy := _POLICY.fullmatch(count.text)):
            counted = f"which counted {amount(count.packets, 'packet')}"
            return f"{count.node} dropped the packet by the policy of {policy[1]}, {counted}."
    return ""
