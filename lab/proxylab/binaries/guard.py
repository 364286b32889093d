"""Runs one program of others, and ends with all that it started: as a script, ``python -I -S guard.py FD PROGRAM …``.

``commands`` starts it, and holds the other end of the pipe FD. The pipe closes when that process dies, however it dies.
The guard then kills the program and every process below it, those in sessions of their own included: it is their
reaper (PR_SET_CHILD_SUBREAPER, prctl(2)), so that none of them ever leaves it. It does the same once the program ends.

It imports nothing of proxylab: a guard starts for each program, and takes 15 ms.
"""

import ctypes
import os
import select
import signal
import sys

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MOST_ROUNDS = 100


def _main(lifeline: int, argv: list[str]) -> int:
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.set_inheritable(lifeline, False)
    _yield_as_the_caller()
    program = os.fork()
    if program == 0:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        try:
            os.execvp(argv[0], argv)  # noqa: S606 - the caller chose the program
        except OSError as error:
            os.write(2, f"{argv[0]}: {error.strerror}\n".encode(errors="replace"))
            os._exit(127)
    for number in (0, 1, 2):
        os.close(number)  # the program's output ends with the program
    poll = select.poll()
    poll.register(lifeline, select.POLLIN)
    poll.register(os.pidfd_open(program), select.POLLIN)
    poll.poll()
    ended, status = os.waitpid(program, os.WNOHANG)
    for _ in range(_MOST_ROUNDS):  # a process may fork while it is looked for
        below = _descendants()
        for each in below:
            try:
                os.kill(each, signal.SIGKILL)
            except ProcessLookupError:
                continue
        try:
            while True:
                os.waitpid(-1, 0)
        except ChildProcessError:
            break
    code = os.waitstatus_to_exitcode(status) if ended else -signal.SIGKILL
    return code if code >= 0 else 128 - code


def _yield_as_the_caller() -> None:
    """Give this session the niceness that the caller's has.

    The kernel shares the processors among sessions first (autogroups, sched(7)), and this one is new: a build that its
    caller keeps in the background stays there.
    """
    try:
        with open(f"/proc/{os.getppid()}/autogroup", "rb") as file:  # noqa: PTH123 - pathlib takes 10 ms to import
            niceness = file.read().split()[-1]
        if niceness != b"0":
            with open("/proc/self/autogroup", "wb", 0) as file:  # noqa: PTH123
                file.write(niceness)
    except (OSError, IndexError):
        pass  # a kernel without autogroups, or users who have just changed others: it takes ten a second from them


def _descendants() -> set[int]:
    """All processes below this one."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - see below
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - pathlib takes 10 ms to import
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError):
            continue
    found: set[int] = set()
    while more := {each for each, parent in parents.items() if parent in found | {os.getpid()}} - found:
        found |= more
    return found


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1]), sys.argv[2:]))
