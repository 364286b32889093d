"""``proxylab graph``: the wire of a scenario as a picture.

Owns: the verb's options.
Must not: draw (``lab.report.drawing`` does).
"""

from pathlib import Path

import click

from lab.assembly import lay_out
from lab.cli.case import CASE, FILE, one_case
from lab.report.drawing import mermaid_lines, text_lines
from lab.report.svg import svg

__all__ = ["command"]


@click.command("graph", short_help="Draw the wire of a scenario as text, Mermaid or SVG.")
@FILE
@CASE
@click.option("-o", "--output", type=click.Choice(["text", "mermaid", "svg"]), default="text", show_default=True)
def command(*, file: Path, case_id: str | None, output: str) -> None:
    """Draw the segments, nodes, pods and hosts of the scenario FILE.

    Example: proxylab graph scenarios/clusterip/from-a-pod.lab.yaml
    """
    plan = lay_out(one_case(file, case_id)).plan
    match output:
        case "svg":
            click.echo(svg(plan))
        case "mermaid":
            click.echo("\n".join(mermaid_lines(plan)))
        case _:
            click.echo("\n".join(text_lines(plan)))
