"""The memory of a lab process, which builds one lab after the other: when Python searches it, and what goes back.

A closed lab leaves some 8,000 objects that refer to each other in circles (tasks, exceptions, sockets with their
callbacks). Reference counts do not free those; a search for circles does. Python searches everything only after
millions of new objects, so dozens of closed labs may stay, with 1.5 MB each. Beside that, malloc keeps what was given
back to it: 10 to 40 MB.
"""

import gc
import resource
from pathlib import Path
from typing import Final

from proxylab.kernel.sandbox.linux import trim_heap

GC_THRESHOLD: Final = 50_000
"""How many objects a lab process makes before Python searches the newest of them for circles.

A run of many flows makes records without circles. With Python's default of 700, a run of 10,000 flows takes more than
2.4 times the processor time of the kernel's own part; with this threshold it takes 1.9 times. The budget is twice.
"""

_LABS: Final = 4
"""After so many closed labs their memory goes back. A search takes 10 ms, a small lab about 150 ms in all."""

_OF_RULES: Final = ("SUnreclaim:", "VmallocUsed:", "Percpu:")
"""Of /proc/meminfo."""


def search_rarely() -> None:
    """Search for circles only among many new objects, and never among those that there are now: modules stay."""
    gc.set_threshold(GC_THRESHOLD)
    gc.freeze()


def give_back(closed_labs: int) -> None:
    """Free what the last labs have left behind, and give free memory back to the machine; after every fourth lab."""
    if closed_labs % _LABS == 0:
        gc.collect()
        trim_heap()


def resident_bytes() -> int:
    """The memory of this process that is in use now (``VmRSS``, proc(5))."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def kernel_bytes() -> int:
    """The memory of the kernel in which rules and sets lie: of the whole machine, since no namespace has its own.

    Tables of iptables lie in the area of vmalloc, rules of nf_tables and virtual servers in slabs, counters by
    processor.
    """
    lines = (line.split() for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines())
    return 1024 * sum(int(words[1]) for words in lines if words[0] in _OF_RULES)
