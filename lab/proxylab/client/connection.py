"""A client's connection to a lab process.

``Connection`` sends one request after the other. ``ControlConnection`` is one to a standing lab.
``proxylab.client.lab_process`` starts and ends lab processes; ``proxylab.server.client_connections`` is the other end.
"""

import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

from proxylab.encoding import MisfitError
from proxylab.errors import ExitCode, InternalError, LabEndedError, LabError
from proxylab.protocol.channel import Channel, ChannelClosedError
from proxylab.protocol.faults import error_of
from proxylab.protocol.messages import Failed
from proxylab.protocol.standing_labs import AnyRequest, AnyResponse, Feed, Signal
from proxylab.timing import Deadline

__all__ = ["Connection", "ControlConnection", "LabGoneError"]

Wanted = TypeVar("Wanted")


class LabGoneError(LabError):
    """A standing lab ended during a request, or another version of proxylab runs it."""

    exit_code = ExitCode.FAILED

    def __init__(self, name: str, what: str) -> None:
        super().__init__(
            f"the lab {name} hung up before it could {what}: it has ended, or another version of proxylab runs it; "
            f"see `proxylab ps`, and end it with `proxylab down {name}`"
        )


class Connection:
    """A channel to a lab process for one request after the other."""

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
        """Hang up. A second call does nothing."""
        self.closed = True
        self._channel.close()

    def fileno(self) -> int:
        """The descriptor that is readable when the lab process has sent something."""
        return self._channel.fileno()

    def request(self, request: AnyRequest, wanted: type[Wanted], deadline: Deadline) -> Wanted:
        """Send a request and wait for the answer, which must be a ``wanted``.

        Raises:
            LabError: the error that the lab process reports.
            LabEndedError: the lab process is gone.
            InternalError: it sends no answer, or another one. Then, and when this call is interrupted, the connection
                is closed: a late answer would be taken for the answer to the next request.
        """
        what = f"answer {type(request).__name__}"
        try:
            self._send(request, what, deadline)
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

    def begin_feed(self, feed: Feed, deadline: Deadline, descriptors: Sequence[int] = ()) -> None:
        """Begin a feed. ``next_answer`` returns its answers, one by one. No other request may come before the last."""
        self._send(feed, f"begin {type(feed).__name__}", deadline, descriptors)

    def next_answer(self, deadline: Deadline) -> AnyResponse:
        """The next answer of a feed. Raises the ``LabError`` that ended it."""
        answer = self._receive("go on", deadline)
        if isinstance(answer, Failed):
            raise self._error(answer, "go on")
        return answer

    def signal(self, number: int, deadline: Deadline) -> None:
        """Pass a signal to the running command, or end another feed."""
        self._send(Signal(number), "take a signal", deadline)

    def _send(self, request: AnyRequest, what: str, deadline: Deadline, descriptors: Sequence[int] = ()) -> None:
        try:
            self._channel.send(request, deadline, descriptors)
        except ChannelClosedError as error:
            raise self._gone(what) from error
        except TimeoutError:
            raise InternalError(f"the lab process did not take the request to {what}{self._last_words()}") from None

    def _receive(self, what: str, deadline: Deadline) -> AnyResponse:
        try:
            answer: AnyResponse = self._channel.receive(AnyResponse, deadline)
        except (ChannelClosedError, MisfitError) as error:
            raise self._gone(what) from error
        except TimeoutError:
            raise InternalError(f"the lab process did not {what} in time{self._last_words()}") from None
        return answer

    def _error(self, failed: Failed, what: str) -> LabError:
        """The error in an answer; closes the connection if the lab process is about to end."""
        error = error_of(failed.fault)
        if not isinstance(error, LabEndedError):
            return error
        self.close()
        return self._gone(what)

    def _gone(self, what: str) -> LabError:
        return LabEndedError(f"the lab process ended before it could {what}")

    def _last_words(self) -> str:
        return ""


class ControlConnection(Connection):
    """A connection to a standing lab, over its control socket. Closing it does not end the lab."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        super().__init__(connection)
        self.name = name

    def _gone(self, what: str) -> LabError:
        return LabGoneError(self.name, what)
