"""What a machine has of each program of a cluster, and what may be had where it has none."""

from pathlib import Path

import pytest
from kube_proxies import program

from proxylab.binaries.binary import COREDNS, KUBE_PROXY, Binary
from proxylab.binaries.cache import Cache
from proxylab.binaries.choose import Sources
from proxylab.binaries.programs import programs_here
from proxylab.errors import CapabilityError


class Listing:
    """A source that lists some versions or does not answer, and counts how often it is asked."""

    def __init__(self, *versions: str) -> None:
        self._versions = versions
        self.asked = 0

    def versions(self) -> list[str]:
        self.asked += 1
        if not self._versions:
            raise CapabilityError("an answer", "be online")
        return [*self._versions]

    def origin(self, version: str) -> str:
        return f"listed {version}"

    def obtain(self, version: str, cache: Cache) -> Binary:
        pytest.fail(f"nothing obtains {version} for {cache.folder}")


def test_sources_are_asked_for_what_the_cache_lacks_alone(tmp_path: Path) -> None:
    kept, silent, listing = Listing("v1.38.0"), Listing(), Listing("v1.14.0", "v1.15.0")
    cache = Cache(tmp_path / "kube-proxy", KUBE_PROXY)
    for version, origin in (("v1.36.3", "listed v1.36.3"), ("v1.37.2", "a file of mine")):
        with cache.workspace(version) as folder:
            cache.keep(program(folder / "kube-proxy", version), origin)
    others = Sources(Cache(tmp_path / "coredns", COREDNS), {"release": silent, "module": listing})
    here, absent = programs_here([Sources(cache, {"module": kept}), others])
    assert ([each.version for each in here.cached], here.offered, kept.asked) == (["v1.36.3"], (), 0)
    assert (absent.program, absent.cached, silent.asked, listing.asked) == (COREDNS, (), 1, 1)
    assert [(each.word, each.versions[-1]) for each in absent.obtainable] == [("module", "v1.15.0")]
    assert [each.error for each in absent.offered] == ["an answer", ""]
