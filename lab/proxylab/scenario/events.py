"""YAML text becomes the events of its syntax, by libyaml.

Owns: when libyaml may read a text, and its events in the terms of ruamel.yaml, which composes documents of them.
Must not: tell what is wrong with a text; whatever libyaml does not read, ruamel.yaml reads by itself, and tells it.

Theory of operation. To read the syntax takes ruamel.yaml, which is written in Python, nine tenths of the time that a
file takes, and libyaml, which is written in C, a thirtieth of that. But libyaml reads YAML 1.1. On the syntax the two
versions, and the two libraries, differ in a few places: a text that has anything of that kind it is not asked to read.
What a plain scalar means, which is where the versions differ most, ruamel.yaml decides either way.
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

_MOST_CHARACTERS: Final = 1 << 18  # all events of a text are held at once
_MOST_DEPTH: Final = 64  # each token costs libyaml a look at every level that is open

_DIFFERENT: Final = re.compile(
    r"""
    [\t\x85\u2028\u2029\ufeff!]  # tabs, what 1.1 takes for line breaks, marks of byte order, tags
    | ^% | ^\.\.\. | \r(?!\n)
    | (?<![^\s\[{,:?-])[&*]  # anchors and aliases, whose names end elsewhere
    | ['"]:(?!\s)  # a quoted key with its value right behind it
    | (?:^|[\[{,])[ -]*\?\s  # a key that is marked as one
    | [|>][^\n]*\n(?:\ *\n|---)  # a block scalar that begins with an empty line, or with none
    """,
    re.MULTILINE | re.VERBOSE,
)
"""What the two may read differently, wherever it stands in a text."""


class Events:
    """The events of a text that was read, as ruamel.yaml's composer asks a parser for them."""

    def __init__(self, events: "deque[Event]") -> None:
        self._events = events

    def check_event(self, *kinds: type[Event]) -> bool:
        """Whether the next event is of one of these kinds."""
        return isinstance(self._events[0], kinds)

    def peek_event(self) -> Event:
        """The next event, which stays."""
        return self._events[0]

    def get_event(self) -> Event:
        """The next event."""
        return self._events.popleft()

    def dispose(self) -> None:
        """Forget those that nobody has asked for."""
        self._events.clear()


def read_events(text: str) -> Events | None:
    """The events of a text; ``None`` where ruamel.yaml must read it by itself."""
    if len(text) > _MOST_CHARACTERS or _DIFFERENT.search(text):
        return None
    try:
        from yaml.cyaml import CParser  # noqa: PLC0415 - where PyYAML has no libyaml, it has not this module
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
    """An event of PyYAML's in ruamel.yaml's terms. Their marks have line and column alike."""
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
