"""A conversation with a lab process, as a client leads it.

Owns: ``Connection``, on which one request is asked after the other, and ``ControlConnection``, the line to a lab
that stays.
Must not: start or end a lab process (``proxylab.client.lab_process`` does).
"""

import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from proxylab.codec import CodecError
from proxylab.errors import ExitCode, InternalError, LabEndedError, LabError
from proxylab.protocol.channel import Channel, ChannelClosedError
from proxylab.protocol.faults import raised
from proxylab.protocol.messages import Failed
from proxylab.protocol.standing_labs import AnyRequest, AnyResponse, Feed, Signal
from proxylab.timing import Deadline

__all__ = ["Connection", "ControlConnection", "LabGoneError"]

Wanted = TypeVar("Wanted")


class LabGoneError(LabError):
    """A standing lab has ended while it was asked, or does not speak as this version of proxylab does."""

    exit_code = ExitCode.FAILED

    def __init__(self, name: str, what: str) -> None:
        super().__init__(
            f"the lab {name} hung up before it could {what}: it has ended, or another version of proxylab has made it; "
            f"see `proxylab ps`, and end it with `proxylab down {name}`"
        )


class Connection:
    """A channel to a lab process, on which one request is asked after the other."""

    def __init__(self, connection: socket.socket) -> None:
        self._channel = Channel(connection)
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up. Calling it twice does no harm."""
        self.closed = True
        self._channel.close()

    def fileno(self) -> int:
        """The descriptor that is readable when the lab process has said something."""
        return self._channel.fileno()

    def request(self, request: AnyRequest, wanted: type[Wanted], deadline: Deadline) -> Wanted:
        """Ask, and wait for the answer, which must be a ``wanted``.

        Raises:
            LabError: the one that the lab process met, with its own words.
            LabEndedError: the lab process is gone.
            InternalError: it is silent, or answers something else; then, and when this call is
                interrupted, the line is closed: an answer that comes late would be taken for that to the next request.
        """
        what = f"answer {type(request).__name__}"
        try:
            self._say(request, what, deadline)
            answer = self._receive(what, deadline)
        except BaseException:
            self.close()
            raise
        if isinstance(answer, Failed):
            raise self._error(answer, what)
        if not isinstance(answer, wanted):
            self.close()
            raise InternalError(f"the lab process answered {type(request).__name__} with {type(answer).__name__}")
        return answer

    def begin(self, feed: Feed, deadline: Deadline, descriptors: Sequence[int] = ()) -> None:
        """Ask for a feed; ``heard`` then gives its answers, to the last of which nothing else can be asked."""
        self._say(feed, f"begin {type(feed).__name__}", deadline, descriptors)

    def heard(self, deadline: Deadline) -> AnyResponse:
        """The next answer of a feed. Raises the ``LabError`` that ended it."""
        answer = self._receive("go on", deadline)
        if isinstance(answer, Failed):
            raise self._error(answer, "go on")
        return answer

    def signal(self, number: int, deadline: Deadline) -> None:
        """Hand a signal to the command that runs, or end another feed."""
        self._say(Signal(number), "take a signal", deadline)

    def _say(self, request: AnyRequest, what: str, deadline: Deadline, descriptors: Sequence[int] = ()) -> None:
        try:
            self._channel.send(request, AnyRequest, deadline, descriptors)
        except ChannelClosedError as error:
            raise self._gone(what) from error
        except TimeoutError:
            raise InternalError(f"the lab process did not take the request to {what}{self._last_words()}") from None

    def _receive(self, what: str, deadline: Deadline) -> AnyResponse:
        try:
            told: AnyResponse = self._channel.receive(AnyResponse, deadline)
        except (ChannelClosedError, CodecError) as error:
            raise self._gone(what) from error
        except TimeoutError:
            raise InternalError(f"the lab process did not {what} in time{self._last_words()}") from None
        return told

    def _error(self, failed: Failed, what: str) -> LabError:
        """The error of an answer. A lab process that is about to end hears nothing more, and need not say why."""
        error = raised(failed.fault)
        if not isinstance(error, LabEndedError):
            return error
        self.close()
        return self._gone(what)

    def _gone(self, what: str) -> LabError:
        return LabEndedError(f"the lab process ended before it could {what}")

    def _last_words(self) -> str:
        return ""


class ControlConnection(Connection):
    """A conversation with a standing lab, by its door. To leave it closes nothing but the conversation."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        super().__init__(connection)
        self.name = name

    def _gone(self, what: str) -> LabError:
        return LabGoneError(self.name, what)
