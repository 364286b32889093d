"""Hundreds of labs in one lab process: what each of them leaves in its memory, its descriptors and in the kernel.

Labs of different scenarios one after the other are held level by ``tests/kernel/test_soak.py``.
"""

import ctypes
import gc
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from sandboxed import sandboxed
from scenario_cases import frontend, probe, two_nodes

from proxylab.engines.protocol import EngineChoice
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.plan.assembly import assemble
from proxylab.protocol.messages import Build, Close, Execute, Response, SendProbe
from proxylab.server.event_loop import _RequestHandler

pytestmark = [pytest.mark.benchmark, pytest.mark.budget]

LABS = 500
WARM = 100
STRIDE = 20
"""So many labs lie between two looks."""

STEPS = 16 << 20
"""The most bytes that the process may grow by in all, as it does in steps that are no lab's."""

Record = Callable[[str, object], None]


class _Mallinfo(ctypes.Structure):
    """``struct mallinfo2`` (mallinfo(3), glibc 2.33)."""

    _fields_ = (
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")),
    )


def used() -> int:
    """Bytes in use. Resident memory would hide a small leak, which first fills what the heap holds in reserve.

    What is larger than 512 bytes comes from malloc, or from a mapping of its own; the rest from the interpreter's own
    pools (Objects/obmalloc.c), whose account it only prints.
    """
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _Mallinfo
    large = libc.mallinfo2()
    with tempfile.TemporaryFile() as file:
        standard_error = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            sys._debugmallocstats()
        finally:
            os.dup2(standard_error, 2)
            os.close(standard_error)
        file.seek(0)
        account = re.search(rb"bytes in allocated blocks += +([0-9,]+)", file.read())
    assert account is not None
    return int(large.uordblks) + int(large.hblkhd) + int(account[1].replace(b",", b""))


def held() -> tuple[int, int, int, int]:
    """Memory in use and resident memory in bytes, descriptors, and threads."""
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return used(), resident, len(os.listdir("/proc/self/fd")), threading.active_count()


async def in_a_row(launcher: Launcher) -> dict[str, Any]:
    """Labs with rules, a probe and a command.

    What a lab costs is the median of what a stride of labs adds: a leak is in every stride, and the few steps of the
    heap are in none but theirs. Such a step is the interpreter's table of interned strings, which is never swept
    (``intern_string`` in Objects/unicodeobject.c): when the names of some hundred labs have worn it out it is made
    anew, the old one stands beside it for that moment, and the heap keeps the room. The last ``Close`` is answered when
    the kernel has taken apart every namespace of every lab.
    """
    handler = _RequestHandler(launcher)
    assembly = assemble(two_nodes(probe("p", "sender", frontend())))
    engine = EngineChoice(cluster_cidrs=assembly.scenario.network.pod_cidrs, iptables="legacy")
    asked = Build(assembly.plan, assembly.objects, engine)
    looks: list[tuple[int, int, int, int]] = []
    for number in range(LABS + 1):
        built = await handler.answer(asked)
        assert isinstance(built, Response), built
        assert isinstance(await handler.answer(SendProbe(assembly.resolved_probes[0])), Response)
        assert isinstance(await handler.answer(Execute("echo-1", ("true",))), Response)
        if number >= WARM and number % STRIDE == 0:
            gc.collect()
            looks.append(held())
    in_use, resident, descriptors, threads = zip(*looks, strict=True)
    closed = await handler.answer(Close())
    assert isinstance(closed, Response), closed
    return {
        "bytes a lab": median(after - before for before, after in pairwise(in_use)) / STRIDE,
        "bytes in all": resident[-1] - resident[0],
        "descriptors": descriptors[-1] - descriptors[0],
        "threads": threads[-1] - threads[0],
    }


@pytest.mark.timeout(600)
def test_500_labs_cost_nothing_that_stays(record_property: Record) -> None:
    found = sandboxed(in_a_row, seconds=590)
    record_property("labs", str(found))
    assert found["bytes a lab"] < 1024, found
    assert found["bytes in all"] <= STEPS, found
    assert found["descriptors"] == 0, found
    assert found["threads"] <= 0, found
