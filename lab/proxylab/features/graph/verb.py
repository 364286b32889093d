"""``proxylab graph``: draw a scenario's network and the path of a probe."""

from pathlib import Path
from typing import Annotated

import click

from proxylab.cli.case_option import CaseId, choose_case
from proxylab.cli.options import argument, option, takes
from proxylab.cli.standard_streams import echo
from proxylab.features.graph.drawing import mermaid_lines, text_lines
from proxylab.features.graph.paths import Path as PacketPath
from proxylab.features.graph.paths import seen_path
from proxylab.features.graph.planned_path import planned_path
from proxylab.features.graph.svg import svg
from proxylab.plan.assembly import assemble, lay_out
from proxylab.plan.model import Plan
from proxylab.report.bundle import CASE as RECORDED
from proxylab.report.bundle import PLAN, read_case, read_plan
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.verdict.case import Case


@click.command("graph", short_help="Draw a scenario's network as text, Mermaid or SVG.")
@takes
def command(
    *,
    file: Annotated[Path, argument(metavar="FILE", type=click.Path(exists=True, path_type=Path))],
    case_id: CaseId,
    name: Annotated[str | None, option("--probe", metavar="NAME", help="Draw this probe's planned path, too.")],
    output: Annotated[
        str,
        option("-o", "--output", type=click.Choice(["text", "mermaid", "svg"]), default="text", show_default=True),
    ],
) -> None:
    """Draw the segments, nodes, pods and hosts of the scenario FILE.

    With --probe, also draw the paths from the sender to every possible endpoint, with the source address that
    masquerading would set. FILE may be a bundle of evidence: then the drawing shows the path that was captured.

    Example: proxylab graph scenarios/clusterip/from-a-pod.lab.yaml
    """
    recorded = file / RECORDED if file.is_dir() else file
    plan, path = (
        _recorded(recorded) if recorded.name == RECORDED and recorded.is_file() else _planned(file, case_id, name)
    )
    match output:
        case "svg":
            echo(svg(plan, path))
        case "mermaid":
            echo("\n".join(mermaid_lines(plan, path)))
        case _:
            echo("\n".join(text_lines(plan, path)))


def _planned(file: Path, case_id: str | None, name: str | None) -> tuple[Plan, PacketPath | None]:
    """A scenario's plan, and the planned path of its probe."""
    if file.is_dir():
        raise click.UsageError(f"FILE: {file} is neither a scenario nor a bundle of evidence; name one of the two")
    scenario = choose_case(file, case_id)
    if name is None:
        return lay_out(scenario).plan, None
    assembly = assemble(scenario)
    probe = _probe_named(scenario, name)
    return assembly.plan_after(scenario.steps_before(probe)), planned_path(assembly, probe)


def _probe_named(scenario: Scenario, name: str) -> Probe:
    """The probe with this name, with or without its case."""
    words = scenario.case.words
    found = next((each for each in scenario.all_probes if name in (each.name, words(each.name))), None)
    if found is None:
        known = "\n".join(f"  {each.name}" for each in scenario.all_probes)
        raise click.UsageError(f"--probe: no probe is named {name!r}; there are\n{known}")
    return found


def _recorded(file: Path) -> tuple[Plan, PacketPath | None]:
    """A lab's network as it was built, and the captured path of a packet: one that shows the failure, if any."""
    recorded = read_case(str(file), file.read_bytes())
    plan = file.with_name(PLAN)
    if not plan.is_file():
        raise click.UsageError(f"FILE: {plan} is missing, which describes the network; name a complete bundle")
    shown = next((each.example for each in recorded.verdicts if each.example is not None), 0)
    case = Case(recorded.probe, recorded.resolved, recorded.evidence)
    return read_plan(str(plan), plan.read_bytes()), seen_path(case, shown)
