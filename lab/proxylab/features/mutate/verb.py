"""``proxylab mutate``: mutate an engine's rules, or what it is shown, and report which probe notices.

``proxylab.features.mutate.runs`` runs the mutants.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import click
from msgspec.structs import replace

from proxylab.cli.engine_options import EngineOptions
from proxylab.cli.file_arguments import FilesOrCatalogue, load_all
from proxylab.cli.options import option, takes
from proxylab.cli.output_paths import OutputFile
from proxylab.cli.scenario_results import Jobs, number_of_workers
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Output, terminal_width
from proxylab.client.session import Session, SessionMaker
from proxylab.client.tasks import Say
from proxylab.client.workers import Work, Workers
from proxylab.encoding import MisfitError, decode, encode
from proxylab.engines.engine_names import EMBEDDED, mode_of
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import ExitCode, LabError, OutputError
from proxylab.features.mutate.mutants import Baseline, Mutant, mutant_lines, mutants_to_json
from proxylab.features.mutate.runs import MutableCase, MutantRuns, mutants_of, object_mutants_of, ruled, with_objects
from proxylab.oracle.promised import promised_cases
from proxylab.scenario.cases import kernel_of
from proxylab.scenario.readable import why_unreadable
from proxylab.text import wrapped

Task = TypeVar("Task")
Result = TypeVar("Result")


@click.command("mutate", short_help="Change each rule or object, and report which probe notices.")
@takes
@click.pass_obj
def command(
    make_session: SessionMaker | None,
    /,
    *,
    given: FilesOrCatalogue,
    options: EngineOptions,
    jobs: Jobs,
    objects: Annotated[
        bool,
        option(
            "--objects",
            is_flag=True,
            help="Mutate the objects and the configuration that the proxies are shown, instead of their rules.",
        ),
    ],
    parts: Annotated[
        tuple[str, ...],
        option(
            "--rule",
            "--field",
            metavar="TEXT",
            multiple=True,
            help="Mutate only rules whose class, or fields whose name, has TEXT in it, such as KUBE-SEP; may be "
            "repeated.",
        ),
    ],
    state: Annotated[
        Path | None,
        option(
            "--state",
            metavar="FILE",
            type=OutputFile(),
            help="Keep what is found in FILE; a second call goes on from there.",
        ),
    ],
    output: Output,
) -> ExitCode:
    """Change each rule that the engine renders for FILE…, or for the whole catalogue, and report who notices.

    Rules that one function of the engine writes are one class. Of each class every match is loosened, and every target
    is changed, one at a time. Each mutant runs in the scenario that is most likely to notice it, then in others with
    such rules, until a probe or step fails. The report names it; and for a mutant that nothing noticed, the rule, and
    the probe that would.

    With --objects, which every engine takes, the proxies are shown an altered cluster or configuration, such as a list
    without its last element. The judge keeps the true one.

    The exit code is 1 if a mutant survives that is not proven to be equivalent.

    Example: proxylab mutate scenarios/clusterip/from-a-pod.lab.yaml --rule KUBE-SEP
    """
    engine = options.engine
    if engine not in EMBEDDED and not objects:
        some = f"--objects, or choose one of {', '.join(EMBEDDED)}"
        raise click.UsageError(f"--engine: {engine} has no mutants of rules; add {some}")
    choice = options.announced_choice()
    known = _State(state, engine)
    begin = partial(_opened, make_session or Session, choice, known)
    chosen = [
        with_objects(case) if objects else ruled(case, engine)
        for scenario in load_all(given.files)
        for case in promised_cases(scenario, mode_of(engine), choice.version)
        if case.judged and not case.failures and kernel_of(case, choice.kernel) == choice.kernel
    ]
    green = list(_green(chosen, begin, jobs, known))
    if not green:
        echo("nothing to mutate: no scenario passes without a mutation; see `proxylab run`", err=True)
        return ExitCode.NOTHING_SELECTED
    found = object_mutants_of(green, engine) if objects else mutants_of(green, engine)
    mutants = _chosen(found, parts, objects=objects)
    if not mutants:
        return ExitCode.NOTHING_SELECTED
    return _reported(_settled(mutants, green, begin, jobs, known), len({each.case.file for each in green}), output)


def _reported(mutants: Sequence[Mutant], scenarios: int, output: str) -> ExitCode:
    if output == "json":
        echo(mutants_to_json(mutants))
    else:
        echo("\n".join(mutant_lines(mutants, scenarios, terminal_width())))
    return ExitCode.FAILED if any(each.survives for each in mutants) else ExitCode.OK


def _chosen(mutants: Iterable[Mutant], parts: Sequence[str], *, objects: bool) -> list[Mutant]:
    """The mutants whose class has one of the parts in it; says so if there is none."""
    chosen = [each for each in mutants if not parts or any(part in each.rule_class for part in parts)]
    if not chosen:
        what = "field" if objects else "class of rules"
        option = "--field" if objects else "--rule"
        echo(f"nothing to mutate: no {what} has {' or '.join(parts)} in it; leave out {option}", err=True)
    return chosen


class _State:
    """What earlier calls have found, in lines of JSON; a new result is written at once."""

    def __init__(self, file: Path | None, engine: str) -> None:
        self._file = file
        self.baselines: dict[tuple[str, str], Baseline] = {}
        self.mutants: dict[tuple[str, str], Mutant] = {}
        try:
            known = file is not None and file.exists()
            if file is not None and known and (why := why_unreadable(file)):
                raise click.UsageError(f"--state: cannot read {file}: {why}; name another file")
            lines = file.read_bytes().splitlines() if file is not None and known else []
            found = [decode(line, Baseline | Mutant) for line in lines]
        except (MisfitError, OSError) as error:
            raise click.UsageError(f"--state: {file} is not of this verb: {error}; name another file") from None
        for each in found:
            self._add(each)
            if isinstance(each, Mutant) and each.engine != engine:
                raise click.UsageError(f"--state: {file} is of {each.engine}; name another file for {engine}")

    def _add(self, result: Baseline | Mutant) -> None:
        match result:
            case Baseline():
                self.baselines[result.file, result.case] = result
            case Mutant():
                self.mutants[result.rule_class, result.mutation] = result

    def keep(self, result: Baseline | Mutant) -> None:
        """Add a result, also to the file, whose last line stays whole. Raises ``OutputError``."""
        self._add(result)
        if self._file is None:
            return
        whole = self._file.stat().st_size if self._file.exists() else 0
        try:
            with self._file.open("ab") as stream:
                stream.write(encode(result) + b"\n")
        except OSError as error:
            with suppress(OSError):
                os.truncate(self._file, whole)
            raise OutputError(str(self._file), error.strerror or str(error)) from error


@contextmanager
def _opened(make_session: SessionMaker, choice: EngineChoice, known: _State) -> Iterator[MutantRuns]:
    with make_session(choice, 0) as session:
        yield MutantRuns(session, choice.name, known.mutants.values())


_Begin = Callable[[], AbstractContextManager[MutantRuns]]


def _green(chosen: Sequence[MutableCase], begin: _Begin, jobs: int, known: _State) -> Iterator[MutableCase]:
    """The cases in which everything passes without a mutation."""

    def work(runs: MutantRuns, each: MutableCase, at: Say) -> Baseline:
        return runs.baseline(each.case, at)

    def lost(each: MutableCase, error: LabError) -> Baseline:
        return Baseline(file=each.case.file, case=each.case.case.id, trouble=str(error))

    new = [each for each in chosen if (each.case.file, each.case.case.id) not in known.baselines]
    for found in _done(begin, new, jobs, work, lost):
        known.keep(found)
    for each in chosen:
        baseline = known.baselines[each.case.file, each.case.case.id]
        if baseline.trouble:
            case = f" [{baseline.case}]" if baseline.case else ""
            what = f"{baseline.file}{case}: left out, since it does not pass without a mutation: {baseline.trouble}"
            echo("\n".join(wrapped(what, rest="  ", width=terminal_width())), err=True)
        else:
            yield replace(each, baseline=baseline)


def _settled(
    mutants: Sequence[Mutant], green: Sequence[MutableCase], begin: _Begin, jobs: int, known: _State
) -> list[Mutant]:
    """Every mutant with what noticed it."""

    def work(runs: MutantRuns, mutant: Mutant, at: Say) -> Mutant:
        return runs.settled(mutant, green, at)

    def lost(mutant: Mutant, error: LabError) -> Mutant:
        raise error

    new = [each for each in mutants if not each.equivalent and (each.rule_class, each.mutation) not in known.mutants]
    for number, found in enumerate(_done(begin, new, jobs, work, lost), 1):
        known.keep(found)
        fate = "nothing noticed" if found.survives else "noticed"
        echo(f"{number}/{len(new)} {fate}: {found.rule_class}: {found.mutation}", err=True)
    return [each if each.equivalent else known.mutants[each.rule_class, each.mutation] for each in mutants]


def _done(
    begin: _Begin,
    tasks: Sequence[Task],
    jobs: int,
    work: Callable[[MutantRuns, Task, Say], Result],
    lost: Callable[[Task, LabError], Result],
) -> Iterator[Result]:
    """The results of tasks in worker processes, as they come."""

    @contextmanager
    def worker() -> Iterator[Work[Task, Result]]:
        with begin() as runs:
            yield lambda task, at, _note: work(runs, task, at)

    with Workers(
        worker,
        tasks,
        number_of_workers(jobs, len(tasks)),
        order=range(len(tasks)),
        kind=lambda _task: "",
        lost=lost,
        at=lambda _what: None,
        note=lambda _remark: None,
    ) as workers:
        yield from (result for _number, result in workers.results_as_they_come())
