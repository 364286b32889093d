"""``proxylab judge``: recorded probes, judged again from their evidence.

Owns: the verb's options, and which bundles its arguments mean.
Must not: run anything; a bundle from somebody's CI is judged on a laptop.
"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import click

from lab.cli.color import COLOR, wants_color
from lab.errors import ExitCode
from lab.report import exit_code, run_lines
from lab.report.bundle import CASE, PLAN, Recorded, read_case, read_plan
from lab.verdict.judge import judge
from lab.verdict.model import ProbeVerdict, ScenarioResult

__all__ = ["command"]


@click.command("judge", short_help="Judge recorded probes again, from their evidence alone.")
@click.argument("bundles", nargs=-1, required=True, metavar="BUNDLE…", type=click.Path(path_type=Path, exists=True))
@click.option("-v", "--verbose", is_flag=True, help="Name every probe and what was seen of it.")
@click.option("--trace", is_flag=True, help="Show the way of each packet that was traced.")
@COLOR
def command(*, bundles: tuple[Path, ...], verbose: bool, trace: bool, color: str) -> ExitCode:
    """Judge the probes in BUNDLE… again, from their evidence alone.

    A directory stands for every bundle below it. `proxylab run` and pytest record them.

    Example: proxylab judge .proxylab/bundles
    """
    cases = [(file, read_case(str(file), file.read_bytes())) for file in _cases(bundles)]
    if not cases:
        click.echo(f"nothing to judge: no {CASE} there", err=True)
        return ExitCode.NOTHING_SELECTED
    results = []
    for file, recorded in cases:
        verdict = judge(recorded.probe, recorded.errand, recorded.source, recorded.evidence)
        _compare(file, recorded, verdict)
        results.append(_result(recorded, _complete(file, recorded, verdict)))
    lines = run_lines(results, verbosity=int(verbose), traces=trace)
    click.echo("\n".join(lines), color=wants_color(sys.stdout, color))
    return exit_code(results)


def _cases(bundles: Iterable[Path]) -> Iterator[Path]:
    for path in bundles:
        if path.is_dir():
            yield from sorted(path.rglob(CASE))
        else:
            yield path


def _complete(file: Path, recorded: Recorded, verdict: ProbeVerdict) -> ProbeVerdict:
    """The verdict with all that its explanation may draw on."""
    plan = file.with_name(PLAN)
    return replace(
        verdict,
        traced=recorded.traced,
        plan=read_plan(str(plan), plan.read_bytes()) if plan.is_file() else None,
        options=recorded.options,
        bundle=str(file.parent),
    )


def _compare(file: Path, recorded: Recorded, verdict: ProbeVerdict) -> None:
    """Tell of verdicts that are no longer what the run said: the judge has changed since."""
    before = {each.expectation: each.judgement for each in recorded.verdicts}
    for each in verdict.verdicts:
        then = before.get(each.expectation)
        if then is not each.judgement:
            click.echo(f"{file}: {each.expectation}: the run said {then or 'nothing'}, now {each.judgement}", err=True)


def _result(recorded: Recorded, verdict: ProbeVerdict) -> ScenarioResult:
    return ScenarioResult(
        file=recorded.probe.position.file,
        name=recorded.probe.name,
        engine=recorded.circumstances.engine,
        probes=(verdict,),
        seconds=recorded.evidence.seconds,
    )
