"""FILE with ``--case`` on the command line: one case of one scenario; and the seed of what its probes send."""

from pathlib import Path
from typing import Annotated

import click

from proxylab.cli.options import argument, option
from proxylab.cli.scenario_files import complete_scenarios
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import terminal_width
from proxylab.scenario.model import Scenario
from proxylab.scenario.versions import Version
from proxylab.text import wrapped

ScenarioFile = Annotated[
    Path,
    argument(type=click.Path(exists=True, dir_okay=False, path_type=Path), shell_complete=complete_scenarios),
]
CaseId = Annotated[str | None, option("--case", metavar="ID", help="The case of the matrix; by default the first.")]
Seed = Annotated[
    int,
    option(
        "--seed",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="The seed for source ports and payloads; the same seed sends the same packets.",
    ),
]


def choose_case(file: Path, case_id: str | None, mode: str = "iptables", version: Version | None = None) -> Scenario:
    """The case with this id, or the first; then the ids of all cases go to standard error.

    Raises:
        ScenarioError: the scenario has mistakes.
        click.UsageError: the scenario has no such case.
    """
    from proxylab.cli.file_arguments import load_all  # noqa: PLC0415 - a verb at a standing lab reads no file
    from proxylab.oracle.promised import promised_cases  # noqa: PLC0415 - see above

    (scenario,) = load_all((file,))
    found = promised_cases(scenario, mode, version)
    ids = [case.case.id for case in found]
    if case_id is not None and case_id not in ids:
        raise click.UsageError(f"--case: there is no {case_id!r}; there are {', '.join(filter(None, ids)) or 'none'}")
    if not found:
        raise click.UsageError(f"FILE: the scenario has no case for {mode}; choose an engine of another mode")
    if case_id is None and len(found) > 1:
        note = f"{scenario.file}: the first of {len(ids)} cases; --case may be {', '.join(ids)}"
        echo("\n".join(wrapped(note, rest="  ", width=terminal_width())), err=True)
    return found[0] if case_id is None else found[ids.index(case_id)]
