"""Settings of the project's own tests."""

import os

import pytest
from hypothesis import settings

pytest_plugins = ["pytester"]

# Whose processes are whose: whatever this pytest process starts can be told from what other workers start.
os.environ["PROXYLAB_TESTS_OF"] = str(os.getpid())

collect_ignore_glob = [
    "tests/golden/desk/*.lab.yaml",
    "tests/golden/scenario/*.lab.yaml",
    "tests/golden/screens/*.lab.yaml",
]  # texts to be read, not labs to be run

# Examples are told by the failure itself, so that it is the same on every machine; a database would remember them here.
# They are drawn anew only where somebody asks for many: a change must not be red by chance.
settings.register_profile(
    "proxylab", database=None, deadline=None, print_blob=True, derandomize="LAB_THOROUGH" not in os.environ
)
settings.load_profile("proxylab")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two workers for each core: half of their time they wait, for the kernel, for timers and for what they started."""
    return 2 * len(os.sched_getaffinity(0))
