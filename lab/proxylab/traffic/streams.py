"""The streams of a lab: one flow each, which continues through all steps.

``Streams`` decides when stream packets are sent, and when a step's packets are all settled. It makes no steps and
judges nothing.

A timer of the event loop paces a stream. A late timer sends one packet and not all that it has missed. Each packet is
sent, answered and its answer read in one go, as far as the kernel allows it, so that a lab under load sends less often
and does not answer more slowly.

Streams pause between steps, and while probes run: rules count packets of any origin. Before the pause every packet must
be settled: answered, turned away, or provably lost. Over UDP sentinel packets prove that (``sentinels``), sent from
every CPU that has sent a stream packet. Over TCP and SCTP the kernel sends again, so some time more is given; a packet
without an answer after that is lost.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Transport
from proxylab.evidence.evidence import LinkCount, Packet
from proxylab.evidence.stream_records import BreakKind, StreamCopy, StreamPacket, StreamPacketFate, StreamRecord
from proxylab.kernel.netlink.netem import NetemLinks
from proxylab.kernel.sandbox.linux import current_cpu
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.resolved import ResolvedProbe, Sentinel
from proxylab.timing import Deadline, DeadlineExceededError, wait_until
from proxylab.traffic.connect import need_sctp
from proxylab.traffic.conntrack_reader import ConntrackReader
from proxylab.traffic.cpu_affinity import one_cpu
from proxylab.traffic.craft import filling
from proxylab.traffic.dissect import dissect
from proxylab.traffic.identity import Identity, IdentityRegistry
from proxylab.traffic.programs import Programs
from proxylab.traffic.responder import Responders
from proxylab.traffic.sentinels import Sentinels
from proxylab.traffic.stream_copies import StreamCopies
from proxylab.traffic.stream_ledger import Ledger
from proxylab.traffic.stream_sockets import Datagrams, StreamConnection, StreamSocket
from proxylab.traffic.stream_taps import SenderTap, StreamPaths
from proxylab.traffic.watch import AnyTap, Watch

_SENTINEL_SECONDS: Final = 1.0
_SENDING_AGAIN: Final = {Transport.TCP: 1.0, Transport.SCTP: 3.5}
"""The seconds that hold two attempts: without an acknowledgement, TCP sends again after 200 ms (TCP_RTO_MIN) and 400 ms
more, SCTP after a second (net.sctp.rto_min) and two more."""
_PATIENCE_WITH_PROGRAMS: Final = 0.5
"""For packets in a proxy's process that cannot be asked."""
_SETTLING_ROUNDS: Final = 6
"""A packet on a new connection is settled in four: dial, accept, request, answer."""
_ENOUGH: Final = 5
"""How many packets a step sends after its wait before it may end."""
_BETWEEN_READINGS: Final = 64
"""How many packets a stream sends before the taps are read again, whose buffers are limited."""
_PATIENCE: Final = 10.0


@dataclass(slots=True)
class _Stream:
    resolved: ResolvedProbe
    ports: list[int]
    identity: Identity
    ledger: Ledger
    socket: StreamSocket
    tap: AnyTap
    sender_tap: SenderTap
    copies: StreamCopies
    due: float = 0.0
    timer: asyncio.TimerHandle | None = None
    cpus: set[int] = field(default_factory=set)
    change: int = 0
    enough: int = 0
    silent: tuple[str, ...] = ()
    undrained: tuple[str, ...] = ()


class Streams:
    """All streams of one lab. The runner makes them, and they pause while it runs a probe."""

    def __init__(
        self,
        netns_by_name: Mapping[str, NetNs],
        watch: Watch,
        responders: Responders,
        identities: IdentityRegistry,
        conntrack: ConntrackReader,
        port_of: Callable[[ResolvedProbe], int],
        programs: Programs,
        links: NetemLinks,
    ) -> None:
        """Start without streams; ``port_of`` gives the source port of a probe, ``links`` may have netem."""
        self._programs = programs
        self._links = links
        self._paths = StreamPaths()
        self._netns_by_name = netns_by_name
        self._watch = watch
        self._responders = responders
        self._identities = identities
        self._conntrack = conntrack
        self._port_of = port_of
        self._streams: dict[str, _Stream] = {}
        self._resting = True

    async def begin(self, resolved_probes: Iterable[ResolvedProbe]) -> None:
        """Begin the new streams and resume all others. When this returns, the next packet of each has been sent.

        Where a proxy's process may hold that packet, its answer has come or is overdue, too: it shows the cluster as it
        was before a step's change.

        Raises:
            InternalError: a sender has no tap.
            CapabilityError: the kernel has no SCTP, or cannot show which packets a node's programs receive.
        """
        for resolved in resolved_probes:
            if resolved.name not in self._streams:
                self._streams[resolved.name] = self._open(resolved)
        if self._links.any and self._streams:
            self._watch.follow(True)
        self._go_on(self._streams.values())
        for stream in tuple(self._streams.values()):
            await self._pass_first(stream, stream.ledger.sent - 1)

    def changed(self) -> None:
        """Note that a change is made: ``answering`` looks only at packets sent from now on."""
        for stream in self._streams.values():
            stream.change = stream.ledger.sent

    def mark(self) -> None:
        """Note the end of a step's wait: packets sent from now on show the effect of the change."""
        for stream in self._streams.values():
            stream.enough = stream.ledger.sent + _ENOUGH

    async def have_enough(self) -> None:
        """Run until every stream has sent as many packets since the mark as a step needs."""
        short = [each for each in self._streams.values() if each.ledger.sent < each.enough]
        if not short:
            return
        if self._resting:
            self._go_on(self._streams.values())
        longest = max(each.resolved.every for each in short) / 1000
        deadline = Deadline.after(_PATIENCE + _ENOUGH * longest)
        await wait_until(
            lambda: all(each.ledger.sent >= each.enough for each in short),
            deadline,
            "every stream has sent enough packets",
        )

    async def rest(self, sentinels: Callable[[ResolvedProbe], Sequence[Sentinel]]) -> None:
        """Send no more, and return when every packet is settled. ``sentinels`` are those that can be answered now."""
        if self._resting:
            return
        self._resting = True
        for stream in self._streams.values():
            if stream.timer is not None:
                stream.timer.cancel()
                stream.timer = None
        for stream in self._streams.values():
            stream.silent = stream.undrained = ()
            self._turn()
            await self._pass_links(stream)
            if stream.ledger.outstanding:
                await self._settle(stream, sentinels(stream.resolved))
        self._read_taps()  # what a probe sends next begins by forgetting all frames
        self._watch.keep_data(False)

    def take(self, links: Sequence[LinkCount] = ()) -> tuple[StreamRecord, ...]:
        """The records since the last call, while ``links`` dropped so much; the streams must be at rest."""
        self._read_taps()
        budget, lossy = [link for link in links if link.dropped], bool(self._watch.take_losses())
        records = tuple(self._record(stream, budget, lossy=lossy) for stream in self._streams.values())
        self._paths.forget()
        return records

    def any_port_changed(self, records: Iterable[StreamRecord]) -> bool:
        """Whether a backend saw a stream's own address with another port; other connections may hold the own one."""
        own = {name: each.resolved.sender.addresses for name, each in self._streams.items()}
        return any(
            packet.peer in own[record.stream] and packet.peer_port != packet.port
            for record in records
            for packet in record.packets
        )

    def answering(self, name: str) -> str:
        """The pod behind the latest answer to a stream's packets since the change; empty if there is none."""
        stream = self._streams[name]
        latest = stream.ledger.latest
        return latest.backend if latest is not None and latest.number >= stream.change else ""

    def close(self) -> None:
        """End all streams."""
        for stream in self._streams.values():
            if stream.timer is not None:
                stream.timer.cancel()
            stream.socket.close()
        self._streams.clear()

    def _open(self, resolved: ResolvedProbe) -> _Stream:
        if resolved.protocol is Transport.SCTP:
            need_sctp(f"stream {resolved.name!r}")
        identity = self._identities.issue(1)
        netns = self._netns_by_name[resolved.sender.namespace]
        tap = self._watch.tap(resolved.sender.namespace, resolved.sender.device)
        ledger = Ledger(identity, filling(resolved.payload))
        sender_tap = SenderTap(identity, resolved.protocol, tap, resolved.sender.address)
        ports: list[int] = []

        def port_of() -> int:
            ports.append(self._port_of(resolved))
            sender_tap.watch_port(ports[-1])
            ledger.port = ports[-1]
            return ports[-1]

        socket: StreamSocket
        if resolved.protocol is Transport.UDP:
            socket = Datagrams(netns, resolved, port_of(), ledger)
        else:
            socket = StreamConnection(netns, resolved, ledger, port_of, partial(self._resets, sender_tap))
        copies = StreamCopies(resolved, identity, tap)
        return _Stream(resolved, ports, identity, ledger, socket, tap, sender_tap, copies)

    def _go_on(self, streams: Iterable[_Stream]) -> None:
        self._resting = False
        self._watch.keep_data(any(each.resolved.protocol is Transport.TCP for each in self._streams.values()))
        self._read_taps()
        for stream in streams:
            stream.due = asyncio.get_running_loop().time()
            self._send_next(stream)

    def _send_next(self, stream: _Stream) -> None:
        """Send a packet, and set the timer for the next."""
        loop, every = asyncio.get_running_loop(), stream.resolved.every / 1000
        if stream.ledger.sent % _BETWEEN_READINGS == 0:
            self._read_taps()
        stream.due = max(stream.due, loop.time() - every) + every
        stream.timer = loop.call_at(stream.due, self._send_next, stream)
        stream.cpus.add(current_cpu())
        stream.socket.send()
        self._turn()

    def _read_taps(self) -> None:
        """Read all taps, each once for all streams."""
        follows_links = self._links.any
        batches = self._watch.collect()
        # The senders' taps come first: they show the sequence numbers of new connections.
        senders = {id(each.tap) for each in self._streams.values()}
        for tap, frames in sorted(batches, key=lambda batch: id(batch[0]) not in senders):
            if follows_links:
                self._paths.take(tap, frames)
            read = [(frame, dissect(frame.data)) for frame in frames if not frame.otherhost]
            seen = [(frame, datagram) for frame, datagram in read if datagram is not None]
            for stream in self._streams.values():
                if stream.tap is tap:
                    stream.sender_tap.take(frames)
                stream.copies.take(tap, seen, stream.ports)

    def _resets(self, sender_tap: SenderTap) -> list[int]:
        self._read_taps()
        return sender_tap.resets()

    def _turn(self) -> None:
        """Answer and receive all that is ready now."""
        for _ in range(_SETTLING_ROUNDS):
            answered = self._responders.pump()
            received = [stream.socket.receive() for stream in self._streams.values()]
            if not answered and not any(received):
                return

    async def _settle(self, stream: _Stream, targets: Sequence[Sentinel]) -> None:
        """Return when every packet of a stream is settled, or can no longer be."""
        sentinels = Sentinels(replace(stream.resolved, sentinels=tuple(targets)), stream.identity, stream.tap)
        for cpu in sorted(stream.cpus):
            with one_cpu(cpu):
                await self._send_sentinels(stream, sentinels)
        with one_cpu():
            self._turn()  # an answer sent only now must precede one more round
            await self._send_sentinels(stream, sentinels)
        stream.undrained = await self._drain_programs(stream, sentinels) if stream.ledger.outstanding else ()
        stream.silent = tuple(each.name for each in sentinels.reports() if not each.answered)
        stream.cpus.clear()
        again = _SENDING_AGAIN.get(stream.resolved.protocol, 0.0)
        if again and stream.ledger.outstanding:
            with suppress(DeadlineExceededError):
                await wait_until(partial(self._is_settled, stream), Deadline.after(again), "late answers come")

    async def _pass_links(self, stream: _Stream) -> None:
        """Return when no packet is on its way through a link with netem, or none is missing."""
        links = self._links
        if not links.active:
            return
        deadline = Deadline.after(_SENTINEL_SECONDS + 2 * links.round_trip)
        with suppress(DeadlineExceededError):
            await wait_until(
                lambda: self._is_settled(stream) or links.at_rest(), deadline, "links with netem are empty"
            )
        self._turn()

    async def _pass_first(self, stream: _Stream, number: int) -> None:
        """Let proxies' processes pass on a packet of a stream, and its answer."""
        passage = self._programs.on_the_way(stream.resolved)
        for _ in range(2):
            if not await passage.drain():
                break
            self._turn()
        if passage.undrained:
            with suppress(DeadlineExceededError):
                await wait_until(
                    lambda: not stream.ledger.awaits(number),
                    Deadline.after(_PATIENCE_WITH_PROGRAMS),
                    "a proxy's process passes a packet on",
                )

    async def _drain_programs(self, stream: _Stream, sentinels: Sentinels) -> tuple[str, ...]:
        """Let proxies' processes pass on what they hold of a stream: what goes there, and then the answers.

        Such a process may run on any CPU, so sentinel packets follow from each. Returns the nodes whose process may
        still hold something. TCP sends again, and needs none of this.
        """
        passage = self._programs.on_the_way(stream.resolved)
        if stream.resolved.protocol is not Transport.UDP or not passage.nodes:
            return ()
        for _ in range(2):
            if not await passage.drain():
                with suppress(DeadlineExceededError):
                    await wait_until(
                        partial(self._is_settled, stream), Deadline.after(_PATIENCE_WITH_PROGRAMS), "answers"
                    )
                return passage.undrained if stream.ledger.outstanding else ()
            for cpu in sorted(os.sched_getaffinity(0)):
                with one_cpu(cpu):
                    await self._send_sentinels(stream, sentinels)
            self._turn()
        return ()

    def _is_settled(self, stream: _Stream) -> bool:
        self._turn()
        return not stream.ledger.outstanding

    async def _send_sentinels(self, stream: _Stream, sentinels: Sentinels) -> None:
        links = self._links

        def look() -> None:
            self._turn()
            self._read_taps()
            sentinels.take(stream.sender_tap.sentinels())

        def back() -> bool:
            look()
            if not sentinels.back and links.loses and links.at_rest():
                look()
                sentinels.send_again()
            return sentinels.back

        sentinels.send()
        deadline = Deadline.after(_SENTINEL_SECONDS + 20 * links.round_trip)
        try:
            await wait_until(back, deadline, "the sentinel packets of a stream come back")
        except DeadlineExceededError:
            sentinels.give_up()

    def _record(self, stream: _Stream, budget: list[LinkCount], *, lossy: bool) -> StreamRecord:
        """The record of a stream.

        ``budget`` is what links dropped and no packet has accounted for yet; with ``lossy``, taps missed frames.
        """
        for at in stream.sender_tap.resets():
            stream.ledger.connection_ended(at, BreakKind.RESET)  # a reset that ended no current connection
        packets, late, breaks = stream.ledger.close_step()
        again = [
            StreamCopy(number, Packet.REPLY, 1, (stream.resolved.sender.name,) * heard)
            for number, heard in stream.ledger.heard_again()
        ]
        packets = tuple(self._with_link(stream, each, budget) for each in packets)
        port = stream.ports[-1] if stream.ports else 0
        return StreamRecord(
            stream=stream.resolved.name,
            port=port,
            packets=packets,
            late=late,
            breaks=breaks,
            tracked=self._conntrack.flows(stream.resolved, (port,)) if port else (),
            silent=stream.silent,
            by_connection=stream.resolved.protocol in _SENDING_AGAIN,
            undrained=stream.undrained,
            copies=(*stream.copies.take_copies(lossy=lossy), *again),
        )

    def _with_link(self, stream: _Stream, packet: StreamPacket, budget: list[LinkCount]) -> StreamPacket:
        """The packet, with the link that lost it if one did."""
        if packet.fate is not StreamPacketFate.LOST or packet.error:
            return packet
        return replace(packet, link=self._paths.lost_on(stream.identity.stream_token(packet.number), budget))
