"""Settings of the project's own tests."""

import gc
import os
from pathlib import Path

import pytest
from held_back import HeldBack

from lab.garbage import look_seldom

pytest_plugins = ["pytester"]

# What pytest and its plugins load, and the thousands of items that it collects, are no garbage. By Python's own
# thresholds they are looked at again and again, which is a seventh of the processor time of the unit tests.
look_seldom()

# Whose processes are whose: whatever this pytest process starts can be told from what other workers start.
os.environ["PROXYLAB_TESTS_OF"] = str(os.getpid())

collect_ignore_glob = [
    "tests/golden/desk/*.lab.yaml",
    "tests/golden/scenario/*.lab.yaml",
    "tests/golden/screens/*.lab.yaml",
]  # texts to be read, not labs to be run


def pytest_configure(config: pytest.Config) -> None:
    if obtaining := os.environ.get("PROXYLAB_TESTS_AWAIT"):
        config.pluginmanager.register(HeldBack(Path(obtaining)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers for each core: half of their time they wait, for the kernel, for timers and for what they started."""
    return 2 * len(os.sched_getaffinity(0))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what waits longest begin first: begun last, it would keep everybody waiting. All else stays in its order."""
    items.sort(key=lambda item: item.get_closest_marker("waits") is None)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Look for garbage once: pytest would look five times at everything that a worker has before it may end."""
    gc.collect()
    gc.freeze()
