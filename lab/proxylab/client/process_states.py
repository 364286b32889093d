"""Which process of a lab does not run, and how a lab ended, so that a client can say why it gets no answer.

A stopped process (SIGSTOP, a debugger) or one in a kernel call that does not return answers nothing, and no signal but
SIGKILL reaches it. The state of each process (proc(5)) shows both. A process that computes, or sleeps until something
comes, is not stuck.
"""

import signal
import time
from pathlib import Path
from typing import Final

from proxylab.encoding import Record
from proxylab.errors import GUEST_ENDED, LAUNCHER_ENDED

_ROLES: Final = ("supervisor", "init", "lab process", "launcher")
"""Each is the parent of the next (``kernel.sandbox.sandbox``). In a guest, the last is the guest's kernel."""

ASKED_TO_END: Final = "it was asked to end, by `proxylab down`, by SIGTERM or by the end of its time"

_BY_ITSELF: Final = "it exited with status"
_STOPPED: Final = "T"
_UNINTERRUPTIBLE: Final = "D"
_PAUSE: Final = 0.2


class StuckProcess(Record, frozen=True):
    """A process of a lab that does not run. ``how`` completes the sentence "the process is …"."""

    role: str
    pid: int
    how: str

    def __str__(self) -> str:
        return f"its {self.role} (pid {self.pid}) is {self.how}"


def stuck_process(supervisor: int) -> StuckProcess | None:
    """The first process of the lab below this supervisor that does not run; ``None`` if each runs or has ended."""
    chain = _chain(supervisor)
    for role, pid in zip(_ROLES, chain, strict=False):
        if _state(pid)[0] == _STOPPED:
            return StuckProcess(role, pid, "stopped")
    waiting = {pid: _state(pid) for pid in chain}
    if not any(state == _UNINTERRUPTIBLE for state, _ in waiting.values()):
        return None
    time.sleep(_PAUSE)  # each block I/O passes through this state; equal counts tell of one call in both looks
    for role, pid in zip(_ROLES, chain, strict=False):
        if waiting[pid][0] == _UNINTERRUPTIBLE and _state(pid) == waiting[pid]:
            return StuckProcess(role, pid, "in a kernel call that does not return")
    return None


def how_it_ended(status: int) -> str:
    """How a lab process ended, by its supervisor's exit status as ``subprocess`` returns it.

    Below zero a signal ended the supervisor itself. The supervisor exits with 128 and the number of the signal that
    ended init, or with the status of the lab process as a byte: 256 less the number of a signal.
    """
    known = {LAUNCHER_ENDED: "its launcher, which starts commands, ended", GUEST_ENDED: "its guest's kernel ended"}
    if status in known:
        return known[status]
    if status == 0:
        return ASKED_TO_END
    names = {each.value: each.name for each in signal.Signals}
    ended_by = {"supervisor": -status, "init, pid 1 of the sandbox": status - 128, "lab process": 256 - status}
    for role, number in ended_by.items():
        if number in names:
            return f"{names[number]} ended its {role}"
    return f"{_BY_ITSELF} {status}"


def ended_by_itself(status: int) -> bool:
    """Whether the lab process left Python with an error: then its last words say what, and it is a bug."""
    return how_it_ended(status).startswith(_BY_ITSELF)


def _chain(supervisor: int) -> list[int]:
    """The pids of the supervisor, its first child, that one's first child, and so on."""
    chain = [supervisor]
    while len(chain) < len(_ROLES):
        children = _read(f"/proc/{chain[-1]}/task/{chain[-1]}/children").split()
        if not children:
            break
        chain.append(int(children[0]))
    return chain


def _state(pid: int) -> tuple[str, str]:
    """The state of a process, and how often it has gone to sleep or was preempted; empty where it has ended."""
    fields = dict(line.split(":", 1) for line in _read(f"/proc/{pid}/status").splitlines() if ":" in line)
    counts = fields.get("voluntary_ctxt_switches", "") + fields.get("nonvoluntary_ctxt_switches", "")
    return fields.get("State", " ").strip()[:1], counts


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended, or the kernel has no list of children (CONFIG_PROC_CHILDREN)
        return ""
