"""The fixtures that run a probe, from ``lab_sessions`` to ``lab_verdict``."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, nullcontext
from functools import partial

import pytest
from msgspec.structs import replace

from proxylab.binaries.choose import upstream_for
from proxylab.client.bundles import BundleStore
from proxylab.client.open_lab import OpenLab
from proxylab.client.open_labs import OpenLabs, open_or_foresee
from proxylab.client.scenario_run import judged
from proxylab.client.session import Session
from proxylab.engines.engine_names import where_of
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import LabError
from proxylab.pytest_plugin.items import OPEN, CollectedRun, ProbeItem
from proxylab.pytest_plugin.options import (
    ON_FAILURE,
    bundle_directory,
    engines,
    feature_gates,
    flag,
    iptables,
    kernels,
    kube_proxy_flags,
    one,
    seed,
    sync_seconds,
)
from proxylab.pytest_plugin.outcome import Judged, explanation, in_its_own_words, leave_pcap, record, warn, why_skipped
from proxylab.pytest_plugin.page_entries import heading_in_file, show
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.text import printable
from proxylab.verdict.model import Judgement, KnownFailure


@pytest.fixture(scope="session")
def lab_sessions(pytestconfig: pytest.Config) -> Iterator[Callable[[str], Session]]:
    """A function that returns the session on an engine; each pytest process, such as an xdist worker, has its own."""
    handler = pytestconfig.pluginmanager.get_plugin(ON_FAILURE)
    control_socket = None if handler is None else handler.kept_labs.control_socket
    with ExitStack() as stack:

        def begin(engine: str) -> Session:
            where = where_of(engine, engines(pytestconfig), one(pytestconfig, "kube_proxy"))
            flags, gates = kube_proxy_flags(pytestconfig), feature_gates(pytestconfig)
            tell = partial(_tell, pytestconfig)
            upstream = upstream_for(engine, where, tell, flags=flags, gates=gates)
            choice = EngineChoice(
                engine,
                iptables=iptables(pytestconfig),
                upstream=upstream,
                kernel=kernels(pytestconfig)[0],
                name_server=one(pytestconfig, "name_server"),
                control_plane=one(pytestconfig, "control_plane"),
                privileged=flag(pytestconfig, "privileged"),
                sync_seconds=sync_seconds(pytestconfig),
            )
            return stack.enter_context(Session(choice, seed(pytestconfig), control_socket))

        yield OpenLabs(begin).session


def _tell(config: pytest.Config, line: str) -> None:
    """Print a line at once, past pytest's capture: it says why nothing happens for minutes."""
    capture = config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        sys.stderr.write(f"\n{printable(line)}\n")
        sys.stderr.flush()


class _Labs:
    """The labs of one scenario file: one for each of its runs, one at a time."""

    def __init__(self, sessions: Callable[[str], Session]) -> None:
        self._sessions = sessions
        self._run: CollectedRun | None = None
        self._lab: OpenLab | None = None
        self._failed: dict[CollectedRun, LabError] = {}
        self._foreseen: dict[CollectedRun, KnownFailure] = {}

    def of(self, run: CollectedRun, judged: Probe | Step) -> OpenLab | KnownFailure:
        """A lab of the run that has not yet passed the probe or step.

        If the lab cannot open, each item of the run gets the same error.
        """
        if self._lab is not None and self._lab.is_open and self._run is run and not self._lab.is_past(judged):
            return self._lab
        self.close()
        if run in self._failed:
            raise self._failed[run]
        if run in self._foreseen:
            return self._foreseen[run]
        try:
            session = self._sessions(run.engine)
            run.settle(session.engine.version)
            opened = open_or_foresee(partial(session.open, kernel=run.kernel), run.scenario)
        except LabError as error:
            self._failed[run] = error
            raise
        if isinstance(opened, KnownFailure):
            self._foreseen[run] = opened
            return opened
        self._run, self._lab = run, opened
        return opened

    def without_lab(self, run: CollectedRun, judged: Probe | Step) -> tuple[EngineChoice, Judged | None]:
        """The engine of a run, and the verdict on an item of which the engine's mode can show nothing.

        The lab of another run ends first: no run begins beside the one before it.
        """
        if self._run is not run:
            self.close()
        session = self._sessions(run.engine)
        run.settle(session.engine.version)
        return replace(session.engine, kernel=run.kernel), session.unshown(run.scenario, judged)

    def close(self) -> None:
        lab, self._lab = self._lab, None
        if lab is not None:
            lab.close()


@pytest.fixture(scope="module")
def lab_of_file(lab_sessions: Callable[[str], Session]) -> Iterator[_Labs]:
    """The labs of the scenario file; the last one closes after the last item."""
    with closing(_Labs(lab_sessions)) as labs:
        yield labs


@pytest.fixture
def lab_open(request: pytest.FixtureRequest, lab_of_file: _Labs) -> OpenLab:
    """The lab of the item's scenario or case.

    An item of which the engine's mode can show nothing is skipped, and needs no lab. If the engine fails as
    ``engineFails`` expects, the item is xfailed.
    """
    item: ProbeItem = request.node
    with in_its_own_words(item.scenario.file):
        engine, known = lab_of_file.without_lab(item.run, item.judged)
        if known is None:
            opened = lab_of_file.of(item.run, item.judged)
    if known is not None:
        record(item, item.scenario, engine, known)
        show(item, heading_in_file(item.run, binary=engine.binary), known)
        pytest.skip(why_skipped(known))
    if isinstance(opened, KnownFailure):
        pytest.xfail(str(opened))
    item.stash[OPEN] = opened
    return opened


@pytest.fixture(scope="session")
def lab_bundle_store(pytestconfig: pytest.Config) -> BundleStore | None:
    """The store for evidence; ``None`` with ``--lab-no-bundles``."""
    directory = bundle_directory(pytestconfig)
    return None if directory is None else BundleStore(directory)


@pytest.fixture
def lab_verdict(request: pytest.FixtureRequest, lab_open: OpenLab, lab_bundle_store: BundleStore | None) -> Judged:
    """The verdict on the probe or step. Skips or fails the item at once if the verdict is skip or inconclusive."""
    item: ProbeItem = request.node
    with in_its_own_words(str(item.judged.position)):
        verdict = judged(lab_open, item.judged, lab_bundle_store, partial(warn, item), name=item.name)
    record(item, item.scenario, lab_open.engine, verdict, lab_open.built)
    if flag(item.config, "pcap"):
        leave_pcap(item, lab_open, verdict)
    show(item, heading_in_file(item.run, lab_open.built.kernel, lab_open.engine.binary), verdict)
    match verdict.overall:
        case Judgement.SKIP:
            pytest.skip(why_skipped(verdict))
        case Judgement.INCONCLUSIVE:
            pytest.fail(explanation(verdict), pytrace=False)
    return verdict
