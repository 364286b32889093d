"""``proxylab plan``: show a scenario's nodes, pods, addresses and devices. It builds nothing and needs no privilege."""

from typing import Annotated

import click

from proxylab.cli.case_option import CaseId, ScenarioFile, choose_case
from proxylab.cli.get import written
from proxylab.cli.options import option, takes
from proxylab.cli.standard_streams import echo
from proxylab.plan.assembly import lay_out
from proxylab.plan.print import plan_lines
from proxylab.report.plan_overview import overview


@click.command("plan", short_help="Show a scenario's nodes, pods, addresses and devices.")
@takes
def command(
    *,
    file: ScenarioFile,
    case_id: CaseId,
    output: Annotated[
        str, option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
    ],
    verbose: Annotated[
        bool,
        option(
            "-v",
            "--verbose",
            is_flag=True,
            help="Also list every link, address, route and neighbour, as comments of the YAML.",
        ),
    ],
) -> None:
    """Show the lab that FILE describes, with every allocated address and every default. No lab is built.

    For each node, the output lists the source address that masquerading sets, by output device.

    Example: proxylab plan scenarios/clusterip/from-a-pod.lab.yaml
    """
    layout = lay_out(choose_case(file, case_id))
    echo(written(overview(layout), output, sort_keys=False), nl=False)
    if verbose and output == "yaml":
        echo("\n".join(f"# {line}".rstrip() for line in plan_lines(layout.plan)))
