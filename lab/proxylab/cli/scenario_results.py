"""The scenarios that a command line asks for, and their results: what ``run`` and ``conformance`` share.

``proxylab.client.scenario_run`` runs each of them, in this process, in those of ``proxylab.client.workers``, or on the
nodes of a cluster (``proxylab.client.ray_workers``).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import click

from proxylab.cli.file_arguments import load_each
from proxylab.cli.options import option
from proxylab.cli.progress import RunProgress
from proxylab.cli.standard_streams import echo
from proxylab.client.bundles import BundleStore
from proxylab.client.exec_and_shell import run_shell
from proxylab.client.kept_labs import KeptLabs
from proxylab.client.open_lab import OpenLab
from proxylab.client.open_labs import MOST_JOBS, OpenLabs
from proxylab.client.ray_node import NodeSettings
from proxylab.client.ray_workers import RayWorkers
from proxylab.client.scenario_run import Run, ScenarioRuns, ended_early
from proxylab.client.session import SessionMaker
from proxylab.client.workers import Work, Workers
from proxylab.engines.engine_names import mode_of
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import ScenarioError
from proxylab.oracle.promised import promised_cases
from proxylab.report.failure_text import explain
from proxylab.scenario.cases import kernel_of
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.scenario.versions import Version
from proxylab.timing import Deadline
from proxylab.verdict.model import Fault, ProbeVerdict, ScenarioResult, StepVerdict


def _jobs(ctx: click.Context, param: click.Parameter, value: str | None) -> int:
    """A number of workers; 0 stands for as many as a machine bears, or a node of a cluster. Raises ``BadParameter``."""
    if value is None or value == "auto":
        return 0
    if not value.isdecimal() or not 1 <= int(value) <= MOST_JOBS:
        raise click.BadParameter(f"{value!r} is not valid; give a number from 1 to {MOST_JOBS}, or auto", ctx, param)
    return int(value)


Jobs = Annotated[
    int,
    option(
        "--jobs",
        "-j",
        metavar="N",
        callback=_jobs,
        is_eager=True,
        help=f"Run N scenarios side by side, each in a lab of its own; auto is two for each core, with two scenarios "
        f"at least for each, {MOST_JOBS} at most. "
        "[default: auto]",
    ),
]


def number_of_workers(jobs: int, tasks: int) -> int:
    """How many workers do so many tasks.

    Where ``jobs`` is 0, two for each core, since a worker waits half of its time. Each then has two tasks at least: the
    start of its lab process takes as long as a short scenario.
    """
    most = min(2 * len(os.sched_getaffinity(0)), MOST_JOBS, tasks // 2)
    return min(jobs or max(most, 1), tasks)


def loaded(files: Iterable[Path], engine: str) -> tuple[list[Scenario], list[ScenarioResult]]:
    """The scenarios, and a result for each file with mistakes. Raises ``ScenarioError`` if no file is without."""
    found = load_each(files)
    written = [each for each in found.values() if isinstance(each, Scenario)]
    refused = {str(file): each for file, each in found.items() if isinstance(each, ScenarioError)}
    if refused and not written:
        raise ScenarioError([problem for error in refused.values() for problem in error.problems])
    return written, [
        ScenarioResult(file=file, name=file, engine=engine, fault=Fault(error.exit_code, str(error)))
        for file, error in refused.items()
    ]


def runs_of(
    written: Iterable[Scenario], engines: Mapping[str, Version], kernels: Sequence[str], names: Sequence[str]
) -> list[Run]:
    """Every case of every scenario on every engine and kernel, with its probes and steps of these names, or with all.

    ``except`` and the matrix depend on the engine's version. A case may name its kernel itself.
    """
    known = (
        (engine, kernel_of(case, kernel), case)
        for scenario in written
        for engine, version in engines.items()
        for kernel in (kernels[:1] if scenario.matrix.kernel else kernels)
        for case in promised_cases(scenario, mode_of(engine), version)
    )
    runs = [
        Run(engine, kernel, case, [each for each in case.judged if _is_called(each, case, names)])
        for engine, kernel, case in known
    ]
    return [each for each in runs if each.chosen]


def _hold(lab: OpenLab, verdict: ProbeVerdict | StepVerdict) -> None:
    """Explain a verdict, and open a shell in the sender of its probe, or in a node."""
    where = verdict.probe.source.name if isinstance(verdict, ProbeVerdict) else lab.scenario.nodes[0].name
    echo("\n".join(["", *explain(verdict), "", f"a shell in {where}; exit it to go on", ""]), err=True)
    run_shell(lab.connection, where)


@contextmanager
def opened(
    make_session: SessionMaker,
    choices: Mapping[str, EngineChoice],
    seed: int,
    *,
    store: BundleStore | None,
    keep: bool = False,
    hold: bool = False,
    trace: bool = False,
    until: Deadline | None = None,
    rule_coverage: bool = False,
    keep_passed: bool = True,
) -> Iterator[ScenarioRuns]:
    """What runs scenarios, each engine's in one session, until a deadline; the end of the block closes them."""
    kept = KeptLabs() if keep else None
    given = seed, kept.control_socket if kept else None
    with ExitStack() as stack:
        sessions = OpenLabs(lambda name: stack.enter_context(make_session(choices[name], *given)))
        look = _hold if hold else None
        yield ScenarioRuns(
            sessions.session,
            trace=trace,
            store=store,
            kept_labs=kept,
            hold=look,
            until=until,
            rule_coverage=rule_coverage,
            keep_passed=keep_passed,
        )


@contextmanager
def results_of(
    runs: Sequence[Run],
    begin: Callable[[], AbstractContextManager[ScenarioRuns]],
    jobs: int,
    progress: RunProgress,
) -> Iterator[Iterator[ScenarioResult]]:
    """The results of the runs, in their order; the labs close at the end of the block. Raises what is left of them.

    ``jobs`` scenarios run side by side; with 0, as many as the machine bears.
    """
    workers = number_of_workers(jobs, len(runs))
    if workers > 1 and not jobs:
        progress.note(f"{workers} scenarios run side by side; --jobs 1 runs one after the other")

    @contextmanager
    def work() -> Iterator[Work[Run, ScenarioResult]]:
        with begin() as scenario_runs:
            yield scenario_runs.result

    if workers == 1:
        with progress.shown(), work() as result:
            yield (result(each, progress.at, progress.note) for each in runs)
        return
    with (
        progress.shown(),
        Workers(
            work,
            runs,
            workers,
            order=_order(runs),
            kind=lambda run: run.engine_on_kernel,
            lost=ended_early,
            at=progress.at,
            note=progress.note,
        ) as side_by_side,
    ):
        yield side_by_side.results()


@contextmanager
def results_of_cluster(
    address: str,
    runs: Sequence[Run],
    settings: NodeSettings,
    jobs: int,
    store: BundleStore | None,
    progress: RunProgress,
) -> Iterator[Iterator[ScenarioResult]]:
    """The same from the nodes of a Ray cluster, each of which runs ``jobs`` scenarios side by side."""
    with (
        progress.shown(),
        RayWorkers(
            address,
            runs,
            settings,
            order=_order(runs),
            number=jobs or None,
            store=store,
            at=progress.at,
            note=progress.note,
        ) as workers,
    ):
        yield workers.results()


def _order(runs: Sequence[Run]) -> list[int]:
    """In which order runs start: those that wait for timeouts first, for started last they would run alone."""
    return sorted(range(len(runs)), key=lambda number: "waits" not in runs[number].scenario.tags)


def _is_called(judged: Probe | Step, scenario: Scenario, names: Sequence[str]) -> bool:
    """Whether one of the names, if there are any, is its name in the file, that with its case, or without its step."""
    if not names:
        return True
    whole = scenario.case.words(judged.name)
    in_step = isinstance(judged, Probe) and scenario.steps_before(judged) > 0
    return any(name in (judged.name, whole) or (in_step and whole.endswith(f": {name}")) for name in names)
