"""Settings of the project's own tests."""

import os
from pathlib import Path

import pytest
from changes import changed_scenarios
from concerns import of_scenario
from failed_at_once import FailedAtOnce
from held_back import HeldBack
from skipped import Skipped

pytest_plugins = ["pytester", "guests"]

# Whose processes are whose: whatever this pytest process starts can be told from what other workers start.
os.environ["PROXYLAB_TESTS_OF"] = str(os.getpid())

collect_ignore = ["lab/proxylab/catalogue"]  # a link to scenarios/
collect_ignore_glob = [
    "tests/golden/standing_lab/*.lab.yaml",
    "tests/golden/scenario/*.lab.yaml",
    "tests/golden/screens/*.lab.yaml",
]  # texts to be read, not labs to be run


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Skipped())
    config.pluginmanager.register(FailedAtOnce(config))
    if obtaining := os.environ.get("PROXYLAB_TESTS_AWAIT"):
        here = os.environ.get("PROXYLAB_TESTS_HERE", "").split()
        config.pluginmanager.register(HeldBack(Path(obtaining), here))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the probes of an engine or mode that few changes concern, as tests/conftest.py marks tests."""
    folder, _, rest = item.nodeid.partition("/")
    place, is_scenario, _ = rest.partition(".lab.yaml::")
    if folder == "scenarios" and is_scenario:
        for marker in of_scenario(place, {each.name for each in item.iter_markers()}, changed_scenarios()):
            item.add_marker(marker)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers for each core: half of their time they wait, for the kernel, for timers and for what they started."""
    return 2 * len(os.sched_getaffinity(0))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that wait longest: begun last, they would keep all other workers waiting."""
    items.sort(key=lambda item: item.get_closest_marker("waits") is None)
