"""The log of a pod: what its servers have answered, or what its program has printed."""

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from msgspec import Struct

_MOST_LINES: Final = 1000


class LogLine(Struct, frozen=True):
    """One line; ``number`` counts the lines of its log, of which only the last are kept."""

    number: int
    at: datetime
    text: str


class PodLog:
    """The last lines of one pod."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque(maxlen=_MOST_LINES)
        self.count = 0

    def add(self, text: str) -> None:
        """Append a line."""
        self._lines.append(LogLine(self.count, datetime.now(UTC), text))
        self.count += 1

    def since(self, number: int = 0) -> tuple[LogLine, ...]:
        """The lines from that number on."""
        return tuple(each for each in self._lines if each.number >= number)


class LogQuestion(Struct, frozen=True):
    """What a client wants of a log, in the parameters of the kubelet's API (v1 PodLogOptions)."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since: datetime | None = None
    tail: int | None = None
    limit: int | None = None

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Self:
        """The question of a query. Raises ``ValueError``."""
        since = datetime.fromisoformat(query["sinceTime"]) if "sinceTime" in query else None
        if "sinceSeconds" in query:
            since = datetime.now(UTC) - timedelta(seconds=int(query["sinceSeconds"]))
        return cls(
            follow=query.get("follow") == "true",
            previous=query.get("previous") == "true",
            timestamps=query.get("timestamps") == "true",
            since=since,
            tail=int(query["tailLines"]) if "tailLines" in query else None,
            limit=int(query["limitBytes"]) if "limitBytes" in query else None,
        )

    def first(self, lines: Sequence[LogLine]) -> Sequence[LogLine]:
        """Those of the lines that there are by which the answer begins."""
        wanted = [each for each in lines if self.since is None or each.at >= self.since]
        return wanted if self.tail is None else wanted[len(wanted) - min(self.tail, len(wanted)) :]

    def text(self, lines: Sequence[LogLine]) -> bytes:
        """Lines as they are sent."""
        stamped = ((f"{each.at:%Y-%m-%dT%H:%M:%S.%f}000Z " if self.timestamps else "") + each.text for each in lines)
        return "".join(f"{each}\n" for each in stamped).encode()
