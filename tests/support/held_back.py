"""Delays the tests that need a kernel for guests, a kube-proxy or a CoreDNS while `./dev test` obtains it.

All others run meanwhile. `./dev` has a folder for each of the three. It holds a lock on a file there as long as it
obtains, however that ends, and then writes the exit status beside it.
"""

import fcntl
from collections.abc import Collection
from pathlib import Path

import pytest

__all__ = ["HeldBack", "needs"]

NO_SOURCE = 4
"""How an attempt ends where no source answers, or the machine lacks a tool, which is no failure."""

OBTAINS = "obtains"
"""Marks a test that obtains what it needs by itself, and would wait for the builds under way within its own time."""
_NEEDS = {
    "kernel": ("needs_kernel", OBTAINS),
    "kube-proxy": ("engine_kube_proxy", OBTAINS),
    "coredns": ("needs_coredns", OBTAINS),
}
"""The markers of what needs each, in the order in which they come: a build of the kernel takes less time."""


def needs(item: pytest.Item) -> tuple[str, ...]:
    """What a test needs of the three."""
    found = [name for name, markers in _NEEDS.items() if any(item.get_closest_marker(each) for each in markers)]
    if "kube-proxy" not in found and "tests/engines" in item.path.as_posix():
        found.append("kube-proxy")
    return tuple(found)


class HeldBack:
    """The hooks, in each process that runs items.

    Args:
        folder: where `./dev` has a lock and a status for each of the three.
        here: those of the three that were here before the first test: what needs them keeps its place.
    """

    def __init__(self, folder: Path, here: Collection[str] = ()) -> None:
        self._folder = folder
        self._here = here
        self._over: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Run what is held back last. Files go to workers as they are, so a file waits for all that its items need."""
        order = [*_NEEDS]
        latest: dict[Path, int] = {}
        for item in items:
            for name in {*needs(item)}.difference(self._here):
                latest[item.path] = max(latest.get(item.path, 0), 1 + order.index(name))
        items.sort(key=lambda item: latest.get(item.path, 0))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        """Wait outside of the item's own time limit. `./dev`, make and go bound how long it takes."""
        for name in needs(item):
            if name not in self._over:
                with (self._folder / name / "lock").open() as lock:
                    fcntl.flock(lock, fcntl.LOCK_SH)
                self._over.add(name)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip what cannot run. Where a source failed, `./dev` fails after pytest's summary."""
        if "kube-proxy" not in needs(item) or item.get_closest_marker(OBTAINS):
            return
        file = self._folder / "kube-proxy" / "status"
        status = file.read_text().strip() if file.exists() else "no status"
        if status == str(NO_SOURCE):
            pytest.skip("no kube-proxy can be had here; 'proxylab engines' names the sources that do not answer")
        if status != "0":
            pytest.skip(f"kube-proxy could not be obtained ({status}); see the end of the output")
