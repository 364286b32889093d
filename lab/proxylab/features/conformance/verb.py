"""The command line of ``proxylab conformance``: the catalogue on a proxy, as a table by theme."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import click
from click.shell_completion import CompletionItem

from proxylab.cli.catalogue import complete_themes_and_names, files_of
from proxylab.cli.engine_options import EnginesOptions, choices_of
from proxylab.cli.file_arguments import expand, load_all
from proxylab.cli.input_files import read_input
from proxylab.cli.options import Options, argument, option, takes
from proxylab.cli.output_paths import OutputFile
from proxylab.cli.progress import RunProgress
from proxylab.cli.scenario_results import Jobs, opened, results_of, runs_of
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Color, Output, paint, terminal_width
from proxylab.client.bundles import BundleStore
from proxylab.client.output_files import write_whole
from proxylab.client.report_page import RunStart
from proxylab.client.scenario_run import ScenarioRuns
from proxylab.client.session import Session, SessionMaker
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import ExitCode
from proxylab.features.conformance.conformance_files import badge, junit, markdown, page
from proxylab.features.conformance.conformance_table import (
    Conformance,
    conformance_of,
    read,
    together,
    united,
)
from proxylab.features.conformance.conformance_text import change_lines, conformance_lines
from proxylab.features.conformance.runs import digest_of, tested_proxy
from proxylab.report.exit_code import exit_code
from proxylab.scenario.model import Scenario

_BUNDLES: Final = Path(".proxylab/bundles")
_FORMS: Final = {".json": Conformance.to_json, ".xml": junit, ".html": page, ".md": markdown, ".svg": badge}
_REPORT: Final = click.Path(path_type=Path, exists=True, dir_okay=False)


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Themes and scenarios of the catalogue, for a shell."""
    return complete_themes_and_names(incomplete)


class ConformanceOptions(Options, frozen=True, kw_only=True):
    """What runs, what it is compared with, and in which forms the table is written."""

    names: Annotated[tuple[str, ...], argument(nargs=-1, metavar="[NAME]…", shell_complete=_complete)]
    proxies: EnginesOptions
    jobs: Jobs
    earlier: Annotated[
        tuple[Path, ...],
        option(
            "--from",
            metavar="FILE",
            multiple=True,
            type=_REPORT,
            help="Run nothing: take the JSON report of an earlier run; may be repeated, and gives its columns side by "
            "side, or as one where one proxy ran the catalogue in parts.",
        ),
    ]
    compare: Annotated[
        Path | None,
        option(
            "--compare",
            metavar="FILE",
            type=_REPORT,
            help="Print what differs from this JSON report: from its column of the same mode, of the same kernel and "
            "version if there is one, or else of the version before.",
        ),
    ]
    reports: Annotated[
        tuple[Path, ...],
        option(
            "--report",
            metavar="FILE",
            multiple=True,
            type=OutputFile(suffixes=_FORMS),
            help="Also write the table to FILE, in the form of its suffix: .json, .xml (JUnit), .html, .md, or .svg (a "
            "badge); may be repeated.",
        ),
    ]
    verbose: Annotated[bool, option("-v", "--verbose", is_flag=True, help="Name every item of a known difference.")]
    output: Output
    color: Color


@click.command("conformance", short_help="Run the catalogue on a proxy; print a table by theme.")
@takes
@click.pass_obj
def command(make_session: SessionMaker | None, /, *, options: ConformanceOptions) -> ExitCode:
    """Run the scenarios that come with proxylab on a proxy, and print how many of their probes and steps conform.

    NAME… are themes of the catalogue, such as nodeport, or scenarios, such as clusterip/from-a-pod; by default all.
    What `except` in a scenario says of the proxy's mode or version is a known difference, and conforms.

    The exit code is that of `run`; with --compare it is 1 only if an item fails now, and did not before.

    Example: proxylab conformance externalip --engine embedded/nftables --report externalip.json
    """
    if options.earlier and options.names:
        raise click.UsageError("--from runs nothing; leave out NAME…, or --from")
    before = _read(options.compare) if options.compare else None
    with ExitStack() as stack:  # its end may raise: report before that
        if options.earlier:
            table = united(together([_read(file) for file in options.earlier]))
            code = table.exit_code
        else:
            written = load_all(files_of(*options.names))
            choices = choices_of(options.proxies.engines, options.proxies.proxy, options.proxies.kernels)
            begin = partial(opened, make_session or Session, choices, 0, store=BundleStore(_BUNDLES))
            table, code = stack.enter_context(_run(written, choices, begin, options))
        if before is not None:
            compared = _compared(before, table)
            code = code if code in (ExitCode.INTERNAL, ExitCode.SCENARIO) else compared
        else:
            lines = conformance_lines(table, verbose=options.verbose, width=terminal_width())
            echo(table.to_json() if options.output == "json" else "\n".join(lines))
        for file in options.reports:
            write_whole(file, f"{_FORMS[file.suffix](table)}\n")
    return code


@contextmanager
def _run(
    written: Sequence[Scenario],
    choices: Mapping[str, EngineChoice],
    begin: Callable[[], AbstractContextManager[ScenarioRuns]],
    options: ConformanceOptions,
) -> Iterator[tuple[Conformance, ExitCode]]:
    """Run the scenarios on each engine and kernel; the labs close at the end of the block."""
    begun = f"{RunStart.now().at:%Y-%m-%d %H:%M} UTC"
    catalogue = digest_of(expand(files_of()))
    columns = {
        (engine, kernel): runs_of(written, {engine: choice.version}, (kernel,), ())
        for engine, choice in choices.items()
        for kernel in options.proxies.kernels
    }
    runs = [run for of_column in columns.values() for run in of_column]
    if not runs:
        raise click.UsageError(f"none of these scenarios is for {', '.join(choices)}; name others")
    progress = RunProgress(len(runs), document=True, verbosity=0, color=options.color, paint=paint)
    with results_of(runs, begin, options.jobs, progress) as found:
        results = []
        for result in found:
            progress.over(result)
            results.append(result)
        left = iter(results)
        tables = [
            conformance_of(
                tested_proxy(
                    choices[engine],
                    kernel,
                    scenarios=len({run.scenario.file for run in of_column}),
                    catalogue=catalogue,
                    begun=begun,
                ),
                [*islice(left, len(of_column))],
            )
            for (engine, kernel), of_column in columns.items()
        ]
        yield together(tables), exit_code(results)


def _read(file: Path) -> Conformance:
    try:
        return read(read_input(file, "a file that `conformance --report` wrote"))
    except ValueError as error:
        raise click.UsageError(f"{file}: {error}; name a file that `conformance --report` wrote") from None


def _compared(before: Conformance, after: Conformance) -> ExitCode:
    """Print what differs, for each column that the earlier report has, too."""
    worse = False
    for column, subject in enumerate(after.columns):
        other = before.like(subject)
        if other is None:
            modes = ", ".join(dict.fromkeys(each.mode for each in before.columns))
            raise click.UsageError(f"--compare: the report has no mode {subject.mode}, only {modes}; name another")
        pair, now = together([before, after]), len(before.columns) + column
        worse = worse or any(each.is_worse for each in pair.changes(other, now))
        echo("\n".join([*([""] if column else []), *change_lines(pair, other, now, terminal_width())]))
    return ExitCode.FAILED if worse else ExitCode.OK
