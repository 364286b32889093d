"""Runs a command in a node, pod or host on the user's own standard streams.

Without a terminal the command gets this process's own descriptors: nothing is copied, and a pipe is a pipe at both
ends. With one, the command gets a pseudo-terminal made here (pty(7)) with the size of the user's terminal. This process
forwards signals to the command.
"""

import errno
import fcntl
import os
import pty
import select
import shutil
import signal
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from proxylab.client.connection import Connection
from proxylab.errors import InternalError
from proxylab.protocol.standing_labs import Attach, Ended
from proxylab.timing import Deadline

_BEGIN_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 2.0
"""How long nothing may happen before a look whether the lab runs."""

_READ: Final = 65536
_NAMES: Final = ("HOME", "LANG", "COLORTERM", "TERM", "USER", "LOGNAME")
_FORWARDED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
_SIGNALLED: Final = 128


def run_attached(
    connection: Connection,
    netns_name: str,
    argv: Sequence[str],
    *,
    interactive: bool,
    terminal: bool,
    environment: dict[str, str] | None = None,
) -> int:
    """Run a command and return its exit status as a shell counts it: 128 plus the number of a signal that ended it.

    With ``interactive``, the command reads this process's standard input; with ``terminal``, it gets a terminal of its
    own; ``environment`` is added to the usual variables. Raises ``LabError``.
    """
    own = {name: os.environ[name] for name in _NAMES if name in os.environ} | (environment or {})
    request = Attach(
        netns_name=netns_name, argv=tuple(argv), terminal=terminal, directory=str(Path.cwd()), environment=own
    )
    with ExitStack() as stack:
        awake = stack.enter_context(_signals())
        if terminal:
            status = _on_terminal(connection, request, awake, stack, interactive=interactive)
        else:
            status = _on_own_streams(connection, request, awake, stack, interactive=interactive)
    return status if status >= 0 else _SIGNALLED - status


def run_shell(connection: Connection, netns_name: str) -> int:
    """Open a shell in a node, pod or host, on a terminal of its own if this process has one. Its prompt shows the name.

    It is bash without start-up files, which would set another prompt, and without the user's history; or else sh.
    """
    terminal = os.isatty(0) and os.isatty(1)
    bash = shutil.which("bash")
    shell = [bash, "--norc", "--noprofile"] if bash else ["sh"]
    prompt = {"PS1": f"{netns_name}:\\W# " if bash else f"{netns_name}# ", "HISTFILE": ""}
    return run_attached(
        connection,
        netns_name,
        [*shell, "-i"] if terminal else shell,
        interactive=True,
        terminal=terminal,
        environment=prompt,
    )


def _on_own_streams(connection: Connection, request: Attach, awake: int, stack: ExitStack, *, interactive: bool) -> int:
    sys.stdout.flush()
    reading = 0 if interactive else os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    if not interactive:
        stack.callback(os.close, reading)
    connection.begin_feed(request, Deadline.after(_BEGIN_SECONDS), (reading, 1, 2))
    began = time.time()
    while True:
        ready, _, _ = select.select([connection.fileno(), awake], [], [], _PATIENCE_SECONDS)
        if awake in ready:
            _forward(connection, os.read(awake, _READ), began)
        if not ready:
            connection.tell_of_stuck_process(began)
        if connection.fileno() in ready:
            return _ended(connection)


def _on_terminal(connection: Connection, request: Attach, awake: int, stack: ExitStack, *, interactive: bool) -> int:
    ours, theirs = pty.openpty()
    stack.callback(os.close, ours)
    _copy_size(ours)
    connection.begin_feed(request, Deadline.after(_BEGIN_SECONDS), (theirs, theirs, theirs))
    os.close(theirs)
    sources = [ours, connection.fileno(), awake]
    if interactive:
        sources.append(0)
        if os.isatty(0):
            before = termios.tcgetattr(0)
            stack.callback(termios.tcsetattr, 0, termios.TCSADRAIN, before)
            tty.setraw(0)
    began = time.time()
    while True:
        ready, _, _ = select.select(sources, [], [], _PATIENCE_SECONDS)
        if not ready:
            connection.tell_of_stuck_process(began)
        if awake in ready:
            _resize_or_forward(connection, os.read(awake, _READ), ours, began)
        if 0 in ready and not _copy(0, ours):
            sources.remove(0)
            os.write(ours, b"\x04")  # Ctrl-D, which a terminal turns into end-of-file
        if ours in ready and not _copy(ours, 1):
            sources.remove(ours)
        if connection.fileno() in ready:
            status = _ended(connection)
            # The command's last output is there by now. A child that it left behind may keep the terminal; its output
            # is dropped.
            while ours in sources and select.select([ours], [], [], 0)[0] and _copy(ours, 1):
                pass
            return status


def _ended(connection: Connection) -> int:
    answer = connection.next_answer(Deadline.after(_ANSWER_SECONDS))
    if not isinstance(answer, Ended):
        raise InternalError(f"a command must end with Ended, not {type(answer).__name__}")
    return answer.status


def _copy(source: int, target: int) -> bool:
    """Copy the data that is ready; false at end-of-file."""
    try:
        data = os.read(source, _READ)
    except OSError as error:
        if error.errno != errno.EIO:  # no process has the other end of the pseudo-terminal open
            raise
        data = b""
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
    return bool(data)


def _copy_size(terminal: int) -> None:
    """Give a pseudo-terminal the size of the user's."""
    try:
        size = fcntl.ioctl(1, termios.TIOCGWINSZ, bytes(8))
    except OSError:
        return
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


def _resize_or_forward(connection: Connection, numbers: bytes, terminal: int, began: float) -> None:
    if signal.SIGWINCH in numbers:
        _copy_size(terminal)
        connection.signal(signal.SIGWINCH, Deadline.after(_ANSWER_SECONDS))  # a guest's relay then reads the size
    _forward(connection, numbers, began)


def _forward(connection: Connection, numbers: bytes, began: float) -> None:
    """Pass signals on. A lab that does not run passes none on, so there a signal ends this client, as if unhandled."""
    for number in numbers:
        if number in _FORWARDED:
            if connection.tell_of_stuck_process(began):
                raise KeyboardInterrupt
            connection.signal(number, Deadline.after(_ANSWER_SECONDS))


@contextmanager
def _signals() -> Iterator[int]:
    """A descriptor that yields the numbers of signals that come during the block; they have no other effect."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = {each: signal.getsignal(each) for each in (*_FORWARDED, signal.SIGWINCH)}
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for each, action in before.items():
        if action is not signal.SIG_IGN:
            signal.signal(each, lambda *_: None)
    try:
        yield reading
    finally:
        for each, action in before.items():
            signal.signal(each, action)
        signal.set_wakeup_fd(wakeup)
        os.close(reading)
        os.close(writing)
