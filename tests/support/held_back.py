"""Delays the tests that need a kube-proxy while `./dev test` obtains one; all others run meanwhile.

`./dev` holds a lock on a file as long as it obtains, however that ends, and then writes the exit status beside it.
"""

import fcntl
from pathlib import Path

import pytest

__all__ = ["HeldBack", "needs_kube_proxy"]

NO_SOURCE = 4
"""How `proxylab engines --obtain` ends where no source answers, which is no failure."""


def needs_kube_proxy(item: pytest.Item) -> bool:
    return item.get_closest_marker("engine_kube_proxy") is not None or "tests/engines" in item.path.as_posix()


class HeldBack:
    """The hooks, in each process that runs items.

    Args:
        folder: where `./dev` has its lock and its status.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._over = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Run what is held back last. Files go to workers as they are, so a file with one such item comes last."""
        held = {item.path for item in items if needs_kube_proxy(item)}
        items.sort(key=lambda item: item.path in held)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        """Wait outside of the item's own time limit. `./dev` and go bound how long it takes."""
        if not self._over and needs_kube_proxy(item):
            with (self._folder / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH)
            self._over = True
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip what cannot run. Where a source failed, `./dev` fails after pytest's summary."""
        if not needs_kube_proxy(item):
            return
        status = (self._folder / "status").read_text().strip() if (self._folder / "status").exists() else "no status"
        if status == str(NO_SOURCE):
            pytest.skip("no kube-proxy can be had here")
        if status != "0":
            pytest.skip(f"kube-proxy could not be obtained ({status}); see the end of the output")
