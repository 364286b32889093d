"""A client's connection to a lab process.

``Connection`` sends one request after the other. Where no answer comes because a process of the lab does not run, it
logs one line that says which, and goes on waiting: the process may run again.
``ControlConnection`` is one to a standing lab.
``proxylab.client.lab_process`` starts and ends lab processes; ``proxylab.server.client_connections`` is the other end.
"""

import logging
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from proxylab.client.control_sockets import ControlSockets
from proxylab.client.process_states import StuckProcess
from proxylab.encoding import MisfitError
from proxylab.errors import InternalError, LabEndedError, LabError, LabStuckError
from proxylab.protocol.channel import Channel, ChannelClosedError
from proxylab.protocol.faults import error_of
from proxylab.protocol.messages import AnswerOf, Failed, Request, Response, StillWaiting, response_to
from proxylab.protocol.standing_labs import Ended, Feed, FeedAnswer, Frames, Lines, Signal
from proxylab.timing import Deadline

_PATIENCE_SECONDS: Final = 2.0
"""After so many seconds without an answer the client looks for a process that does not run."""

_END_SECONDS: Final = 2.0
"""A lab that is killed is gone within these; then its supervisor has noted how it ended."""


_MOST_AHEAD: Final = 8
"""So many requests wait for their answers at most: fewer than the lab process takes without reading an answer."""


_UNSEEN_PATIENCE_SECONDS: Final = 10.0
"""Where no one watches, such as in CI, a line about a wait that is over soon would help no one."""


def _tell_seconds() -> float:
    """How long an answer may take before the client says what it waits for. The lab process waits for two seconds."""
    return 0.0 if sys.stderr.isatty() else _UNSEEN_PATIENCE_SECONDS


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


class LabGoneError(LabEndedError):
    """A standing lab ended during a request, or another version of proxylab runs it."""


class Connection:
    """A channel to a lab process for one request after the other."""

    def __init__(self, connection: socket.socket) -> None:
        self._channel = Channel(connection)
        self._told_of: StuckProcess | None = None
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

    def request(self, request: Request[AnswerOf], deadline: Deadline) -> AnswerOf:
        """Send a request and wait for its answer.

        Raises:
            LabError: the error that the lab process reports.
            LabEndedError: the lab process is gone.
            InternalError: it sends no answer, or another one. Then, and when this call is interrupted, the connection
                is closed: a late answer would be taken for the answer to the next request.
        """
        waiting = deque((request,))
        try:
            self._send(request, f"answer {type(request).__name__}", deadline)
            return self._next_of(waiting, deadline)
        except BaseException:
            if waiting:
                self.close()
            raise

    def requests(self, requests: Iterable[Request[AnswerOf]], seconds: float) -> Generator[AnswerOf, None, None]:
        """Send requests ahead of their answers, which come in order; each must come within ``seconds`` of the last one.

        The lab works on the next one while this client looks at an answer. Raises what ``request`` raises. Where
        answers are still due then, or when the iteration ends early, the connection is closed.
        """
        waiting = deque[Request[AnswerOf]]()
        try:
            for each in requests:
                self._send(each, f"take {type(each).__name__}", Deadline.after(seconds))
                waiting.append(each)
                if len(waiting) == _MOST_AHEAD:
                    yield self._next_of(waiting, Deadline.after(seconds))
            while waiting:
                yield self._next_of(waiting, Deadline.after(seconds))
        except BaseException:
            if waiting:
                self.close()
            raise

    def _next_of(self, waiting: deque[Request[AnswerOf]], deadline: Deadline) -> AnswerOf:
        """The answer to the first of the requests, which then waits no longer. Raises what ``request`` raises."""
        kind: type[Request[AnswerOf]] = type(waiting[0])
        what = f"answer {kind.__name__}"
        reply: Response[AnswerOf] | Failed = self._receive(response_to(kind), what, deadline)
        waiting.popleft()
        if isinstance(reply, Failed):
            raise self._error(reply, what)
        return reply.value

    def begin_feed(self, feed: Feed, deadline: Deadline, descriptors: Sequence[int] = ()) -> None:
        """Begin a feed. ``next_answer`` returns its answers, one by one. No other request may come before the last."""
        self._send(feed, f"begin {type(feed).__name__}", deadline, descriptors)

    def next_answer(self, deadline: Deadline) -> Lines | Frames | Ended:
        """The next answer of a feed. Raises the ``LabError`` that ended it."""
        answer: FeedAnswer = self._receive(FeedAnswer, "go on", deadline)
        if isinstance(answer, Failed):
            raise self._error(answer, "go on")
        return answer

    def raise_if_gone(self, what: str) -> None:
        """Raise ``LabEndedError`` if the lab process has hung up, where no answer is due. ``what`` is its next task."""
        if not self.closed and self._channel.has_ended():
            raise self._gone(what)

    def signal(self, number: int, deadline: Deadline) -> None:
        """Pass a signal to the running command, or end another feed."""
        self._send(Signal(number), "take a signal", deadline)

    def _send(
        self, request: Request[AnswerOf] | Feed | Signal, what: str, deadline: Deadline, descriptors: Sequence[int] = ()
    ) -> None:
        try:
            self._channel.send(request, deadline, descriptors)
        except ChannelClosedError as error:
            raise self._gone(what) from error
        except TimeoutError:
            raise InternalError(f"the lab process did not take the request to {what}{self._last_words()}") from None

    def _receive(self, hint: Any, what: str, deadline: Deadline) -> Any:
        began, told = time.time(), set[str]()
        try:
            while True:
                self._wait_for_answer(deadline, began)
                answer = self._channel.receive(hint, deadline)
                if not isinstance(answer, StillWaiting):
                    return answer
                if answer.why not in told and time.time() - began >= _tell_seconds():
                    told.add(answer.why)
                    self._tell(f"{self._whose} waits since {_clock(began)}: {answer.why}; {self._cure}")
        except (ChannelClosedError, MisfitError) as error:
            raise self._gone(what) from error
        except TimeoutError:
            if stuck := self._stuck():
                raise LabStuckError(f"{self._whose} did not {what}: {stuck}; {self._cure}") from None
            raise InternalError(f"the lab process did not {what} in time{self._last_words()}") from None

    def _wait_for_answer(self, deadline: Deadline, began: float) -> None:
        """Return when an answer begins, or at the deadline; log meanwhile who keeps this client waiting."""
        answers = select.poll()
        answers.register(self.fileno(), select.POLLIN)
        while not answers.poll(1000 * min(_PATIENCE_SECONDS, deadline.remaining)) and not deadline.passed:
            self.tell_of_stuck_process(began)

    def tell_of_stuck_process(self, began: float) -> bool:
        """Whether a process of the lab does not run; logs one line about each, since when the client has waited."""
        stuck = self._stuck()
        if stuck is not None and stuck != self._told_of:
            self._tell(f"{self._whose} has not answered since {_clock(began)}: {stuck}; {self._cure}")
        self._told_of = stuck
        return stuck is not None

    def _tell(self, line: str) -> None:
        logging.getLogger(__name__).warning(line)

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

    def _stuck(self) -> StuckProcess | None:
        return None

    @property
    def _whose(self) -> str:
        return "the lab process"

    @property
    def _cure(self) -> str:
        return "Ctrl-C ends the wait, and the lab"


class ControlConnection(Connection):
    """A connection to a standing lab, over its control socket. Closing it does not end the lab.

    Args:
        control_sockets: the folder of the lab's control socket.
        name: the lab's.
        seconds: the bound of connecting.

    Raises:
        NoSuchLabError: no lab of that name is running.
        TimeoutError: it takes no connection.
    """

    def __init__(self, control_sockets: ControlSockets, name: str, seconds: float = 5.0) -> None:
        super().__init__(control_sockets.connect(name, seconds))
        self._control_sockets = control_sockets
        self.name = name

    def _gone(self, what: str) -> LabError:
        how = self._control_sockets.wait_for_end(self.name, _END_SECONDS)
        if how is None:
            return LabGoneError(
                f"the lab {self.name} hung up before it could {what}: perhaps another version of proxylab runs it; "
                f"see `proxylab ps`, and end it with `proxylab down {self.name}`"
            )
        return LabGoneError(f"the lab {self.name} ended before it could {what}: {how}")

    def _stuck(self) -> StuckProcess | None:
        return self._control_sockets.stuck_process_of(self.name)

    @property
    def _whose(self) -> str:
        return f"the lab {self.name}"

    @property
    def _cure(self) -> str:
        return f"Ctrl-C ends this wait, and `proxylab down {self.name}` the lab"
