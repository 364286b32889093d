"""What one namespace's network stack counts of packets that it did not pass on.

The counters stand in files of /proc/net (net/ipv4/proc.c, net/ipv6/proc.c, net/netfilter/nf_conntrack_standalone.c,
net/xfrm/xfrm_proc.c). A user namespace may read them, but not the kernel's drop reasons (``drop_reasons``). Not every
drop has a counter: the
kernel counts a martian source for the whole machine only (rt_cache, ``in_martian_src``). A drop without a counter shows
as a difference between packets received and packets forwarded, delivered or refused.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Final

from proxylab.kernel.sandbox.netns import NetNs, inside

# The calling thread's view. nstat(8) reads the first three files, and this module uses its names.
_DIRECTORY: Final = "/proc/thread-self/net"
_FILE_BYTES: Final = 1 << 16
_MOST_READINGS: Final = 8


class StackCounters:
    """The counters of one namespace."""

    def __init__(self, netns: NetNs) -> None:
        """Open the files; a kernel without IPv6, conntrack or IPsec lacks some of them."""
        self._files: dict[str, int] = {}
        with inside(netns):
            for name in _READERS:
                with suppress(FileNotFoundError):
                    self._files[name] = os.open(f"{_DIRECTORY}/{name}", os.O_RDONLY | os.O_CLOEXEC)

    def read(self) -> dict[str, str]:
        """The contents of the files, by name. Parsing them costs ten times as much, so it is a separate step.

        The kernel sums its counters up one after the other, so a packet that comes meanwhile may count as delivered and
        not as received. Two equal readings have none of that, and under a flood of packets the last one must do.
        """
        contents = self._contents()
        for _ in range(_MOST_READINGS):
            before, contents = contents, self._contents()
            if contents == before:
                break
        return contents

    def _contents(self) -> dict[str, str]:
        return {name: os.pread(fd, _FILE_BYTES, 0).decode() for name, fd in self._files.items()}

    def close(self) -> None:
        """Close the files."""
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()


def counters_in(files: Mapping[str, str]) -> dict[str, int]:
    """Every counter in the contents of files, by nstat's name; conntrack's have the prefix ``Conntrack``."""
    return dict(chain.from_iterable(_READERS[name](text) for name, text in files.items()))


def _two_lines(text: str) -> Iterator[tuple[str, int]]:
    """Parse ``Ip: InReceives …`` and below it ``Ip: 17 …``."""
    lines = text.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        group, *keys = names.split()
        for key, value in zip(keys, values.split()[1:], strict=True):
            yield group.removesuffix(":") + key, int(value)


def _one_line_each(text: str) -> Iterator[tuple[str, int]]:
    """Parse ``Ip6InReceives  17``."""
    for line in text.splitlines():
        key, value = line.split()
        yield key, int(value)


def _per_cpu(text: str) -> Iterator[tuple[str, int]]:
    """Parse a line of names, and below it for each CPU a line of hexadecimal numbers."""
    names, *lines = text.splitlines()
    columns = zip(*(line.split() for line in lines), strict=True)
    for key, column in zip(names.split(), columns, strict=True):
        yield "Conntrack" + "".join(part.capitalize() for part in key.split("_")), sum(int(each, 16) for each in column)


_READERS: Final = {
    "snmp": _two_lines,
    "netstat": _two_lines,
    "snmp6": _one_line_each,
    "stat/nf_conntrack": _per_cpu,
    "xfrm_stat": _one_line_each,
}
