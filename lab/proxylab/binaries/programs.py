"""The programs of a cluster that labs run as binaries: the sources of each, what the cache has, and what may be had."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from msgspec import Struct

from proxylab.binaries.binary import CONTROL_PLANE, COREDNS, KUBE_PROXY, Binary, BinaryProgram
from proxylab.binaries.choose import Offer, Sources, offers
from proxylab.binaries.control_plane import control_plane_sources
from proxylab.binaries.coredns import coredns_sources

SOURCES_OF_PROGRAMS: Final[Mapping[BinaryProgram, Callable[[], Sources]]] = {
    KUBE_PROXY: Sources.of_user,
    COREDNS: coredns_sources,
    CONTROL_PLANE: control_plane_sources,
}
"""The sources of this user on this machine."""


class ProgramHere(Struct, frozen=True):
    """A program, and how a lab comes by it.

    Attributes:
        cached: the binaries of the cache, oldest version first.
        offered: what each source offers where the cache has none; a source that needs the network is asked then alone.
    """

    program: BinaryProgram
    cached: tuple[Binary, ...]
    offered: tuple[Offer, ...] = ()

    @property
    def obtainable(self) -> Iterator[Offer]:
        """The offers of sources that have it."""
        return (each for each in self.offered if each.versions)


def programs_here(sources: Sequence[Sources]) -> tuple[ProgramHere, ...]:
    """Each program on this machine. Sources may take seconds to answer, so all are asked at once."""
    cached = [tuple(each.obtained()) for each in sources]
    absent = [each for each, found in zip(sources, cached, strict=True) if not found]
    with ThreadPoolExecutor() as asking:
        offered = iter([*asking.map(offers, absent)])
    return tuple(
        ProgramHere(each.cache.program, found, () if found else next(offered))
        for each, found in zip(sources, cached, strict=True)
    )
