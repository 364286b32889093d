"""``proxylab run``: run scenarios and print their verdicts.

``proxylab.client.session`` and ``proxylab.client.open_lab`` build the labs and run the probes, for pytest too.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct

from proxylab.cli.engine_options import choices_of, engines_options
from proxylab.cli.file_arguments import files_argument, load_each
from proxylab.cli.progress import Progress
from proxylab.cli.terminal import COLOR
from proxylab.client.bundles import BundleStore
from proxylab.client.control_sockets import ControlSocket
from proxylab.client.kept_labs import KeptLabs
from proxylab.client.known_failures import open_or_foresee
from proxylab.client.open_lab import OpenLab
from proxylab.client.report_page import RunStart, write_page
from proxylab.client.session import Session
from proxylab.engines.engine_names import mode_of, version_of
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError, ExitCode, LabError, ScenarioError
from proxylab.report.document import to_json
from proxylab.report.exit_code import exit_code
from proxylab.report.html import entries_of
from proxylab.report.run_text import closing_lines
from proxylab.scenario.cases import cases, kernel_of
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.steps import Step
from proxylab.scenario.versions import Version
from proxylab.verdict.model import (
    UNRESOLVED,
    Fault,
    Judgement,
    KnownFailure,
    ProbeVerdict,
    ScenarioResult,
    Skip,
    StepVerdict,
    on_kernel,
)

__all__ = ["command", "paint"]

SessionMaker = Callable[..., Session]

_COLOURS: Final = {
    Judgement.PASS: "green",
    Judgement.FAIL: "red",
    Judgement.INCONCLUSIVE: "yellow",
    Judgement.SKIP: "cyan",
}


@click.command("run", short_help="Run scenarios and judge every probe.")
@files_argument
@engines_options
@click.option(
    "--probe", "names", metavar="NAME", multiple=True, help="Run only probes and steps with this name; may be repeated."
)
@click.option("--trace", is_flag=True, help="Send one more packet for each probe and trace it, rule by rule.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The seed for source ports and payloads; the same seed sends the same packets.",
)
@click.option(
    "--bundle-dir",
    metavar="DIRECTORY",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".proxylab/bundles"),
    show_default=True,
    help="Where to save the evidence of each probe that did not pass; `proxylab judge` reads it.",
)
@click.option("--no-bundles", is_flag=True, help="Save no evidence.")
@click.option("--keep", is_flag=True, help="Keep the lab of a probe that did not pass running; `proxylab ps` lists it.")
@click.option(
    "--report",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Also write the results as one HTML file, with the path of every probe's packet.",
)
@click.option("-v", "--verbose", is_flag=True, help="List every probe with what the lab observed.")
@click.option("-q", "--quiet", is_flag=True, help="Print one line for each probe that did not pass.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
@COLOR
@click.pass_obj
def command(
    make_session: SessionMaker | None,
    /,
    *,
    files: tuple[Path, ...],
    engines: tuple[str, ...],
    kernels: tuple[str, ...],
    names: tuple[str, ...],
    trace: bool,
    seed: int,
    bundle_dir: Path,
    no_bundles: bool,
    keep: bool,
    report: Path | None,
    verbose: bool,
    quiet: bool,
    output: str,
    color: str,
    **of_engine: Any,
) -> ExitCode:
    """Run the scenarios in FILE… on a real kernel and judge every probe.

    A directory means every *.lab.yaml below it. `pytest FILE…` is the same run, with a test for each probe.
    A file with mistakes keeps no other from running; the exit code is then 2.

    Example: proxylab run scenarios --probe 'ClusterIP from a pod spreads connections evenly over all endpoints'
    """
    begun, (written, results) = RunStart.now(seed), _load(files, engines[0])
    runs = _runs(written, {engine: version_of(engine) for engine in engines}, kernels)
    if not results and not list(_choose(runs, names)):
        return _nothing_chosen([run.scenario for run in runs], names)
    choices = choices_of(engines, kernels, **of_engine)
    versions = {engine: choice.version for engine, choice in choices.items()}
    chosen = list(_choose(_runs(written, versions, kernels), names))
    verbosity = verbose - quiet
    total = len(chosen) + len(results)
    progress = Progress(total, document=output == "json", verbosity=verbosity, color=color, paint=paint)
    store, kept = None if no_bundles else BundleStore(bundle_dir), KeptLabs() if keep else None
    for result in results:
        progress.over(result)
    with ExitStack() as stack:
        opened = _opened(choices, make_session or Session, (seed, kept.control_socket if kept else None), stack)
        for run, probes in chosen:
            _announce(progress, run.scenario, probes)
            result = _run(opened(run.engine), run, probes, progress, trace=trace, bundle_store=store, kept_labs=kept)
            results.append(result)
            progress.over(result)
        # Print before the sessions close: closing may raise, and the verdicts are known.
        closing = partial(closing_lines, verbosity=verbosity, traces=trace, paint=paint, width=progress.width)
        progress.tell([to_json(results)] if output == "json" else closing(results))
        _write(report, results, begun, progress)
    return exit_code(results)


def _load(files: Iterable[Path], engine: str) -> tuple[list[Scenario], list[ScenarioResult]]:
    """The scenarios, and a result for each file with mistakes. Raises ``ScenarioError`` if no file is without."""
    loaded = load_each(files)
    written = [each for each in loaded.values() if isinstance(each, Scenario)]
    refused = {str(file): each for file, each in loaded.items() if isinstance(each, ScenarioError)}
    if refused and not written:
        raise ScenarioError([problem for error in refused.values() for problem in error.problems])
    return written, [
        ScenarioResult(file=file, name=file, engine=engine, fault=Fault(error.exit_code, str(error)))
        for file, error in refused.items()
    ]


def _opened(
    choices: Mapping[str, EngineChoice],
    make_session: SessionMaker,
    given: tuple[int, Callable[[], ControlSocket] | None],
    stack: ExitStack,
) -> Callable[[str], Session]:
    """A function that returns the session on an engine; it opens each on first use, and the stack closes it."""
    sessions: dict[str, Session] = {}

    def on(engine: str) -> Session:
        if engine not in sessions:
            sessions[engine] = stack.enter_context(make_session(choices[engine], *given))
        return sessions[engine]

    return on


class _Run(Struct, frozen=True):
    """One lab: a scenario, or a case of one, on an engine and a kernel."""

    engine: str
    kernel: str
    scenario: Scenario


def _runs(written: Iterable[Scenario], engines: Mapping[str, Version], kernels: Sequence[str]) -> list[_Run]:
    """Every case of every scenario on every engine and kernel; a case may name its kernel itself.

    `except` and the matrix depend on the engine's version.
    """
    return [
        _Run(engine, kernel_of(case, kernel), case)
        for scenario in written
        for engine, version in engines.items()
        for kernel in (kernels[:1] if scenario.matrix.kernel else kernels)
        for case in cases(scenario, mode_of(engine), version)
    ]


def _announce(progress: Progress, scenario: Scenario, chosen: Sequence[Probe | Step]) -> None:
    """Print the scenario's notes, and how many of its probes run."""
    progress.at(scenario.file)
    if len(chosen) < len(scenario.judged):
        what = "probes and steps" if len(scenario.judged) > len(scenario.all_probes) else "probes"
        progress.note(f"{scenario.file}: {len(chosen)} of {len(scenario.judged)} {what}")
    for note in scenario.notes:
        progress.note(f"{scenario.file}: {note}")


def _write(file: Path | None, results: Sequence[ScenarioResult], begun: RunStart, progress: Progress) -> None:
    """Write the run as a page if ``--report`` is given."""
    if file is None:
        return
    entries = [entry for result in results for entry in entries_of(result)]
    progress.note(write_page(file, entries, begun) or f"report: {file}")


def paint(word: str, judgement: Judgement) -> str:
    """A word in the colour of its judgement."""
    return click.style(word, fg=_COLOURS[judgement], bold=judgement is not Judgement.PASS)


def _choose(runs: Iterable[_Run], names: Sequence[str]) -> Iterable[tuple[_Run, tuple[Probe | Step, ...]]]:
    """Each run with its probes and steps of these names; without names, with all of them."""
    for run in runs:
        scenario = run.scenario
        chosen = tuple(each for each in scenario.judged if not names or _is_called(each, scenario, names))
        if chosen:
            yield run, chosen


def _is_called(judged: Probe | Step, scenario: Scenario, names: Sequence[str]) -> bool:
    """Whether one of the names is its name in the file, or that with its case, or that without its step."""
    whole = scenario.case.words(judged.name)
    in_step = isinstance(judged, Probe) and scenario.steps_before(judged) > 0
    return any(name in (judged.name, whole) or (in_step and whole.endswith(f": {name}")) for name in names)


def _nothing_chosen(scenarios: Sequence[Scenario], names: Sequence[str]) -> ExitCode:
    """Say on standard error why nothing runs."""
    if not scenarios:
        why = "found no *.lab.yaml"
    elif not names:
        why = f"{', '.join(each.file for each in scenarios)}: no probe or step has an expectation"
    else:
        known = "\n".join(dict.fromkeys(f"  {each.name}" for scenario in scenarios for each in scenario.judged))
        why = f"no probe is named {' or '.join(map(repr, names))}; there are\n{known}"
    click.echo(f"nothing to run: {why}", err=True)
    return ExitCode.NOTHING_SELECTED


def _run(
    session: Session,
    run: _Run,
    chosen: Iterable[Probe | Step],
    progress: Progress,
    *,
    trace: bool,
    bundle_store: BundleStore | None,
    kept_labs: KeptLabs | None,
) -> ScenarioResult:
    """Run one scenario; an error becomes a part of its result."""
    scenario = run.scenario
    begin = time.monotonic()
    verdicts: list[ProbeVerdict | StepVerdict] = []
    ended: dict[str, Any] = {}
    try:
        with ExitStack() as stack:
            lab: OpenLab | None = None
            for each in chosen:
                progress.at(f"{scenario.file} [{on_kernel(run.engine, run.kernel)}] {each.name}")
                if lab is None or not lab.is_open:
                    opened = open_or_foresee(partial(session.open, kernel=run.kernel), scenario)
                    if isinstance(opened, KnownFailure):
                        ended["foreseen"] = opened
                        break
                    lab = stack.enter_context(closing(opened))
                    ended["release"] = lab.built.kernel
                verdict: ProbeVerdict | StepVerdict
                verdict = lab.conclude(each) if isinstance(each, Step) else lab.probe(each, trace=trace)
                if bundle_store is not None:
                    where = on_kernel(run.engine, run.kernel)
                    verdict = bundle_store.settle(verdict, where, partial(lab.bundle, verdict), progress.note)
                verdicts.append(verdict)
                if kept_labs is not None and verdict.overall in UNRESOLVED:
                    probe = None if isinstance(each, Step) else each
                    progress.note("\n".join([f"{each.name}:", *kept_labs.keep(lab, probe)]))
    except CapabilityError as error:
        ended["skipped"] = Skip(error.missing, error.cure)
    except LabError as error:
        ended["fault"] = Fault(error.exit_code, str(error))
    return ScenarioResult(
        file=scenario.file,
        name=scenario.name,
        engine=run.engine,
        kernel=run.kernel,
        probes=tuple(each for each in verdicts if isinstance(each, ProbeVerdict)),
        steps=tuple(each for each in verdicts if isinstance(each, StepVerdict)),
        seconds=time.monotonic() - begin,
        case=scenario.case.id,
        tags=scenario.tags,
        description=scenario.description,
        **ended,
    )
