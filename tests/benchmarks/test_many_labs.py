"""Hundreds of labs in one lab process: what each of them leaves in its memory, its descriptors and in the kernel."""

import ctypes
import gc
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sandboxed import sandboxed
from test_reuse import request, without_last

from lab.kernel.launcher import Launcher
from lab.messages import Build, Built, Close, Closed, Execute, Executed, Send, Sent
from lab.process import _Desk

pytestmark = [pytest.mark.benchmark, pytest.mark.budget]

LABS = 500
WARM = 100
LOOKS = 5

Record = Callable[[str, object], None]


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` (mallinfo(3), glibc 2.33)."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    )


def held() -> tuple[int, int, int, int]:
    """Resident memory but for large tables, these, both in bytes, descriptors, and threads.

    A table of more than 128 KiB is mapped by itself. The interpreter's table of interned strings doubles once in some
    hundred labs, since it is never swept; that is no cost of a lab, and is bounded by itself.
    """
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Mallinfo
    tables = int(libc.mallinfo2().hblkhd)
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resident - tables, tables, len(os.listdir("/proc/self/fd")), threading.active_count()


async def in_a_row(launcher: Launcher, *, reused: bool) -> dict[str, Any]:
    """Labs with rules, a probe and now and then a command, on one wire or by turns on two that are not alike.

    The least of some looks counts: threads that close taps hold a little memory for a moment longer. The last ``Close``
    is answered when the kernel has taken apart every namespace of every lab.
    """
    desk = _Desk(launcher)
    asked, assembly = request("legacy")
    turns: list[Build] = [asked] if reused else [asked, without_last(asked)]
    looks: list[tuple[int, int, int, int]] = []
    fresh = 0
    for number in range(LABS):
        built = await desk.answer(turns[number % len(turns)])
        assert isinstance(built, Built), built
        fresh += not built.reused
        assert isinstance(await desk.answer(Send(assembly.errands[0])), Sent)
        if not reused:
            assert isinstance(await desk.answer(Execute("echo-1", ("true",))), Executed)
        if WARM <= number < WARM + LOOKS or number >= LABS - LOOKS:
            gc.collect()
            looks.append(held())
    before, after = (list(map(min, zip(*some, strict=True))) for some in (looks[:LOOKS], looks[LOOKS:]))
    closed = await desk.answer(Close())
    assert isinstance(closed, Closed), closed
    return {
        "fresh": fresh,
        "bytes a lab": (after[0] - before[0]) / (LABS - LOOKS - WARM),
        "tables": after[1] - before[1],
        "descriptors": after[2] - before[2],
        "threads": after[3] - before[3],
    }


async def on_new_wires(launcher: Launcher) -> dict[str, Any]:
    return await in_a_row(launcher, reused=False)


async def on_one_wire(launcher: Launcher) -> dict[str, Any]:
    return await in_a_row(launcher, reused=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("labs", "fresh"), [(on_new_wires, LABS), (on_one_wire, 1)])
def test_500_labs_cost_nothing_that_stays(labs: Any, fresh: int, record_property: Record) -> None:
    found = sandboxed(labs, seconds=590)
    record_property("labs", str(found))
    assert found["fresh"] == fresh
    assert found["bytes a lab"] < 1024, found
    assert found["tables"] <= 1 << 20, found
    assert found["descriptors"] == 0, found
    assert found["threads"] <= 0, found
