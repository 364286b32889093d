"""Causes of a failed expectation of a stream.

A sentence rests on the conntrack tables at the step's end, or gives the time, which a reader compares with the change
and the logs.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.cluster.rollout import RolloutStage
from proxylab.evidence.stream_records import BreakKind, StreamPacket, StreamPacketFate
from proxylab.evidence.words import amount, endpoint
from proxylab.scenario.change import Change
from proxylab.verdict.step_case import MILLISECOND, StreamCase, when


class StreamFailure(Struct, frozen=True):
    """A stream of which an expectation failed.

    Attributes:
        stream: with its record.
        addresses: of every node, pod and host.
        change: what the step changes.
    """

    stream: StreamCase
    addresses: Mapping[str, tuple[IPAddress, ...]]
    change: Change = Change()

    @property
    def deleted(self) -> frozenset[str]:
        """The pods that the step deletes."""
        gone = (name for name, each in self.change.pods.items() if each.present is False)
        return frozenset([*gone, *(name for stage in self._stages for name in stage.deleted)])

    @property
    def killed(self) -> frozenset[str]:
        """The pods that the step deletes without a grace period."""
        return frozenset(name for stage in self._stages if stage.killed for name in stage.deleted)

    @property
    def _stages(self) -> list[RolloutStage]:
        return [stage for each in self.change.workloads for stage in each.stages]

    @property
    def missing(self) -> list[StreamPacket]:
        """The packets without an answer that no link lost."""
        unanswered = (each for each in self.stream.packets if each.fate is not StreamPacketFate.ANSWERED)
        return [each for each in unanswered if not each.link]


def owner(addresses: Mapping[str, tuple[IPAddress, ...]], address: IPAddress) -> str:
    """The node, pod or host with an address; empty if the scenario has none."""
    return next((name for name, own in addresses.items() if address in own), "")


def sent_to_earlier_backend(failure: StreamFailure) -> str:
    """Connection tracking still sends the stream to its earlier backend, and no other one answered last."""
    stream = failure.stream
    before = {packet.backend for packet in stream.packets if packet.at < stream.step.settled and packet.backend}
    last = stream.packets[-1].backend if stream.packets else ""
    for entry in stream.record.tracked:
        who = owner(failure.addresses, entry.reply_source)
        is_wrong = not last or (last == who and stream.expect.backend)  # else another may rightly answer last
        if who in before and is_wrong and who != stream.expect.backend:
            to = f"{who} ({endpoint(entry.reply_source, entry.reply_source_port)})"
            still = f"conntrack on {entry.node} still sends {stream.name} to {to}, which answered before"
            return f"{still}: nothing deleted that entry."
    return ""


def led_to_gone_pod(failure: StreamFailure) -> str:
    """Connection tracking leads a connection to a pod that is gone, where nothing answers or resets it.

    kube-proxy deletes the entries of gone endpoints for UDP alone (pkg/proxy/conntrack/cleanup.go). Those of an
    established connection over TCP stay for nf_conntrack_tcp_timeout_established.
    """
    stream = failure.stream
    for entry in stream.record.tracked if stream.record.by_connection and failure.missing else ():
        name = owner(failure.addresses, entry.reply_source)
        if name in failure.deleted:
            to = f"{name} ({endpoint(entry.reply_source, entry.reply_source_port)}), a pod that is gone"
            leads = f"conntrack on {entry.node} still leads {stream.name} to {to}: nothing answers or resets it there"
            return f"{leads}. kube-proxy deletes such entries for UDP alone."
    return ""


def pod_was_killed(failure: StreamFailure) -> str:
    """The backend ended at once, before any proxy could know."""
    stream = failure.stream
    ends = [*(each.at for each in failure.missing), *(each.at for each in stream.record.breaks)]
    before = [each.backend for each in stream.packets if each.backend and each.at < min(ends, default=0)]
    if not before or before[-1] not in failure.killed:
        return ""
    ended = f"{before[-1]} ended without a grace period (terminationGracePeriodSeconds is 0)"
    cure = "with a grace period it serves until proxies have followed"
    return f"{ended}, before the API server knew, so the proxy is not to blame; {cure}."


def not_answered(failure: StreamFailure) -> str:
    """When no answer came, and which backend answered next."""
    stream, changed, missing = failure.stream, failure.stream.step.changed, failure.missing
    if not missing:
        return ""
    first, last = missing[0], missing[-1]
    resumed = next((each for each in stream.packets if each.at > last.at and each.backend), None)
    if resumed is None:
        return f"{stream.name} gets no answer from packet {first.number} on, {stream.sent(first)}."
    the_first = "" if first is last else "the first "
    what = f"{_ends(missing)}, {the_first}{stream.sent(first)}"
    return f"{what}; {resumed.backend} answered what was sent {when(resumed.at, changed, 'it')}."


def _ends(missing: Sequence[StreamPacket]) -> str:
    """What became of packets without an answer."""
    lost = sum(packet.fate is StreamPacketFate.LOST for packet in missing)
    parts = [f"{amount(lost, 'packet')} lost"] if lost else []
    if lost < len(missing):
        parts.append(f"{amount(len(missing) - lost, 'packet')} rejected by an ICMP error")
    return " and ".join(parts)


def was_reset(failure: StreamFailure) -> str:
    """When a reset ended a connection."""
    stream = failure.stream
    reset = next((each for each in stream.record.breaks if each.kind is BreakKind.RESET), None)
    return "" if reset is None else f"{stream.name} was reset {when(reset.at, stream.step.changed)}."


def answered_slowly(failure: StreamFailure) -> str:
    """The slowest answer."""
    stream = failure.stream
    slow = max(stream.packets, key=lambda packet: packet.delay)
    took = f"{slow.backend} took {slow.delay / MILLISECOND:.1f} ms"
    return f"{took} to answer packet {slow.number}, which was {stream.sent(slow)}."
