"""Parse YAML text with libyaml into events, from which ruamel.yaml composes documents.

ruamel.yaml is written in Python: its parser takes nine tenths of a file's loading time. libyaml, in C, takes a
thirtieth of that. But libyaml reads YAML 1.1. In syntax the two versions, and the two libraries, differ in a few
places; a text with any of them goes to ruamel.yaml alone. ruamel.yaml always decides the meaning of plain scalars,
where the versions differ most. If libyaml refuses a text, ruamel.yaml reads it again and reports the mistake.
"""

import re
from collections import deque
from typing import Any, Final

from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

__all__ = ["Events", "read_events"]

_MOST_CHARACTERS: Final = 1 << 18  # the module holds all events of a text at once
_MOST_DEPTH: Final = 64  # for each token libyaml looks at every open level

_DIFFERENT: Final = re.compile(
    r"""
    [\t\x85\u2028\u2029\ufeff!]  # tabs, line breaks of 1.1, byte order marks, tags
    | ^% | ^\.\.\. | \r(?!\n)
    | (?<![^\s\[{,:?-])[&*]  # anchors and aliases: their names end differently
    | ['"]:(?!\s)  # a quoted key directly followed by its value
    | (?:^|[\[{,])[ -]*\?\s  # an explicit key
    | [|>][^\n]*\n(?:\ *\n|---)  # a block scalar that begins with an empty line, or has no line
    """,
    re.MULTILINE | re.VERBOSE,
)
"""Syntax that the two libraries may read differently."""


class Events:
    """The events of a text, with the parser interface that ruamel.yaml's composer needs."""

    def __init__(self, events: "deque[Event]") -> None:
        self._events = events

    def check_event(self, *kinds: type[Event]) -> bool:
        """Whether the next event is of one of these kinds."""
        return isinstance(self._events[0], kinds)

    def peek_event(self) -> Event:
        """The next event, without consuming it."""
        return self._events[0]

    def get_event(self) -> Event:
        """The next event."""
        return self._events.popleft()

    def dispose(self) -> None:
        """Drop the remaining events."""
        self._events.clear()


def read_events(text: str) -> Events | None:
    """The events of a text; ``None`` if ruamel.yaml must read it alone."""
    if len(text) > _MOST_CHARACTERS or _DIFFERENT.search(text):
        return None
    try:
        from yaml.cyaml import CParser  # noqa: PLC0415 - a PyYAML without libyaml lacks this module
        from yaml.error import YAMLError  # noqa: PLC0415
    except ImportError:
        return None
    parser = CParser(text)
    events: deque[Event] = deque()
    depth = 0
    try:
        while parser.check_event() and depth < _MOST_DEPTH:
            event = _translated(parser.get_event())
            events.append(event)
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
    except (YAMLError, UnicodeEncodeError):
        return None
    finally:
        parser.dispose()
    return Events(events) if depth < _MOST_DEPTH else None


def _translated(event: Any) -> Event:
    """A PyYAML event as one of ruamel.yaml. Both libraries' marks have line and column."""
    start, end = event.start_mark, event.end_mark
    match type(event).__name__:
        case "ScalarEvent":
            return ScalarEvent(event.anchor, event.tag, event.implicit, event.value, start, end, event.style)
        case "MappingStartEvent":
            return MappingStartEvent(event.anchor, event.tag, event.implicit, start, end, event.flow_style)
        case "SequenceStartEvent":
            return SequenceStartEvent(event.anchor, event.tag, event.implicit, start, end, event.flow_style)
        case "AliasEvent":
            return AliasEvent(event.anchor, start, end)
        case name:
            return _BARE[name](start, end)


_BARE: Final[dict[str, type[Event]]] = {
    each.__name__: each
    for each in (
        DocumentEndEvent,
        DocumentStartEvent,
        MappingEndEvent,
        SequenceEndEvent,
        StreamEndEvent,
        StreamStartEvent,
    )
}
