"""``proxylab run``: scenarios become labs, probes and verdicts.

Owns: the verb's options, the choice of probes, and the order in which results are shown.
Must not: judge, or know how a lab is made; ``lab.session`` does both for pytest too.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from lab.bundles import Shelf
from lab.cli.color import COLOR, wants_color
from lab.cli.engine import choice_of, engine_options
from lab.cli.files import FILES, load_all
from lab.engines.names import mode_of, version_of
from lab.errors import CapabilityError, ExitCode, LabError
from lab.keeping import Keeping
from lab.report import exit_code, run_lines, to_json
from lab.scenario.cases import cases
from lab.scenario.model import Probe, Scenario
from lab.session import OpenLab, Session
from lab.verdict.model import UNRESOLVED, Fault, Judgement, ProbeVerdict, ScenarioResult, Skip

__all__ = ["COLOURS", "command"]

SessionMaker = Callable[..., Session]

COLOURS: Final = {
    Judgement.PASS: "green",
    Judgement.FAIL: "red",
    Judgement.INCONCLUSIVE: "yellow",
    Judgement.SKIP: "cyan",
}


@click.command("run", short_help="Run scenarios on this machine's kernel and judge every probe.")
@FILES
@engine_options
@click.option("--probe", "names", metavar="NAME", multiple=True, help="Only probes of this name; may be repeated.")
@click.option("--trace", is_flag=True, help="Send one more packet for each probe and tell its way, rule by rule.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Orders source ports and payloads; the same seed sends the same packets.",
)
@click.option(
    "--bundle-dir",
    metavar="DIRECTORY",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".proxylab/bundles"),
    show_default=True,
    help="Where the evidence of each probe that did not pass is kept; `proxylab judge` reads it.",
)
@click.option("--no-bundles", is_flag=True, help="Keep no evidence.")
@click.option("--keep", is_flag=True, help="Let the lab of a probe that did not pass stay; `proxylab ps` lists it.")
@click.option("-v", "--verbose", is_flag=True, help="Name every probe and what was seen of it.")
@click.option("-q", "--quiet", is_flag=True, help="One line for each probe that did not pass.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@COLOR
@click.pass_obj
def command(
    make_session: SessionMaker | None,
    /,
    *,
    files: tuple[Path, ...],
    engine: str,
    names: tuple[str, ...],
    trace: bool,
    seed: int,
    bundle_dir: Path,
    no_bundles: bool,
    keep: bool,
    verbose: bool,
    quiet: bool,
    output: str,
    color: str,
    **of_engine: Any,
) -> ExitCode:
    """Run the scenarios in FILE… on this machine's kernel and judge every probe.

    A directory stands for every *.lab.yaml below it. `pytest FILE…` is the same run, with an item for each probe.

    Example: proxylab run scenarios --probe 'every backend gets its share'
    """
    scenarios = [case for scenario in load_all(files) for case in cases(scenario, mode_of(engine), version_of(engine))]
    chosen = list(_choose(scenarios, names))
    if not chosen:
        click.echo(_nothing_chosen(scenarios, names), err=True)
        return ExitCode.NOTHING_SELECTED
    results = []
    shelf = None if no_bundles else Shelf(bundle_dir)
    keeping = Keeping() if keep else None
    door = keeping.door if keeping else None
    with (make_session or Session)(choice_of(engine, **of_engine), seed, door) as session:
        for scenario, probes in chosen:
            _tell(scenario, probes)
            results.append(_run(session, engine, scenario, probes, trace=trace, shelf=shelf, keeping=keeping))
        # Before the session is closed, which may find something left: no reason to keep what was judged to oneself.
        if output == "json":
            click.echo(to_json(results))
        else:
            lines = run_lines(results, verbosity=verbose - quiet, traces=trace, paint=_paint)
            click.echo("\n".join(lines), color=wants_color(sys.stdout, color))
    return exit_code(results)


def _tell(scenario: Scenario, probes: Sequence[Probe]) -> None:
    """Progress, for whoever waits."""
    click.echo(f"{scenario.file}: {len(probes)} of {len(scenario.all_probes)} probes", err=True)
    for note in scenario.notes:
        click.echo(f"{scenario.file}: {note}", err=True)


def _paint(word: str, judgement: Judgement) -> str:
    return click.style(word, fg=COLOURS[judgement], bold=judgement is not Judgement.PASS)


def _choose(scenarios: Iterable[Scenario], names: Sequence[str]) -> Iterable[tuple[Scenario, tuple[Probe, ...]]]:
    """The scenarios that have probes of these names, with those probes; without names, everything."""
    for scenario in scenarios:
        probes = tuple(probe for probe in scenario.all_probes if not names or _is_called(probe, scenario, names))
        if probes:
            yield scenario, probes


def _is_called(probe: Probe, scenario: Scenario, names: Sequence[str]) -> bool:
    """Whether a probe has one of the names: as it stands in the file, with its step, or with its case too."""
    whole = probe.name.removesuffix(f"[{scenario.case.id}]")
    in_step = scenario.steps_before(probe) > 0
    return any(name in (probe.name, whole) or (in_step and whole.endswith(f": {name}")) for name in names)


def _nothing_chosen(scenarios: Sequence[Scenario], names: Sequence[str]) -> str:
    if not scenarios:
        return "nothing to run: no *.lab.yaml there"
    known = "\n".join(f"  {probe.name}" for scenario in scenarios for probe in scenario.all_probes)
    return f"nothing to run: no probe is named {' or '.join(map(repr, names))}; there are\n{known}"


def _run(
    session: Session,
    engine: str,
    scenario: Scenario,
    probes: Iterable[Probe],
    *,
    trace: bool,
    shelf: Shelf | None,
    keeping: Keeping | None,
) -> ScenarioResult:
    """One scenario from its first namespace to its last, whatever happens in it."""
    begin = time.monotonic()
    judged: list[ProbeVerdict] = []
    skipped, fault = None, None
    try:
        with ExitStack() as stack:
            lab: OpenLab | None = None
            for probe in probes:
                if lab is None or not lab.stands:
                    lab = stack.enter_context(closing(session.open(scenario)))
                    if lab.built.reused:
                        click.echo(f"{scenario.file}: on the wire of the lab before it, made as new", err=True)
                verdict = lab.probe(probe, trace=trace)
                if shelf is not None:
                    verdict = shelf.settle(verdict, engine, partial(lab.bundle, verdict), _warn)
                judged.append(verdict)
                if keeping is not None and verdict.overall in UNRESOLVED:
                    click.echo("\n".join([f"{probe.name}:", *keeping.keep(lab, probe)]), err=True)
    except CapabilityError as error:
        skipped = Skip(error.missing, error.cure)
    except LabError as error:
        fault = Fault(error.exit_code, str(error))
    return ScenarioResult(
        file=scenario.file,
        name=scenario.name,
        engine=engine,
        probes=tuple(judged),
        seconds=time.monotonic() - begin,
        skipped=skipped,
        fault=fault,
    )


def _warn(message: str) -> None:
    click.echo(message, err=True)
