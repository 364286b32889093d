"""``proxylab run``: run scenarios and print their verdicts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated

import click

from proxylab.cli.case_option import Seed
from proxylab.cli.engine_options import EnginesOptions, choices_of
from proxylab.cli.file_arguments import Files, expand
from proxylab.cli.input_files import read_input
from proxylab.cli.options import Options, option, takes
from proxylab.cli.output_paths import OutputFile, OutputFolder
from proxylab.cli.progress import RunProgress
from proxylab.cli.scenario_results import (
    Jobs,
    loaded,
    opened,
    results_of,
    results_of_cluster,
    runs_of,
)
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Color, Output, Verbose, paint
from proxylab.client.bundles import BundleStore
from proxylab.client.ray_node import NodeSettings
from proxylab.client.report_page import RunStart, write_page
from proxylab.client.scenario_run import Run
from proxylab.client.session import Session, SessionMaker
from proxylab.engines.engine_names import version_of
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import ExitCode
from proxylab.report.exit_code import exit_code
from proxylab.report.html import entries_of
from proxylab.report.shards import Shard, recorded_seconds
from proxylab.scenario.model import Scenario
from proxylab.verdict.model import ScenarioResult


def _shard(ctx: click.Context, param: click.Parameter, value: str | None) -> Shard | None:
    try:
        return Shard.read(value) if value else None
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None


def _times(ctx: click.Context, param: click.Parameter, file: Path | None) -> Mapping[str, float]:
    try:
        return recorded_seconds(read_input(file, "a report of an earlier run, JSON or JUnit XML")) if file else {}
    except ValueError as error:
        raise click.BadParameter(f"{file}: {error}", ctx, param) from None


def _alone(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Refuse a flag that needs the terminal, with --jobs or --ray."""
    if value and ctx.params["jobs"] > 1:
        raise click.BadParameter("workers have no terminal; leave out --jobs", ctx, param)
    return _here(ctx, param, value)


def _here(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """Refuse a flag that needs the labs on this machine, with --ray."""
    if value and ctx.params["ray"]:
        raise click.BadParameter("the labs are on other machines; leave out --ray", ctx, param)
    return value


class RunOptions(Options, frozen=True, kw_only=True):
    """Which probes run, where, and what a run prints and leaves."""

    names: Annotated[
        tuple[str, ...],
        option(
            "--probe", metavar="NAME", multiple=True, help="Run only probes and steps with this name; may be repeated."
        ),
    ]
    jobs: Jobs
    ray: Annotated[
        str | None,
        option(
            "--ray",
            metavar="ADDRESS",
            is_eager=True,
            help="Run the scenarios on the nodes of the Ray cluster whose head is at ray://HOST:10001; needs "
            "proxylab[ray]. --jobs is then for each node, and by default auto.",
        ),
    ]
    shard: Annotated[
        Shard | None,
        option(
            "--shard",
            metavar="I/N",
            callback=_shard,
            help="Run only the Ith of N parts of the files; `proxylab merge` merges their reports.",
        ),
    ]
    times: Annotated[
        Mapping[str, float],
        option(
            "--times",
            metavar="FILE",
            callback=_times,
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="Balance the shards by the times in this report of an earlier run, JSON or JUnit XML.",
        ),
    ]
    trace: Annotated[
        bool, option("--trace", is_flag=True, help="Send one more packet for each probe and trace it, rule by rule.")
    ]
    rule_coverage: Annotated[
        bool,
        option(
            "--rule-coverage",
            is_flag=True,
            callback=_here,
            help="Also say which rules of the proxies, and elements of their sets and maps, no probe met.",
        ),
    ]
    seed: Seed
    bundle_dir: Annotated[
        Path,
        option(
            "--bundle-dir",
            metavar="DIRECTORY",
            type=OutputFolder(unless="no_bundles"),
            default=Path(".proxylab/bundles"),
            show_default=True,
            help="Where to save the evidence of each probe that did not pass; `proxylab judge` reads it.",
        ),
    ]
    no_bundles: Annotated[bool, option("--no-bundles", is_flag=True, is_eager=True, help="Save no evidence.")]
    keep: Annotated[
        bool,
        option(
            "--keep",
            is_flag=True,
            callback=_here,
            help="Keep the lab of a probe that did not pass running; `proxylab ps` lists it.",
        ),
    ]
    hold: Annotated[
        bool,
        option(
            "--hold-on-failure",
            is_flag=True,
            callback=_alone,
            help="After a probe that did not pass, explain it at once and open a shell in its sender; exit the shell "
            "to go on.",
        ),
    ]
    report: Annotated[
        Path | None,
        option(
            "--report",
            metavar="FILE",
            type=OutputFile(),
            help="Also write the results as one HTML file, with the path of every probe's packet.",
        ),
    ]
    verbose: Verbose
    quiet: Annotated[
        bool, option("-q", "--quiet", is_flag=True, help="Print one line for each probe that did not pass.")
    ]
    output: Output
    color: Color

    def in_shard(self, files: Iterable[Path]) -> list[Path]:
        """The files of the shard, in their order; all without one."""
        every = list(dict.fromkeys(files))
        if self.shard is None:
            return every
        chosen = self.shard.files([str(each) for each in every], self.times)
        return [each for each in every if str(each) in chosen]


@click.command("run", short_help="Run scenarios and judge every probe.")
@takes
@click.pass_obj
def command(
    make_session: SessionMaker | None, /, *, given: Files, proxies: EnginesOptions, options: RunOptions
) -> ExitCode:
    """Run the scenarios in FILE… on a real kernel and judge every probe.

    A directory means every *.lab.yaml below it. `pytest FILE…` is the same run, with a test for each probe. A file with
    mistakes keeps no other from running; the exit code is then 2.

    Example: proxylab run scenarios --probe 'ClusterIP from a pod spreads connections evenly over all endpoints'
    """
    begun = RunStart.now(options.seed, str(options.shard or ""))
    engines, kernels, names = proxies.engines, proxies.kernels, options.names
    written, refused = loaded(options.in_shard(expand(given.files)), engines[0])
    if not refused and not runs_of(written, {engine: version_of(engine) for engine in engines}, kernels, names):
        return _nothing_chosen(written, names)
    choices = choices_of(engines, proxies.proxy, () if options.ray else kernels)
    runs = runs_of(written, {engine: choice.version for engine, choice in choices.items()}, kernels, names)
    progress = RunProgress(
        len(runs) + len(refused),
        document=options.output == "json",
        verbosity=options.verbose - options.quiet,
        color=options.color,
        paint=paint,
    )
    with _results(options, make_session or Session, choices, runs, progress) as found:
        results = [progress.over(result) for result in chain(refused, found)]
        progress.end(results, begun, traces=options.trace)
        _write(options.report, results, begun, progress)  # before the end of the block, which may raise
    return exit_code(results)


def _results(
    options: RunOptions,
    make_session: SessionMaker,
    choices: Mapping[str, EngineChoice],
    runs: Sequence[Run],
    progress: RunProgress,
) -> AbstractContextManager[Iterator[ScenarioResult]]:
    """The results of the runs, from this machine or from a Ray cluster."""
    store = None if options.no_bundles else BundleStore(options.bundle_dir)
    seed, jobs, trace = options.seed, options.jobs, options.trace
    if options.ray:
        kernels = sorted({run.kernel for run in runs})
        settings = NodeSettings(choices, kernels, seed, trace, bundles=store is not None)
        return results_of_cluster(options.ray, runs, settings, jobs, store, progress)
    begin = partial(
        opened,
        make_session,
        choices,
        seed,
        keep=options.keep,
        hold=options.hold,
        trace=trace,
        store=store,
        rule_coverage=options.rule_coverage,
        keep_passed=options.trace or options.report is not None or options.verbose > options.quiet,
    )
    return results_of(runs, begin, 1 if options.hold else jobs, progress)


def _write(file: Path | None, results: Sequence[ScenarioResult], begun: RunStart, progress: RunProgress) -> None:
    """Write the run as a page if ``--report`` is given. Raises ``OutputError``."""
    if file is None:
        return
    entries = [entry for result in results for entry in entries_of(result)]
    write_page(file, entries, begun)
    progress.note(f"report: {file}")


def _nothing_chosen(scenarios: Sequence[Scenario], names: Sequence[str]) -> ExitCode:
    """Say on standard error why nothing runs."""
    if not scenarios:
        why = "found no *.lab.yaml"
    elif not names:
        why = f"{', '.join(each.file for each in scenarios)}: no probe or step has an expectation"
    else:
        known = "\n".join(dict.fromkeys(f"  {each.name}" for scenario in scenarios for each in scenario.judged))
        why = f"no probe is named {' or '.join(map(repr, names))}; there are\n{known}"
    echo(f"nothing to run: {why}", err=True)
    return ExitCode.NOTHING_SELECTED
