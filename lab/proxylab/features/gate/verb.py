"""The command line of ``proxylab gate``: a kubernetes checkout, or a binary, against the release before it."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import click
from msgspec.structs import replace

from proxylab.binaries.checkout import is_checkout
from proxylab.binaries.source_state import changes_of
from proxylab.cli.catalogue import files_of, released_results
from proxylab.cli.engine_options import ProxyOptions, choice_of
from proxylab.cli.file_arguments import expand, load_all
from proxylab.cli.options import Options, argument, option, takes
from proxylab.cli.output_paths import OutputFolder
from proxylab.cli.progress import RunProgress
from proxylab.cli.scenario_results import Jobs, opened, results_of, runs_of
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Color, paint, terminal_width
from proxylab.client.bundles import BundleStore
from proxylab.client.output_files import write_whole
from proxylab.client.report_page import RunStart, write_page
from proxylab.client.scenario_run import MORE_TIME, Run
from proxylab.client.session import Session, SessionMaker
from proxylab.engines.engine_names import mode_of
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import ExitCode
from proxylab.features.conformance.conformance_files import junit, page
from proxylab.features.conformance.conformance_table import (
    Conformance,
    conformance_of,
    read,
    together,
)
from proxylab.features.conformance.runs import digest_of, tested_proxy
from proxylab.features.gate.gate_text import Gate, against_release, gate_lines
from proxylab.features.gate.touched import BOTH, Touched, touched
from proxylab.report.exit_code import exit_code
from proxylab.report.html import entries_of
from proxylab.report.unmet_rules import by_engine, coverage_document
from proxylab.scenario.words import HOST
from proxylab.timing import Deadline
from proxylab.verdict.model import UNRESOLVED, ScenarioResult

_CORE: Final = "core"
"""The tag of the scenarios that show each promise once."""


class GateOptions(Options, frozen=True, kw_only=True):
    """What goes through the gate, for how long, and where the results go."""

    source: Annotated[Path, argument(metavar="CHECKOUT|BINARY", type=click.Path(path_type=Path, exists=True))]
    minutes: Annotated[
        float,
        option(
            "--minutes",
            type=click.FloatRange(min=0, min_open=True),
            default=10.0,
            show_default=True,
            help="Begin no scenario after so many minutes of tests; the build does not count.",
        ),
    ]
    base: Annotated[
        str,
        option(
            "--base",
            metavar="COMMIT",
            default="",
            envvar="PULL_BASE_SHA",
            help="The commit that the change began at; by default the nearest of the last tag and the remotes' main "
            "branches. The change decides what runs beside the core.",
        ),
    ]
    artifacts: Annotated[
        Path,
        option(
            "--artifacts",
            metavar="FOLDER",
            type=OutputFolder(),
            default=Path(".proxylab/gate"),
            show_default=True,
            envvar="ARTIFACTS",
            help="Where to write JUnit XML, pages, the table as JSON, and the evidence of what did not pass.",
        ),
    ]
    privileged: Annotated[
        bool,
        option(
            "--privileged",
            is_flag=True,
            help="As of `proxylab run`: let proxies of a lab of root do all that root may.",
        ),
    ]
    jobs: Jobs
    color: Color


@click.command("gate", short_help="Run a kubernetes checkout against the release before it.")
@takes
@click.pass_obj
def command(make_session: SessionMaker | None, /, *, options: GateOptions) -> ExitCode:
    """Say whether a change of kube-proxy may go in.

    The gate builds kube-proxy from a CHECKOUT of kubernetes, or takes a BINARY. It runs the core of the catalogue in
    modes iptables and nftables, and then what the change touches. A probe or step turns red if it does not conform, and
    conforms on the release. Then the exit code is 1.

    The folder of --artifacts gets junit_proxylab.xml, proxylab.html, proxylab.json, rules.json with the rules that no
    probe met, bundles, and failures.html with the paths of packets where something did not conform.

    Example: proxylab gate ./kubernetes
    """
    begun = RunStart.now()
    try:
        changes = changes_of(options.source, options.base) if is_checkout(options.source) else None
    except ValueError as error:
        raise click.UsageError(f"--base: {error}") from None
    alters = touched(changes.files) if changes is not None else None
    engines = [f"kube-proxy/{mode}" for mode in BOTH]
    first = choice_of(engines[0], ProxyOptions(kube_proxy=str(options.source), privileged=options.privileged))
    choices = {engine: replace(first, name=engine) for engine in engines}  # one build for all
    ready = begun.seconds
    runs = _runs(choices, alters)
    store = BundleStore(options.artifacts / "bundles")
    progress = RunProgress(sum(map(len, runs)), document=True, verbosity=0, color=options.color, paint=paint)
    until = Deadline.after(60 * options.minutes)
    begin = partial(opened, make_session or Session, choices, 0, store=store, until=until, rule_coverage=True)
    with ExitStack() as stack:  # its end may raise: report before that
        results = []
        for part in filter(None, runs):
            found = stack.enter_context(results_of(part, begin, options.jobs, progress))
            results += [each if _is_late(each) else progress.over(each) for each in found]
        table = _table(choices, results, runs, f"{begun.at:%Y-%m-%d %H:%M} UTC")
        releases = read(released_results())
        gate = Gate(
            ran=str(choices[engines[0]].binary),
            against=tuple(against_release(table, column, releases) for column in range(len(table.columns))),
            touched=alters,
            base=changes.base if changes is not None else "",
            late=Counter(each.engine for each in results if _is_late(each)),
            minutes=options.minutes,
            ready=ready,
            tested=begun.seconds - ready,
            rules=by_engine(results),
        )
        _write(options.artifacts, table, results, begun)
        echo("\n".join(gate_lines(gate, terminal_width())))
        echo(f"results: {options.artifacts}", err=True)
        code = exit_code(results)
    if code in (ExitCode.INTERNAL, ExitCode.SCENARIO, ExitCode.CAPABILITY):
        return code
    return ExitCode.OK if gate.passes else ExitCode.FAILED


def _runs(choices: Mapping[str, EngineChoice], alters: Touched | None) -> tuple[list[Run], list[Run]]:
    """What runs first, and what runs then: the core of the catalogue, and what else the change touches."""
    versions = {engine: choice.version for engine, choice in choices.items()}
    every = runs_of(load_all(files_of()), versions, (HOST,), ())
    core = [each for each in every if _CORE in each.scenario.tags]
    if alters is None:
        return core, []
    others = [each for each in every if _CORE not in each.scenario.tags]
    return core, [
        each for each in others if alters.concerns(mode_of(each.engine), Path(each.scenario.file).parent.name)
    ]


def _is_late(result: ScenarioResult) -> bool:
    """Whether it would have begun after the gate's time."""
    return result.skipped is not None and result.skipped.missing == MORE_TIME


def _table(
    choices: Mapping[str, EngineChoice], results: Sequence[ScenarioResult], runs: Sequence[Sequence[Run]], begun: str
) -> Conformance:
    """The results as a table, a column for each mode."""
    catalogue = digest_of(expand(files_of()))
    tables = []
    for engine, choice in choices.items():
        scenarios = {run.scenario.file for part in runs for run in part if run.engine == engine}
        subject = tested_proxy(choice, HOST, scenarios=len(scenarios), catalogue=catalogue, begun=begun)
        tables.append(conformance_of(subject, [each for each in results if each.engine == engine]))
    return together(tables)


def _write(artifacts: Path, table: Conformance, results: Sequence[ScenarioResult], begun: RunStart) -> None:
    """Write the files of a gate. prow reads ``junit*.xml`` of its folder. Raises ``OutputError``."""
    write_whole(artifacts / "junit_proxylab.xml", f"{junit(table)}\n")
    write_whole(artifacts / "proxylab.html", f"{page(table)}\n")
    write_whole(artifacts / "proxylab.json", f"{table.to_json()}\n")
    met = {engine: coverage_document(found) for engine, found in by_engine(results).items()}
    write_whole(artifacts / "rules.json", f"{json.dumps(met, indent=2)}\n")
    red = [each for each in results if each.overall in UNRESOLVED or each.fault is not None]
    if red:
        write_page(artifacts / "failures.html", [entry for each in red for entry in entries_of(each)], begun)
