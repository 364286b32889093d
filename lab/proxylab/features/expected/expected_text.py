"""What the oracle says about probes, as text and as JSON: each answer, and the sentences from which it follows."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from proxylab.addresses import IPAddress
from proxylab.encoding import Record, encode
from proxylab.oracle.answers import FlowAnswer, ReachedEndpoint
from proxylab.oracle.from_scenario import AskedProbe
from proxylab.oracle.names import NameAnswer
from proxylab.oracle.rows import rows
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.words import Outcome, Reply
from proxylab.text import wrapped


class ExpectedProbe(Struct, frozen=True, kw_only=True):
    """A probe and what must become of it. ``outside`` is why the oracle does not say."""

    name: str
    outside: str = ""
    asked: AskedProbe = AskedProbe()


class _Flow(Record, frozen=True, kw_only=True):
    """A flow of the JSON: what is dialled, and the answer."""

    destination: IPAddress
    port: int
    protocol: str
    answer: FlowAnswer


class _ProbeDocument(Record, frozen=True, kw_only=True):
    """A probe of the JSON."""

    probe: str
    outside: str = ""
    name: NameAnswer | None = None
    flows: tuple[_Flow, ...] = ()


def to_json(expected: Sequence[ExpectedProbe]) -> str:
    """A list with an object for each probe."""
    documents = [
        _ProbeDocument(
            probe=each.name,
            outside=each.outside,
            name=each.asked.name,
            flows=tuple(
                _Flow(destination=to.destination, port=to.port, protocol=to.protocol, answer=answer)
                for to, answer in each.asked.flows
            ),
        )
        for each in expected
    ]
    return encode(documents).decode()


def to_lines(expected: Sequence[ExpectedProbe], width: int) -> Iterator[str]:
    """A paragraph for each probe."""
    for number, each in enumerate(expected):
        if number:
            yield ""
        yield each.name
        if each.outside:
            yield from _indented(f"not said: {each.outside}", 1, width)
            continue
        if each.asked.name is not None:
            yield from _name_lines(each.asked.name, width)
        for resolved, answer in each.asked.flows:
            yield from _flow_lines(resolved, answer, width)


def _name_lines(name: NameAnswer, width: int) -> Iterator[str]:
    what = f"an alias of {name.alias}" if name.alias else ", ".join(map(str, sorted(name.addresses, key=int)))
    yield from _indented(f"the name gives {what or 'no address'}", 1, width)
    yield from _because(name.rows, width)


def _flow_lines(resolved: ResolvedProbe, answer: FlowAnswer, width: int) -> Iterator[str]:
    address = resolved.destination
    port = f" port {resolved.port}" if resolved.port else ""
    dialled = f"{resolved.sender.name} ({resolved.sender.address}) dials {resolved.protocol} {address}{port}"
    yield from _indented(f"{dialled}: {_outcome(answer)}", 1, width)
    for each in sorted(answer.reached, key=lambda end: (end.name, int(end.address), end.port)):
        yield from _indented(_reached(each, has_shares=answer.sticky is None and not answer.is_scheduled), 2, width)
    if answer.health is not None:
        count = answer.health.local_endpoints
        local = "" if count is None else f", {count} local endpoints"
        yield from _indented(f"status {answer.health.status}{local}", 2, width)
    if answer.sticky is not None:
        yield from _indented(f"a client keeps its endpoint for {answer.sticky} s", 2, width)
    yield from _because([row for part in answer.rows.values() for row in part], width)


def _outcome(answer: FlowAnswer) -> str:
    words = " or ".join(answer.outcomes)
    where = f" at {' or '.join(answer.at)}" if answer.at and Outcome.DELIVERED not in answer.outcomes else ""
    return f"{words}{where}" + (f" (icmp {answer.icmp})" if answer.icmp is not None else "")


_REPLIES: Final = {Reply.TRANSLATED: "", Reply.NODE_PORT: ", answers from the node's own port"}


def _reached(end: ReachedEndpoint, *, has_shares: bool) -> str:
    port = f" port {end.port}" if end.port else ""
    share = "" if end.share == 1 or not has_shares else f", {end.share:.3g} of the flows"
    seen = " or ".join(f"{each.address}{' (masqueraded)' if each.is_masqueraded else ''}" for each in end.sources)
    reply = _REPLIES.get(end.reply, ", answers from its own address")
    return f"{end.name} at {end.address}{port}{share}, sees {seen}{reply}"


def _because(ids: Iterable[str], width: int) -> Iterator[str]:
    yield from _indented("because", 2, width)
    for row in (rows()[each] for each in dict.fromkeys(ids)):
        yield from _indented(row.text, 3, width)
        yield f"        {row.because}"


def _indented(text: str, level: int, width: int) -> Sequence[str]:
    indent = "  " * level
    return wrapped(text, indent, f"{indent}  ", width)
