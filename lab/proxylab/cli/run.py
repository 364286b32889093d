"""``proxylab run``: run scenarios and print their verdicts.

``proxylab.client.scenario_run`` runs each of them, in this process, in those of ``proxylab.client.workers``, or on the
nodes of a cluster (``proxylab.client.ray_workers``).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import click

from proxylab.cli.engine_options import choices_of, engines_options
from proxylab.cli.file_arguments import expand, files_argument, load_each
from proxylab.cli.progress import Progress
from proxylab.cli.shard_options import in_shard, shard_options
from proxylab.cli.terminal import COLOR
from proxylab.client.bundles import BundleStore
from proxylab.client.exec_and_shell import run_shell
from proxylab.client.kept_labs import KeptLabs
from proxylab.client.open_lab import OpenLab
from proxylab.client.open_labs import MOST_JOBS, OpenLabs
from proxylab.client.ray_node import NodeSettings
from proxylab.client.ray_workers import RayWorkers
from proxylab.client.report_page import RunStart, write_page
from proxylab.client.scenario_run import Run, ScenarioRuns, ended_early
from proxylab.client.session import Session
from proxylab.client.workers import Work, Workers
from proxylab.engines.engine_names import mode_of, version_of
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import ExitCode, ScenarioError
from proxylab.report.exit_code import exit_code
from proxylab.report.failure_text import explain
from proxylab.report.html import entries_of
from proxylab.report.shards import Shard
from proxylab.scenario.cases import cases, kernel_of
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.scenario.versions import Version
from proxylab.verdict.model import Fault, Judgement, ProbeVerdict, ScenarioResult, StepVerdict

__all__ = ["command", "paint"]

SessionMaker = Callable[..., Session]

_COLOURS: Final = {
    Judgement.PASS: "green",
    Judgement.FAIL: "red",
    Judgement.INCONCLUSIVE: "yellow",
    Judgement.SKIP: "cyan",
}


def _jobs(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """A number of workers, or ``None`` for ``auto``, which is the default on a cluster. Raises ``BadParameter``."""
    if value is None:
        return None if ctx.params.get("ray") else 1
    if value == "auto":
        return None
    if not value.isdecimal() or not 1 <= int(value) <= MOST_JOBS:
        raise click.BadParameter(f"{value!r} is not valid; give a number from 1 to {MOST_JOBS}, or auto", ctx, param)
    return int(value)


def _alone(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Refuse a flag that needs the terminal, with --jobs."""
    if value and ctx.params["jobs"] != 1:
        raise click.BadParameter("workers have no terminal; leave out --jobs and --ray", ctx, param)
    return _here(ctx, param, value)


def _here(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Refuse a flag that needs the labs on this machine, with --ray."""
    if value and ctx.params["ray"]:
        raise click.BadParameter("the labs are on other machines; leave out --ray", ctx, param)
    return value


@click.command("run", short_help="Run scenarios and judge every probe.")
@files_argument
@engines_options
@click.option(
    "--probe", "names", metavar="NAME", multiple=True, help="Run only probes and steps with this name; may be repeated."
)
@click.option(
    "--jobs",
    "-j",
    metavar="N",
    callback=_jobs,
    is_eager=True,
    help=f"Run N scenarios side by side, each in a lab of its own; auto is two for each core, {MOST_JOBS} at most.  "
    "[default: 1; with --ray auto, on each node]",
)
@click.option(
    "--ray",
    metavar="ADDRESS",
    is_eager=True,
    help="Run the scenarios on the nodes of the Ray cluster whose head is at ray://HOST:10001; needs proxylab[ray].",
)
@shard_options
@click.option("--trace", is_flag=True, help="Send one more packet for each probe and trace it, rule by rule.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The seed for source ports and payloads; the same seed sends the same packets.",
)
@click.option(
    "--bundle-dir",
    metavar="DIRECTORY",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".proxylab/bundles"),
    show_default=True,
    help="Where to save the evidence of each probe that did not pass; `proxylab judge` reads it.",
)
@click.option("--no-bundles", is_flag=True, help="Save no evidence.")
@click.option(
    "--keep",
    is_flag=True,
    callback=_here,
    help="Keep the lab of a probe that did not pass running; `proxylab ps` lists it.",
)
@click.option(
    "--hold-on-failure",
    "hold",
    is_flag=True,
    callback=_alone,
    help="After a probe that did not pass, explain it at once and open a shell in its sender; exit the shell to go on.",
)
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Also write the results as one HTML file, with the path of every probe's packet.",
)
@click.option("-v", "--verbose", is_flag=True, help="List every probe with what the lab observed.")
@click.option("-q", "--quiet", is_flag=True, help="Print one line for each probe that did not pass.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@COLOR
@click.pass_obj
def command(
    make_session: SessionMaker | None,
    /,
    *,
    files: tuple[Path, ...],
    engines: tuple[str, ...],
    kernels: tuple[str, ...],
    names: tuple[str, ...],
    jobs: int | None,
    ray: str | None,
    shard: Shard | None,
    times: Mapping[str, float],
    trace: bool,
    seed: int,
    bundle_dir: Path,
    no_bundles: bool,
    keep: bool,
    hold: bool,
    report: Path | None,
    verbose: bool,
    quiet: bool,
    output: str,
    color: str,
    **of_engine: Any,
) -> ExitCode:
    """Run the scenarios in FILE… on a real kernel and judge every probe.

    A directory means every *.lab.yaml below it. `pytest FILE…` is the same run, with a test for each probe. A file with
    mistakes keeps no other from running; the exit code is then 2.

    Example: proxylab run scenarios --probe 'ClusterIP from a pod spreads connections evenly over all endpoints'
    """
    begun = RunStart.now(seed, str(shard or ""))
    written, refused = _load(in_shard(expand(files), shard, times), engines[0])
    if not refused and not _runs(written, {engine: version_of(engine) for engine in engines}, kernels, names):
        return _nothing_chosen(written, names)
    choices = choices_of(engines, () if ray else kernels, **of_engine)
    runs = _runs(written, {engine: choice.version for engine, choice in choices.items()}, kernels, names)
    total, is_document = len(runs) + len(refused), output == "json"
    progress = Progress(total, document=is_document, verbosity=verbose - quiet, color=color, paint=paint)
    store = None if no_bundles else BundleStore(bundle_dir)
    begin = partial(_opened, make_session or Session, choices, seed, keep=keep, hold=hold, trace=trace, store=store)
    settings = NodeSettings(choices, sorted({run.kernel for run in runs}), seed, trace, bundles=store is not None)
    here = _on_this_machine(runs, begin, jobs, progress)
    with _on_cluster(ray, runs, settings, jobs, store, progress) if ray else here as found:
        results = [progress.over(result) for result in chain(refused, found)]
        progress.end(results, begun, traces=trace)
        _write(report, results, begun, progress)  # before the end of the block, which may raise
    return exit_code(results)


def _load(files: Iterable[Path], engine: str) -> tuple[list[Scenario], list[ScenarioResult]]:
    """The scenarios, and a result for each file with mistakes. Raises ``ScenarioError`` if no file is without."""
    loaded = load_each(files)
    written = [each for each in loaded.values() if isinstance(each, Scenario)]
    refused = {str(file): each for file, each in loaded.items() if isinstance(each, ScenarioError)}
    if refused and not written:
        raise ScenarioError([problem for error in refused.values() for problem in error.problems])
    return written, [
        ScenarioResult(file=file, name=file, engine=engine, fault=Fault(error.exit_code, str(error)))
        for file, error in refused.items()
    ]


def _runs(
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
        for case in cases(scenario, mode_of(engine), version)
    )
    runs = [
        Run(engine, kernel, case, [each for each in case.judged if _is_called(each, case, names)])
        for engine, kernel, case in known
    ]
    return [each for each in runs if each.chosen]


def _hold(lab: OpenLab, verdict: ProbeVerdict | StepVerdict) -> None:
    """Explain a verdict, and open a shell in the sender of its probe, or in a node."""
    where = verdict.probe.source.name if isinstance(verdict, ProbeVerdict) else lab.scenario.nodes[0].name
    click.echo("\n".join(["", *explain(verdict), "", f"a shell in {where}; exit it to go on", ""]), err=True)
    run_shell(lab.connection, where)


@contextmanager
def _opened(
    make_session: SessionMaker,
    choices: Mapping[str, EngineChoice],
    seed: int,
    *,
    keep: bool,
    hold: bool,
    trace: bool,
    store: BundleStore | None,
) -> Iterator[ScenarioRuns]:
    """What runs scenarios, each engine's in one session; the end of the block closes them."""
    kept = KeptLabs() if keep else None
    given = seed, kept.control_socket if kept else None
    with ExitStack() as stack:
        sessions = OpenLabs(lambda name: stack.enter_context(make_session(choices[name], *given)))
        yield ScenarioRuns(sessions.session, trace=trace, store=store, kept_labs=kept, hold=_hold if hold else None)


@contextmanager
def _on_this_machine(
    runs: Sequence[Run],
    begin: Callable[[], AbstractContextManager[ScenarioRuns]],
    jobs: int | None,
    progress: Progress,
) -> Iterator[Iterator[ScenarioResult]]:
    """The results of the runs, in their order; the labs close at the end of the block. Raises what is left of them."""

    @contextmanager
    def work() -> Iterator[Work[Run, ScenarioResult]]:
        with begin() as scenario_runs:
            yield scenario_runs.result

    number = min(jobs or 2 * len(os.sched_getaffinity(0)), MOST_JOBS, len(runs))  # a worker waits half of its time
    if number == 1:
        with work() as result:
            yield (result(each, progress.at, progress.note) for each in runs)
        return
    with Workers(
        work,
        runs,
        number,
        order=_order(runs),
        kind=lambda run: run.engine_on_kernel,
        lost=ended_early,
        at=progress.at,
        note=progress.note,
    ) as workers:
        yield workers.results()


@contextmanager
def _on_cluster(
    address: str,
    runs: Sequence[Run],
    settings: NodeSettings,
    number: int | None,
    store: BundleStore | None,
    progress: Progress,
) -> Iterator[Iterator[ScenarioResult]]:
    """The same from the nodes of a Ray cluster."""
    with RayWorkers(
        address,
        runs,
        settings,
        order=_order(runs),
        number=number,
        store=store,
        at=progress.at,
        note=progress.note,
    ) as workers:
        yield workers.results()


def _order(runs: Sequence[Run]) -> list[int]:
    """In which order runs start: those that wait for timeouts first, for started last they would run alone."""
    return sorted(range(len(runs)), key=lambda number: "waits" not in runs[number].scenario.tags)


def _write(file: Path | None, results: Sequence[ScenarioResult], begun: RunStart, progress: Progress) -> None:
    """Write the run as a page if ``--report`` is given."""
    if file is None:
        return
    entries = [entry for result in results for entry in entries_of(result)]
    progress.note(write_page(file, entries, begun) or f"report: {file}")


def paint(word: str, judgement: Judgement) -> str:
    """A word in the colour of its judgement."""
    return click.style(word, fg=_COLOURS[judgement], bold=judgement is not Judgement.PASS)


def _is_called(judged: Probe | Step, scenario: Scenario, names: Sequence[str]) -> bool:
    """Whether one of the names, if there are any, is its name in the file, that with its case, or without its step."""
    if not names:
        return True
    whole = scenario.case.words(judged.name)
    in_step = isinstance(judged, Probe) and scenario.steps_before(judged) > 0
    return any(name in (judged.name, whole) or (in_step and whole.endswith(f": {name}")) for name in names)


def _nothing_chosen(scenarios: Sequence[Scenario], names: Sequence[str]) -> ExitCode:
    """Say on standard error why nothing runs."""
    if not scenarios:
        why = "found no *.lab.yaml"
    elif not names:
        why = f"{', '.join(each.file for each in scenarios)}: no probe or step has an expectation"
    else:
        known = "\n".join(dict.fromkeys(f"  {each.name}" for scenario in scenarios for each in scenario.judged))
        why = f"no probe is named {' or '.join(map(repr, names))}; there are\n{known}"
    click.echo(f"nothing to run: {why}", err=True)
    return ExitCode.NOTHING_SELECTED
