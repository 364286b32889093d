"""A run says which test failed as soon as it does."""

from pathlib import Path

import failed_at_once
import pytest

TESTS = """
def test_first():
    assert 6 * 7 == 41

def test_second():
    pass

def test_third():
    pass
"""


@pytest.mark.parametrize("workers", [[], ["-n", "2"]])
def test_a_failure_is_said_before_the_tests_behind_it(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: list[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(failed_at_once.__file__).parent))
    pytester.makeconftest(
        "from failed_at_once import FailedAtOnce\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(FailedAtOnce(config))\n"
    )
    pytester.makepyfile(test_it=TESTS)
    printed = pytester.runpytest_subprocess("-q", *workers).stdout.str()
    assert "\nfailed: test_it.py::test_first: assert (6 * 7) == 41\n" in printed
    assert printed.index("failed: test_it.py") < printed.index("= FAILURES =")
    assert printed.count("failed: test_it.py") == 1
