"""Settings of the tests that are no scenarios; who runs those only does not wait for hypothesis."""

import gc
import os
from collections.abc import Callable, Generator

import pytest
from concerns import Marks
from golden_words import Told
from hypothesis import settings

# Examples are told by the failure itself, so that it is the same on every machine; a database would remember them here.
# They are drawn anew only where a run asks for many: a change must not be red by chance.
settings.register_profile(
    "proxylab", database=None, deadline=None, print_blob=True, derandomize="LAB_THOROUGH" not in os.environ
)
settings.load_profile("proxylab")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage: the items live until the end, and each look would visit all of them.

    Afterwards they are frozen: no later look visits them, neither Python's own nor one that a test asks for.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


MARKS = Marks()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew instead of comparing")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def machine_is(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets Python name another architecture as this machine's."""
    return lambda name: monkeypatch.setattr("platform.machine", lambda: name)


@pytest.fixture
def told(request: pytest.FixtureRequest, update_golden: bool) -> Generator[Told, None, None]:
    """Makes golden texts, which equal what a test sees."""
    texts = Told(request.node.nodeid, update=update_golden)
    yield texts
    texts.end()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what concerns few changes, which ``./dev test`` leaves out where no file of it changed.

    A case that no such run has is not the first of its test.
    """
    if any(item.get_closest_marker(never) for never in ("budget", "thorough")):
        return
    function = getattr(item, "originalname", item.name)
    for marker in MARKS.of(item.nodeid.partition("::")[0], function, item.name):
        item.add_marker(marker)
