"""A dialogue by crafted TCP segments, from its first turn to all that the taps saw of it.

``Conversation`` keeps the sequence numbers of both sides and runs each turn: send, read the taps, send sentinel
packets, read the taps. It sends nothing that the dialogue does not contain, and judges nothing.

The upper half of a sequence or acknowledgement number identifies a segment of the dialogue; no translation changes it.
So resets that a kernel sends on its own account belong to the dialogue as well.

Each turn ends with sentinel packets from its speaker. No packet of the turn can follow them (``sentinels`` says why),
and a kernel answers a segment within the same system call, so its answer has been sent as well.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, Transport
from proxylab.errors import CapabilityError
from proxylab.evidence.segments import DialogueRecord, TcpSegment
from proxylab.kernel.capture.batches import Frame
from proxylab.kernel.netfilter import nft_expressions as nft
from proxylab.kernel.netfilter.nft_tables import INPUT, PREROUTING, ChainHook, OwnTable, Rule
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.dialogue import FLAGS, Dialogue, Speaker, Turn
from proxylab.plan.forwarding import next_hop
from proxylab.plan.model import Plan
from proxylab.plan.resolved import STACK
from proxylab.timing import Deadline, DeadlineExceededError, wait_until
from proxylab.traffic.cpu_affinity import one_cpu
from proxylab.traffic.craft import framed, tcp_segment
from proxylab.traffic.dissect import TCP, dissect
from proxylab.traffic.identity import Identity
from proxylab.traffic.legs import TapPoint
from proxylab.traffic.match import Matcher
from proxylab.traffic.responder import Responders
from proxylab.traffic.sentinels import Sentinels
from proxylab.traffic.watch import Watch

_SENTINEL_SECONDS: Final = 1.0
_HALF: Final = 16
_HALVES: Final = range(0x2000, 0x6000, 2)
"""Upper halves of sequence numbers: the client's are even, and its server has the next one."""

_SPACE: Final = 1 << 32
_ACK: Final = FLAGS["ACK"]
_COUNTED: Final = FLAGS["SYN"] | FLAGS["FIN"]  # these take a number each, as if they were a byte (RFC 9293, 3.4)

# Offsets in the headers of IP, by version, and of TCP.
_SOURCE_AT: Final = {4: 12, 6: 8}
_PORTS_AT, _SEQUENCE_AT, _ACKNOWLEDGEMENT_AT = 0, 4, 8
_BEFORE_ALL: Final = {"prerouting": ChainHook(PREROUTING, -400)}  # before every other chain
_BEHIND_TAP: Final = {
    "input": ChainHook(INPUT, 400)
}  # the tap on a node's programs is at 350 (proxylab.kernel.capture.stack)
_TABLE: Final = "proxylab-dialogue"


class _Side:
    """One end of the dialogue: its addresses, the next number that it sends, and what it has received."""

    def __init__(self, name: str, first: int) -> None:
        self.name = name
        self.next = first
        self.heard: int | None = None  # the number that it expects next
        self.peer: tuple[IPAddress, int] | None = None
        self.own: tuple[IPAddress, int] | None = None


class Conversation:
    """One dialogue under way."""

    def __init__(
        self,
        dialogue: Dialogue,
        *,
        identity: Identity,
        serial: int,
        port: int,
        netns_by_name: Mapping[str, NetNs],
        plan: Plan,
        watch: Watch,
        responders: Responders,
    ) -> None:
        there, back = dialogue.there, dialogue.back
        self._dialogue = dialogue
        self._identity = identity
        self._netns_by_name = netns_by_name
        self._plan = plan
        self._watch = watch
        self._responders = responders
        self._halves = (half := _HALVES[serial % len(_HALVES)], half + 1)
        self._port = port
        self._resolved_probes = {Speaker.CLIENT: there, Speaker.SERVER: back}
        self._sides = {
            Speaker.CLIENT: _Side(there.sender.namespace, self._halves[0] << _HALF),
            Speaker.SERVER: _Side(back.sender.namespace, self._halves[1] << _HALF),
        }
        caller = self._sides[Speaker.CLIENT]
        caller.own, caller.peer = (there.sender.address, port), (there.destination, there.port)
        self._segments: list[TcpSegment] = []
        self._unproven: list[int] = []

    async def hold(self) -> DialogueRecord:
        """Take every turn that can be taken, and return what the taps saw. Raises ``CapabilityError``."""
        dialogue = self._dialogue
        ends = (
            self._netns_by_name[dialogue.there.sender.namespace],
            self._netns_by_name[dialogue.back.sender.namespace],
        )
        dialled = (dialogue.there.destination, dialogue.there.port)
        client = dialogue.there.sender
        of_node = client.device == STACK
        self._watch.tap(client.namespace, client.device)  # the tap of a node's own programs stays from the first use on
        bypass = KernelBypass(*ends, dialled, self._port, self._halves, of_node=of_node)
        stopped = ""
        try:
            with self._watch.every_segment(), one_cpu() as unpinned:
                self._watch.discard()
                for number, turn in enumerate(dialogue.turns, 1):
                    stopped = self._obstacle(number, turn)
                    if stopped:
                        break
                    await self._take(number, turn)
                losses = self._watch.take_losses()
        finally:
            bypass.close()
        doubt = f"the dialogue could not be kept on one CPU: {unpinned}" if unpinned else ""
        return DialogueRecord(
            client=dialogue.there.sender.name,
            server=dialogue.back.sender.name,
            turns=dialogue.turns,
            segments=tuple(sorted(self._segments, key=lambda each: (each.turn, each.at))),
            stopped=stopped or doubt,
            unproven=tuple(self._unproven),
            losses=losses,
        )

    def _obstacle(self, number: int, turn: Turn) -> str:
        """The reason why a turn cannot be taken; empty if it can."""
        side = self._sides[turn.speaker]
        if side.peer is None:
            return (
                f"turn {number} ({turn.words}) could not be sent: no segment has reached {side.name} that it can answer"
            )
        if turn.flags & _ACK and side.heard is None:
            return f"turn {number} ({turn.words}) could not be sent: {side.name} has received nothing to acknowledge"
        return ""

    async def _take(self, number: int, turn: Turn) -> None:
        resolved, side = self._resolved_probes[turn.speaker], self._sides[turn.speaker]
        sender = resolved.sender
        if side.own is not None and side.peer is not None:
            if sender.device != STACK:
                hop = next_hop(self._plan, sender.namespace, side.peer[0])
                sender = replace(sender, device=hop.out.device, mac=hop.out.mac, next_hop_mac=hop.into.mac)
            answered = (side.heard or 0) if turn.flags & _ACK else 0
            numbers = ((side.next + turn.ahead) % _SPACE, answered)
            said = tcp_segment((side.own[1], side.peer[1]), numbers, turn.flags, turn.data.encode("ascii"))
            frame = framed((sender.mac, sender.next_hop_mac), (side.own[0], side.peer[0]), said)
            self._watch.tap(sender.namespace, sender.device).send(frame)
        if not turn.ahead:
            side.next = (side.next + _length(turn)) % _SPACE
        sentinels = Sentinels(
            replace(resolved, sender=sender), self._identity, self._watch.tap(sender.namespace, sender.device)
        )
        matcher = Matcher(self._identity, Transport.UDP)
        self._look(number, turn, matcher)
        sentinels.send()

        def back() -> bool:
            self._look(number, turn, matcher)
            sentinels.take(matcher.sentinels)
            matcher.sentinels = []
            return sentinels.back

        try:
            await wait_until(back, Deadline.after(_SENTINEL_SECONDS), "the sentinel packets of a turn come back")
        except DeadlineExceededError:
            self._unproven.append(number)
        self._look(number, turn, matcher)

    def _look(self, number: int, turn: Turn, matcher: Matcher) -> None:
        self._responders.pump()
        for tap, frames in self._watch.collect():
            sender = self._resolved_probes[turn.speaker].sender
            is_sender = tap.netns_name == sender.namespace and (sender.device != STACK or tap.device == STACK)
            matcher.take(TapPoint(tap.netns_name, tap.device, is_sender), frames)
            for segment in self._own(number, tap.netns_name, tap.device, frames):
                self._segments.append(segment)
                self._hear(turn, segment)

    def _own(self, number: int, netns_name: str, device: str, frames: Iterable[Frame]) -> Iterator[TcpSegment]:
        """The segments of this dialogue among the frames of a tap."""
        for frame in frames:
            seen = dissect(frame.data)
            if seen is None or seen.protocol != TCP or seen.flags is None:
                continue
            strayed = self._strayed(number)
            bears = seen.sequence >> _HALF in self._halves or seen.sequence in strayed
            if not bears and not (seen.flags & _ACK and seen.acknowledged >> _HALF in self._halves):
                continue
            yield TcpSegment(
                turn=number,
                netns_name=netns_name,
                device=device,
                outgoing=frame.outgoing,
                source=seen.source,
                source_port=seen.source_port,
                destination=seen.destination,
                destination_port=seen.destination_port,
                flags=seen.flags,
                sequence=seen.sequence,
                acknowledged=seen.acknowledged,
                data=seen.payload.decode("latin-1"),
                at=frame.at_ns,
            )

    def _strayed(self, number: int) -> set[int]:
        """The sequence number of the turn's own segment, if it lies outside the expected order."""
        turn = self._dialogue.turns[number - 1]
        return {(self._sides[turn.speaker].next + turn.ahead) % _SPACE} if turn.ahead else set()

    def _hear(self, turn: Turn, segment: TcpSegment) -> None:
        """Record on the receiving side an in-order segment that has reached it."""
        listener = Speaker.SERVER if turn.speaker is Speaker.CLIENT else Speaker.CLIENT
        side, speaker = self._sides[listener], self._sides[turn.speaker]
        if segment.netns_name != side.name or segment.outgoing or turn.ahead:
            return
        if (segment.sequence + _length(turn)) % _SPACE != speaker.next or segment.flags != turn.flags:
            return
        if listener is Speaker.CLIENT and (segment.source, segment.source_port) != side.peer:
            return  # from an address that it never dialled: not its connection
        side.heard = speaker.next
        if side.peer is None:
            side.peer = (segment.source, segment.source_port)
            side.own = (segment.destination, segment.destination_port)


def _length(turn: Turn) -> int:
    """How far a segment advances its speaker's sequence number."""
    return len(turn.data) + (turn.flags & _COUNTED).bit_count()


class KernelBypass:
    """Two kernels that ignore a dialogue which the lab conducts with their addresses, until ``close``.

    The taps still see every segment: a packet socket gets a frame before netfilter does.

    A kernel answers a segment of an unknown connection with a reset (RFC 9293, section 3.10.7.1). A test may want to
    see that reset after a stray segment, but it must not end a proper dialogue. So the client's kernel gets no segment
    that comes from the dialled address and port, and gets everything else. The server's kernel gets no segment that
    bears or acknowledges the numbers of this dialogue, from whatever address a masquerade gave it.

    Where the client is a node, its own connection tracking translates the answers, so only after that do they come
    from the dialled address; and the node forwards other traffic. So there the rule is in INPUT, behind the tap on the
    node's programs.
    """

    def __init__(
        self,
        client: NetNs,
        server: NetNs,
        dialled: tuple[IPAddress, int],
        port: int,
        numbers: tuple[int, int],
        *,
        of_node: bool = False,
    ) -> None:
        """Install the rules in both namespaces. Raises ``CapabilityError``.

        The client dials ``dialled`` from ``port``, and is a program of a node if ``of_node``. ``numbers`` are the upper
        halves of all sequence numbers of client and server.
        """
        address, dialled_port = dialled
        source = nft.match_bytes(nft.NETWORK_HEADER, _SOURCE_AT[address.version], address.packed)
        ports = nft.match_bytes(
            nft.TRANSPORT_HEADER, _PORTS_AT, dialled_port.to_bytes(2, "big") + port.to_bytes(2, "big")
        )
        family, tcp = nft.match_family(Family.of(address)), nft.match_protocol(TCP)
        theirs, ours = (each.to_bytes(2, "big") for each in numbers)
        self._stack = ExitStack()
        with ExitStack() as opened:
            from_dialled = [*family, *tcp, *source, *ports, nft.DROP]
            self._install(opened, client, _BEHIND_TAP if of_node else _BEFORE_ALL, [from_dialled])
            bearing = [*tcp, *nft.match_bytes(nft.TRANSPORT_HEADER, _SEQUENCE_AT, theirs), nft.DROP]
            acknowledging = [*tcp, *nft.match_bytes(nft.TRANSPORT_HEADER, _ACKNOWLEDGEMENT_AT, ours), nft.DROP]
            self._install(opened, server, _BEFORE_ALL, [bearing, acknowledging])
            self._stack = opened.pop_all()

    def close(self) -> None:
        """Remove the rules."""
        self._stack.close()

    @staticmethod
    def _install(opened: ExitStack, netns: NetNs, chain: Mapping[str, ChainHook], rules: Sequence[Rule]) -> None:
        try:
            table = OwnTable(netns, _TABLE, chain)
            opened.callback(table.close)
            table.append(rules)
        except OSError as error:
            raise CapabilityError(
                f"keeping a kernel out of a dialogue ({error})", "as root: 'modprobe nf_tables'"
            ) from error
