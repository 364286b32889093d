"""The fixtures ``lab``, ``lab_factory``, ``lab_engine`` and ``lab_kernel`` for Python tests, and the marker ``lab``."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final, Protocol

import pytest

from proxylab.client.bundles import BundleStore
from proxylab.client.session import Session
from proxylab.pytest_plugin.in_python import Lab
from proxylab.pytest_plugin.items import OPEN, in_id
from proxylab.pytest_plugin.options import engines, kernels
from proxylab.pytest_plugin.outcome import in_its_own_words
from proxylab.pytest_plugin.tested_case import case_of, parsed, text_of

MARKER: Final = "lab"


class LabFactory(Protocol):
    """The type of the fixture ``lab_factory``."""

    def __call__(self, scenario: str | Path, *, case: str = "") -> Lab:
        """Build the lab of a scenario and return it.

        Args:
            scenario: a file, relative to the test's directory, or the text of a scenario.
            case: the id of the case, if the scenario has a matrix.
        """


@pytest.fixture
def lab_engine(pytestconfig: pytest.Config) -> str:
    """The engine of a Python test's labs; with several engines the test runs once on each."""
    return engines(pytestconfig)[0]


@pytest.fixture
def lab_kernel(pytestconfig: pytest.Config) -> str:
    """The kernel of a Python test's labs; with several kernels the test runs once on each."""
    return kernels(pytestconfig)[0]


def parametrize_labs(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses a lab on every chosen engine and kernel."""
    for fixture, chosen in (("lab_kernel", kernels(metafunc.config)), ("lab_engine", engines(metafunc.config))):
        if fixture in metafunc.fixturenames and len(chosen) > 1:
            metafunc.parametrize(fixture, chosen, ids=map(in_id, chosen))


@pytest.fixture
def lab_factory(
    request: pytest.FixtureRequest,
    lab_sessions: Callable[[str], Session],
    lab_engine: str,
    lab_kernel: str,
    lab_bundle_store: BundleStore | None,
) -> Iterator[LabFactory]:
    """A function that builds labs for a Python test, one at a time: it closes the previous lab first."""
    with ExitStack() as stack:

        def build(scenario: str | Path, *, case: str = "") -> Lab:
            stack.close()
            with in_its_own_words(""):
                text, file = text_of(scenario, request.path)
                session, written = lab_sessions(lab_engine), parsed(text, file)
                opened = session.open(case_of(written, session.engine, case), text, lab_kernel)
            stack.enter_context(closing(opened))
            request.node.stash[OPEN] = opened
            return Lab(opened, text, engine=lab_engine, item=request.node, bundle_store=lab_bundle_store, case=case)

        yield build


@pytest.fixture
def lab(request: pytest.FixtureRequest, lab_factory: LabFactory) -> Lab:
    """The lab of the scenario that the marker names: ``@pytest.mark.lab("x.lab.yaml")``."""
    marker = request.node.get_closest_marker(MARKER)
    if marker is None:
        pytest.fail(
            'the fixture "lab" needs a scenario: mark the test with @pytest.mark.lab("FILE.lab.yaml"), '
            'or use the fixture "lab_factory"',
            pytrace=False,
        )
    arguments: Any = marker.args
    return lab_factory(*arguments, **marker.kwargs)
