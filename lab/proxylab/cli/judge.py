"""``proxylab judge``: judge recorded probes and steps again from their evidence.

The verb runs nothing, so a laptop can judge a bundle from a CI system.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import click
from msgspec.structs import replace

from proxylab.cli.options import argument, option, takes
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Color, Verbose, paint, terminal_width, wants_color
from proxylab.errors import ExitCode, InternalError, ScenarioError
from proxylab.plan.model import Plan
from proxylab.report.bundle import CASE, PLAN, read_case, read_plan
from proxylab.report.exit_code import exit_code
from proxylab.report.run_text import run_lines
from proxylab.report.step_bundle import STEP, read_step
from proxylab.verdict.judge import judge, judge_step
from proxylab.verdict.model import Judgement, ScenarioResult, Verdict


@click.command("judge", short_help="Judge recorded probes and steps again.")
@takes
def command(
    *,
    bundles: Annotated[
        tuple[Path, ...],
        argument(nargs=-1, required=True, metavar="BUNDLE…", type=click.Path(path_type=Path, exists=True)),
    ],
    verbose: Verbose,
    trace: Annotated[bool, option("--trace", is_flag=True, help="Show the path of each traced packet.")],
    color: Color,
) -> ExitCode:
    """Judge the probes and steps in BUNDLE… again, from their evidence alone.

    A directory means every bundle below it. `proxylab run` and pytest record bundles.

    Example: proxylab judge .proxylab/bundles
    """
    files = list(_cases(bundles))
    if not files:
        echo(f"nothing to judge: found no {CASE} and no {STEP}", err=True)
        return ExitCode.NOTHING_SELECTED
    results = [_of_step(file) if file.name == STEP else _of_probe(file) for file in files]
    lines = run_lines(results, verbosity=int(verbose), traces=trace, paint=paint, width=terminal_width())
    echo("\n".join(lines), color=wants_color(sys.stdout, color))
    return exit_code(results)


def _cases(bundles: Iterable[Path]) -> Iterator[Path]:
    for path in bundles:
        if path.is_dir():
            yield from sorted((*path.rglob(CASE), *path.rglob(STEP)))
        else:
            yield path


def _of_probe(file: Path) -> ScenarioResult:
    recorded = read_case(str(file), file.read_bytes())
    with _whole(file):
        verdict = judge(recorded.probe, recorded.resolved, recorded.source, recorded.evidence)
    _compare(file, recorded.verdicts, verdict.verdicts)
    verdict = replace(
        verdict,
        traced=recorded.traced,
        service=recorded.service,
        plan=_plan(file),
        options=recorded.options,
        bundle=str(file.parent),
    )
    return ScenarioResult(
        file=recorded.probe.position.file,
        name=recorded.probe.name,
        engine=recorded.circumstances.engine,
        kernel=recorded.circumstances.chosen_kernel,
        release=recorded.circumstances.kernel,
        binary=recorded.circumstances.binary,
        probes=(verdict,),
        seconds=recorded.evidence.seconds,
    )


def _of_step(file: Path) -> ScenarioResult:
    recorded = read_step(str(file), file.read_bytes())
    evidence = recorded.evidence
    with _whole(file):
        verdict = judge_step(
            recorded.step,
            recorded.number,
            recorded.streams,
            recorded.sources,
            recorded.nodes,
            recorded.addresses,
            evidence,
            {each.expectation: each.reasons[0] for each in recorded.verdicts if each.judgement is Judgement.SKIP},
        )
    _compare(file, recorded.verdicts, verdict.verdicts)
    verdict = replace(verdict, plan=_plan(file), options=recorded.options, bundle=str(file.parent))
    return ScenarioResult(
        file=recorded.step.position.file,
        name=recorded.step.name,
        engine=recorded.circumstances.engine,
        kernel=recorded.circumstances.chosen_kernel,
        release=recorded.circumstances.kernel,
        binary=recorded.circumstances.binary,
        steps=(verdict,),
        seconds=(evidence.ended - evidence.began) / 1e9,
    )


@contextmanager
def _whole(file: Path) -> Iterator[None]:
    """What the judge misses in its evidence is missing in the file: the run that wrote it was judged."""
    try:
        yield
    except InternalError as error:
        missing = str(error).removesuffix("; please report this")
        raise ScenarioError(
            [f"{file}: its parts do not fit together: {missing}; judge the bundle as it was"]
        ) from error


def _plan(file: Path) -> Plan | None:
    """The plan of the bundle, which the explanation refers to."""
    plan = file.with_name(PLAN)
    return read_plan(str(plan), plan.read_bytes()) if plan.is_file() else None


def _compare(file: Path, recorded: Iterable[Verdict], judged: Iterable[Verdict]) -> None:
    """Print each verdict that differs from the recorded one: the judge's code has changed since."""
    before = {each.expectation: each.judgement for each in recorded}
    for each in judged:
        then = before.get(each.expectation)
        if then is not each.judgement:
            echo(f"{file}: {each.expectation}: the run said {then or 'nothing'}, now {each.judgement}", err=True)
