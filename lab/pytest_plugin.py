"""Scenarios as pytest items: ``pytest scenarios/x.lab.yaml`` and ``proxylab run`` are the same run.

Owns: how a scenario file becomes a module of items, and how a verdict becomes passed, failed, error or skipped.
Must not: import what only a run needs before the first item runs (collection needs no privilege and no kernel), patch
anything, or do anything in a project that has no ``*.lab.yaml``.

A scenario file is a ``pytest.Module`` and a probe a ``pytest.Function``: fixtures, ``-k``, ``::``, xdist and other
plugins treat them as they treat Python tests. Three fixtures carry the run, and are the place to stand in for it:

* ``lab_session``, once per worker: the lab process, started when the first item needs it.
* ``lab_open``: the lab of the item's scenario, or of its case; closed when an item needs another, or the file ends.
* ``lab_verdict``, once per item: the probe, sent and judged.

So evidence is gathered while an item is set up, and its call only holds the verdict against the expectation: what came
out otherwise than expected is *failed*; what could not be decided is an *error*, as JUnit tells the two apart; what
this machine cannot do is *skipped*, with the cure.
"""

import os
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from lab.engines.names import ENGINES, IPTABLES, mode_of
from lab.errors import CapabilityError, EngineError, LabError, ScenarioError
from lab.scenario.model import Probe, Scenario

if TYPE_CHECKING:
    from lab.bundles import Shelf
    from lab.session import OpenLab, Session
    from lab.verdict.model import ProbeVerdict

__all__ = [
    "ProbeItem",
    "ScenarioFile",
    "lab_of_file",
    "lab_open",
    "lab_session",
    "lab_shelf",
    "lab_verdict",
    "pytest_addoption",
    "pytest_collect_file",
    "pytest_configure",
]

_SUFFIX: Final = ".lab.yaml"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the lab, all of which begin with ``--lab-``."""
    group = parser.getgroup("proxylab", "Kubernetes Service proxies on a real kernel")
    group.addoption(
        "--lab-engine",
        choices=list(ENGINES),
        default=ENGINES[0],
        help="the engine to run in every node: %(choices)s (default: %(default)s)",
    )
    group.addoption(
        "--lab-iptables",
        choices=list(IPTABLES),
        default="",
        help="the variant of iptables that loads the rules: %(choices)s (default: the first that works here)",
    )
    group.addoption(
        "--lab-seed",
        type=int,
        default=0,
        help="orders source ports and payloads; the same seed sends the same packets (default: 0)",
    )
    group.addoption(
        "--lab-bundle-dir",
        metavar="DIRECTORY",
        help="where the evidence of each probe that did not pass is kept (default: .proxylab/bundles below rootdir)",
    )
    group.addoption(
        "--lab-no-bundles",
        action="store_true",
        help="keep no evidence",
    )
    group.addoption(
        "--lab-required",
        action="store_true",
        help="fail when there are scenarios and this machine could run none of them (in CI, where skips go unseen)",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "ScenarioFile | None":
    """Take ``*.lab.yaml``, and leave all other YAML alone."""
    if file_path.name.endswith(_SUFFIX):
        return ScenarioFile.from_parent(parent, path=file_path)
    return None


@dataclass(slots=True)
class _Tally:
    """How many probes were set up, and how many of these were skipped."""

    probes: int = 0
    skipped: int = 0

    @property
    def nothing_ran(self) -> bool:
        """Whether there were probes, and every one of them was skipped."""
        return 0 < self.probes == self.skipped


_TALLY: Final = pytest.StashKey[_Tally]()


def pytest_configure(config: pytest.Config) -> None:
    """Watch what becomes of probes: under xdist in the controller, which hears of all of them."""
    if config.getoption("lab_required") and not hasattr(config, "workerinput"):
        config.stash[_TALLY] = _Tally()
        config.pluginmanager.register(_Watch(config.stash[_TALLY]), "proxylab-required")


class _Watch:
    """The hooks behind ``--lab-required``."""

    def __init__(self, tally: _Tally) -> None:
        self._tally = tally

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a probe when it has been set up."""
        if report.when == "setup" and f"{_SUFFIX}::" in report.nodeid:
            self._tally.probes += 1
            self._tally.skipped += report.skipped

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """A run that proved nothing must not look like one that held."""
        if self._tally.nothing_ran and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why the run failed, when nothing in it did."""
        if self._tally.nothing_ran:
            count = self._tally.probes
            terminalreporter.write_line(f"--lab-required: this machine could run none of {count} probes", red=True)


class ScenarioFile(pytest.Module):
    """One scenario file. A ``Module`` and not a ``File``, since only modules can hold module-scoped fixtures."""

    def _getobj(self) -> types.ModuleType:
        return types.ModuleType(self.path.name.removesuffix(_SUFFIX))

    def collect(self) -> Iterable[pytest.Item]:
        """The scenario's probes, in the order of the file. Raises ``CollectError`` with every mistake in it."""
        from lab.scenario.cases import cases  # noqa: PLC0415 - a scenario's own room
        from lab.scenario.load import load_scenario  # noqa: PLC0415 - pydantic, for those who have scenarios

        try:
            scenario = load_scenario(Path(os.path.relpath(self.path)))
        except ScenarioError as error:
            raise self.CollectError("\n".join(error.problems)) from None
        for case in cases(scenario, mode_of(self.config.getoption("lab_engine"))):
            for probe in case.probes:
                yield ProbeItem.from_parent(self, name=probe.name, callobj=_hold, probe=probe, scenario=case)


class ProbeItem(pytest.Function):
    """One probe of a scenario, or of one case of it."""

    def __init__(self, *, probe: Probe, scenario: Scenario, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.probe: Final = probe
        self.scenario: Final = scenario

    def reportinfo(self) -> tuple[Path, int, str]:
        """The probe's own line in the YAML file; pytest counts lines from 0."""
        return self.path, self.probe.position.line - 1, self.name


@pytest.fixture(scope="session")
def lab_session(pytestconfig: pytest.Config) -> "Iterator[Session]":
    """The lab process of this pytest process, which is an xdist worker or the only one."""
    from lab.engines.protocol import EngineChoice  # noqa: PLC0415 - a run's own rooms
    from lab.session import Session  # noqa: PLC0415

    engine = EngineChoice(pytestconfig.getoption("lab_engine"), iptables=pytestconfig.getoption("lab_iptables"))
    with Session(engine, pytestconfig.getoption("lab_seed")) as session:
        yield session


class _Labs:
    """The labs of one scenario file: a lab for each case of its matrix, one at a time."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._case: str | None = None
        self._lab: OpenLab | None = None
        self._failed: dict[str, LabError] = {}

    def of(self, scenario: Scenario) -> "OpenLab":
        """The lab of a case; what keeps it from being opened is told to each of its items."""
        if self._lab is not None and self._case == scenario.case.id:
            return self._lab
        self.close()
        if scenario.case.id in self._failed:
            raise self._failed[scenario.case.id]
        try:
            self._lab = self._session.open(scenario)
        except LabError as error:
            self._failed[scenario.case.id] = error
            raise
        self._case = scenario.case.id
        return self._lab

    def close(self) -> None:
        lab, self._lab = self._lab, None
        if lab is not None:
            lab.close()


@pytest.fixture(scope="module")
def lab_of_file(lab_session: "Session") -> Iterator[_Labs]:
    """The labs of the scenario file, the last of which is closed after the last item."""
    with closing(_Labs(lab_session)) as labs:
        yield labs


@pytest.fixture
def lab_open(request: pytest.FixtureRequest, lab_of_file: _Labs) -> "OpenLab":
    """The lab of the item's scenario, or of its case."""
    scenario: Scenario = request.node.scenario
    with _in_its_own_words(scenario.file):
        return lab_of_file.of(scenario)


@pytest.fixture(scope="session")
def lab_shelf(pytestconfig: pytest.Config) -> "Shelf | None":
    """Where evidence is kept; ``None`` where nobody wants any."""
    from lab.bundles import DEFAULT, Shelf  # noqa: PLC0415 - a run's own rooms

    if pytestconfig.getoption("lab_no_bundles"):
        return None
    chosen = pytestconfig.getoption("lab_bundle_dir")
    directory = Path(chosen) if chosen else pytestconfig.rootpath / DEFAULT
    return Shelf(Path(os.path.relpath(directory)), pytestconfig.getoption("lab_engine"))


@pytest.fixture
def lab_verdict(
    request: pytest.FixtureRequest,
    lab_open: "OpenLab",
    lab_shelf: "Shelf | None",
    record_property: Callable[[str, object], None],
) -> "ProbeVerdict":
    """The probe's verdict, unless there is none that could be held against the expectation."""
    from lab.verdict.model import Judgement  # noqa: PLC0415

    probe: Probe = request.node.probe
    with _in_its_own_words(str(probe.position)):
        verdict = lab_open.probe(probe)
        if lab_shelf is not None:
            verdict = lab_shelf.settle(verdict, partial(lab_open.bundle, verdict), partial(_warn, request.node))
    record_property("judgement", str(verdict.overall))
    if verdict.bundle:
        record_property("bundle", verdict.bundle)
    match verdict.overall:
        case Judgement.SKIP:
            pytest.skip("; ".join(reason for each in verdict.verdicts for reason in each.reasons))
        case Judgement.INCONCLUSIVE:
            pytest.fail(_explanation(verdict), pytrace=False)
    return verdict


def _warn(item: pytest.Item, message: str) -> None:
    item.warn(pytest.PytestWarning(message))


def _hold(lab_verdict: "ProbeVerdict") -> None:
    """What a probe's item calls: a verdict that is neither skip nor inconclusive is pass or fail."""
    from lab.verdict.model import Judgement  # noqa: PLC0415

    if lab_verdict.overall is not Judgement.PASS:
        pytest.fail(_explanation(lab_verdict), pytrace=False)


def _explanation(verdict: "ProbeVerdict") -> str:
    """Plain lines, of which the first begins with the place in the file."""
    from lab.verdict.explain import explain  # noqa: PLC0415

    return "\n".join(explain(verdict))


@contextmanager
def _in_its_own_words(place: str) -> Iterator[None]:
    """A traceback explains nothing to the author of a scenario; only our own mistakes keep theirs."""
    try:
        yield
    except CapabilityError as error:
        pytest.skip(f"needs {error.missing}; {error.cure}")
    except (EngineError, ScenarioError) as error:
        pytest.fail(f"{place}: {error}", pytrace=False)
