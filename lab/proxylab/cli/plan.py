"""``proxylab plan``: what a scenario's lab would be made of.

Owns: the verb's options.
Must not: make anything, or import what a run needs.
"""

import json
from pathlib import Path

import click

from proxylab.cli.case import CASE, FILE, one_case
from proxylab.cli.width import terminal_width
from proxylab.plan.assembly import lay_out
from proxylab.plan.print import plan_lines
from proxylab.report.overview import overview, overview_lines

__all__ = ["command"]


@click.command("plan", short_help="Show what a scenario's lab would be made of, and make nothing.")
@FILE
@CASE
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Every link, address, route and neighbour of every namespace too.")
def command(*, file: Path, case_id: str | None, output: str, verbose: bool) -> None:
    """Show what the lab of the scenario FILE would be made of, with everything that is allocated and defaulted.

    For each node it says what source address masquerading gives, by the device that a packet leaves by.

    Example: proxylab plan scenarios/clusterip/from-a-pod.lab.yaml
    """
    layout = lay_out(one_case(file, case_id))
    document = overview(layout)
    if output == "json":
        click.echo(json.dumps(document, indent=2))
        return
    click.echo("\n".join(overview_lines(document, terminal_width())))
    if verbose:
        click.echo("\n".join(["", *plan_lines(layout.plan)]))
