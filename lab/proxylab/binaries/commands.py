"""Runs programs of others: kube-proxy and kernels that print their versions, go, git, apt, dpkg-deb, make, Wireshark.

None of them outlives this process, a deadline or a bound on its output, nor does any process that it starts
(``binaries.guard``). Programs in a lab have the lab's sandbox for that.
"""

import os
import selectors
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from proxylab.errors import CapabilityError
from proxylab.timing import Deadline

_GUARD: Final = Path(__file__).with_name("guard.py")
_SECONDS: Final = 2 * 3600.0
_TAIL: Final = 20
_READ: Final = 1 << 16
_MOST_OUTPUT: Final = 64 << 20
"""More than apt-cache and go print; it bounds the memory that the output takes."""


class FailedCommandError(CapabilityError):
    """A command failed. ``printed`` has the last lines of its output."""

    def __init__(self, command: str, printed: str) -> None:
        super().__init__(f"{command!r} without an error; it prints:\n{printed}\n", "fix that error")
        self.printed = printed


class TooMuchOutputError(subprocess.SubprocessError):
    """A program printed more than anyone reads, and was ended."""

    def __init__(self, program: str, most: int) -> None:
        super().__init__(f"{program} printed more than {most >> 10:,} KiB, and was ended")


class Done(NamedTuple):
    """The exit status of a program (128 and the number of a signal that ended it), and what it printed."""

    status: int
    output: bytes
    errors: bytes


def run_guarded(
    argv: Sequence[str | Path],
    *,
    seconds: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    most: int = _MOST_OUTPUT,
) -> Done:
    """Run a program, without input, in a session of its own.

    Args:
        argv: the program and its arguments.
        seconds: after them it is killed.
        folder: its working directory.
        environment: by default this process's own.
        most: the bytes of output after which it is killed.

    Raises:
        FileNotFoundError: there is no such program.
        TooMuchOutputError: it printed too much.
        subprocess.TimeoutExpired: it took too long.
    """
    words = [str(each) for each in argv]
    deadline = Deadline.after(seconds)
    with _guarded(words, subprocess.DEVNULL, subprocess.PIPE, folder, environment) as guard:
        try:
            output, errors = _read(guard, words, most, deadline, seconds)
            # A kernel closes a program's descriptors before its exit can be waited for (do_exit()). If the lifeline
            # closed in between, the guard would kill a program that has done its work.
            status = guard.wait(max(deadline.remaining, 0.0))
        except subprocess.TimeoutExpired:
            raise subprocess.TimeoutExpired(words, seconds) from None
    return Done(status, output, errors)


@contextmanager
def feeding(argv: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A program with a window of its own, which reads what the block writes to its standard input.

    After the block its input ends, and this waits until the user has closed it. An error in the block ends it at once.

    Raises:
        FileNotFoundError: there is no such program.
    """
    with _guarded(list(argv), subprocess.PIPE, None) as guard:
        try:
            yield guard
        finally:
            if guard.stdin is not None:
                with suppress(BrokenPipeError):
                    guard.stdin.close()
        guard.wait()


@contextmanager
def _guarded(
    words: Sequence[str],
    given: int,
    output: int | None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator["subprocess.Popen[bytes]"]:
    """The guard of a program that runs. At the end of the block the guard kills what still runs.

    ``given`` and ``output`` are the program's standard input and its two outputs, as ``subprocess`` has them.
    """
    _find(words[0], environment)
    lifeline, ours = os.pipe2(os.O_CLOEXEC)
    try:
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", _GUARD, str(lifeline), *words],
            stdin=given,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=environment,
            pass_fds=[lifeline],
            start_new_session=True,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(lifeline)
    with guard:
        try:
            yield guard
        finally:
            os.close(ours)


def _find(program: str, environment: Mapping[str, str] | None) -> None:
    """Raise ``FileNotFoundError`` or ``PermissionError`` if no file of that name can be executed."""
    if "/" in program:
        if not Path(program).exists():
            raise FileNotFoundError(2, "No such file or directory", program)
        if not os.access(program, os.X_OK):
            raise PermissionError(13, "Permission denied", program)
        return
    paths = (environment or os.environ).get("PATH", os.defpath).split(os.pathsep)
    if not any(os.access(Path(each, program), os.X_OK) for each in paths):
        raise FileNotFoundError(2, "No such file or directory", program)


def _read(
    guard: "subprocess.Popen[bytes]", words: list[str], most: int, deadline: Deadline, seconds: float
) -> tuple[bytes, bytes]:
    texts = {1: bytearray(), 2: bytearray()}
    with selectors.DefaultSelector() as streams:
        for number, stream in ((1, guard.stdout), (2, guard.stderr)):
            if stream is not None:
                streams.register(stream, selectors.EVENT_READ, number)
        while streams.get_map():
            ready = streams.select(max(deadline.remaining, 0.0))
            if not ready:
                raise subprocess.TimeoutExpired(words, seconds)
            for key, _ in ready:
                data = os.read(key.fd, _READ)
                if not data:
                    streams.unregister(key.fileobj)
                texts[key.data] += data
            if sum(map(len, texts.values())) > most:
                raise TooMuchOutputError(words[0], most)
    return bytes(texts[1]), bytes(texts[2])


def output_of(
    argv: Sequence[str],
    folder: Path | None = None,
    *,
    what: str = "",
    seconds: float = _SECONDS,
    environment: Mapping[str, str] | None = None,
) -> str:
    """What a command prints. ``what`` is its name in an error, by default the whole command. It ends after ``seconds``.

    Raises:
        FailedCommandError: it failed, or printed too much.
        FileNotFoundError: there is no such command.
        subprocess.TimeoutExpired: it was ended.
    """
    try:
        done = run_guarded(argv, folder=folder, environment=environment, seconds=seconds)
    except TooMuchOutputError as error:
        raise FailedCommandError(what or " ".join(argv), f"  {error}") from None
    if done.status != 0:
        last = (done.errors or done.output).decode(errors="replace").strip().splitlines()[-_TAIL:]
        raise FailedCommandError(what or " ".join(argv), "\n".join(f"  {line}" for line in last))
    return done.output.decode(errors="replace")
