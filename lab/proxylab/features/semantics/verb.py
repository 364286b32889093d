"""``proxylab semantics``: what Kubernetes promises for Services, and which probes show it."""

from pathlib import Path
from typing import Annotated

import click
from click.shell_completion import CompletionItem

from proxylab.cli.catalogue import catalogue_files, recorded_mutants
from proxylab.cli.options import argument, option, takes
from proxylab.cli.output_paths import OutputFile
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Output, terminal_width
from proxylab.client.output_files import write_whole
from proxylab.engines.engine_names import EMBEDDED, version_of
from proxylab.errors import ExitCode
from proxylab.evidence.words import amount
from proxylab.features.semantics.promise_coverage import Coverage, read_mutants, semantics, to_json, to_lines
from proxylab.features.semantics.semantics_page import semantics_page
from proxylab.scenario.load import load_scenario
from proxylab.scenario.promises import promises


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(each) for each in promises() if each.startswith(incomplete)]


@click.command("semantics", short_help="List Kubernetes' promises for Services, with their probes.")
@takes
def command(
    *,
    words: Annotated[tuple[str, ...], argument(nargs=-1, metavar="[WORD…]", shell_complete=_complete)],
    wanted: Annotated[
        tuple[str, ...],
        option(
            "--coverage",
            multiple=True,
            type=click.Choice([str(each) for each in Coverage]),
            help="Only promises that are proven, only named by a probe, or of none; repeat it for two of these.",
        ),
    ],
    output: Output,
    report: Annotated[
        Path | None,
        option(
            "--report",
            metavar="FILE",
            type=OutputFile(),
            help="Also write the table as one HTML file.",
        ),
    ],
) -> ExitCode:
    """List what Kubernetes promises for Services: each promise with its source and the probes that show it.

    A promise is proven if a probe of the catalogue names it in its own expectation (expect.proves) and turned red for a
    mutant of it. With WORD…, list only promises whose id has all these words.

    Example: proxylab semantics externalTrafficPolicy=Local drop
    """
    scenarios = {name: load_scenario(file) for name, file in catalogue_files().items()}
    rows = semantics(scenarios, read_mutants(recorded_mutants()), version_of(EMBEDDED[0]))
    named = tuple(row for row in rows if all(word in row.promise.id for word in words))
    rows = tuple(row for row in named if not wanted or row.coverage in wanted)
    if not rows:
        why = (
            f"none of {amount(len(named), 'promise')} has the coverage {' or '.join(wanted)}"
            if named
            else "no promise has all these words; leave out some, or all of them"
        )
        echo(why, err=True)
        return ExitCode.NOTHING_SELECTED
    if report is not None:
        write_whole(report, semantics_page(rows))
    echo(to_json(rows) if output == "json" else "\n".join(to_lines(rows, terminal_width())))
    return ExitCode.OK
