"""``proxylab graph``: the wire of a scenario as a picture, and the way of a probe on it.

Owns: the verb's options, and what its argument means.
Must not: draw (``proxylab.report.drawing`` does), or know the way (``proxylab.report.forecast`` and ``paths`` do).
"""

from pathlib import Path

import click

from proxylab.cli.case import CASE, one_case
from proxylab.plan.assembly import assemble, lay_out
from proxylab.plan.model import Plan
from proxylab.report.bundle import CASE as RECORDED
from proxylab.report.bundle import PLAN, read_case, read_plan
from proxylab.report.drawing import mermaid_lines, text_lines
from proxylab.report.forecast import planned_path
from proxylab.report.paths import Path as Way
from proxylab.report.paths import seen_path
from proxylab.report.svg import svg
from proxylab.scenario.model import Probe, Scenario
from proxylab.verdict.case import open_case

__all__ = ["command"]


@click.command("graph", short_help="Draw the wire of a scenario, and the way of a probe, as text, Mermaid or SVG.")
@click.argument("file", metavar="FILE", type=click.Path(exists=True, path_type=Path))
@CASE
@click.option("--probe", "name", metavar="NAME", help="Draw the way of this probe, too, as the plan implies it.")
@click.option("-o", "--output", type=click.Choice(["text", "mermaid", "svg"]), default="text", show_default=True)
def command(*, file: Path, case_id: str | None, name: str | None, output: str) -> None:
    """Draw the segments, nodes, pods and hosts of the scenario FILE.

    With --probe also its way: from the sender to every endpoint that it may be sent to, with the source that a
    masquerade would give. FILE may be a bundle of evidence: then the way of its packet is drawn as it was seen.

    Example: proxylab graph scenarios/clusterip/from-a-pod.lab.yaml
    """
    recorded = file / RECORDED if file.is_dir() else file
    plan, path = (
        _recorded(recorded) if recorded.name == RECORDED and recorded.is_file() else _planned(file, case_id, name)
    )
    match output:
        case "svg":
            click.echo(svg(plan, path))
        case "mermaid":
            click.echo("\n".join(mermaid_lines(plan, path)))
        case _:
            click.echo("\n".join(text_lines(plan, path)))


def _planned(file: Path, case_id: str | None, name: str | None) -> tuple[Plan, Way | None]:
    """A scenario's wire, and the way of its probe as planned."""
    if file.is_dir():
        raise click.UsageError(f"FILE: {file} is neither a scenario nor a bundle of evidence; name one of the two")
    scenario = one_case(file, case_id)
    if name is None:
        return lay_out(scenario).plan, None
    assembly = assemble(scenario)
    return assembly.plan, planned_path(assembly, _named(scenario, name))


def _named(scenario: Scenario, name: str) -> Probe:
    """The probe of that name, with or without its case."""
    words = scenario.case.words
    found = next((each for each in scenario.all_probes if name in (each.name, words(each.name))), None)
    if found is None:
        known = "\n".join(f"  {each.name}" for each in scenario.all_probes)
        raise click.UsageError(f"--probe: no probe is named {name!r}; there are\n{known}")
    return found


def _recorded(file: Path) -> tuple[Plan, Way | None]:
    """The wire of a lab as it was found, and the way of a packet as it was seen: one that shows what went wrong."""
    recorded = read_case(str(file), file.read_bytes())
    plan = file.with_name(PLAN)
    if not plan.is_file():
        raise click.UsageError(
            f"FILE: {plan} is missing, without which there is nothing to draw on; name a whole bundle"
        )
    shown = next((each.example for each in recorded.verdicts if each.example is not None), 0)
    case = open_case(recorded.probe, recorded.resolved, recorded.evidence)
    return read_plan(str(plan), plan.read_bytes()), seen_path(case, shown)
