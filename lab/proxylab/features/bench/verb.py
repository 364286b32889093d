"""``proxylab bench``: measure proxies among many Services, and compare with an earlier run."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import click
from msgspec.structs import replace

import proxylab
from proxylab.binary_identity import identity_lines
from proxylab.cli.engine_options import EnginesOptions, choices_of
from proxylab.cli.input_files import read_input
from proxylab.cli.options import Options, option, takes
from proxylab.cli.output_paths import OutputFile
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Output, terminal_width
from proxylab.client.output_files import write_whole
from proxylab.client.report_page import RunStart
from proxylab.client.session import Session, SessionMaker
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError, EngineError, ExitCode, LabError, ProgramError
from proxylab.features.bench.bench_page import page
from proxylab.features.bench.bench_plot import plot
from proxylab.features.bench.bench_text import comparison_lines, to_json, to_lines, to_markdown
from proxylab.features.bench.comparison import BenchComparison, compare
from proxylab.features.bench.figures import BenchedEngine, BenchedMachine, BenchedSize, BenchReport, read_report
from proxylab.features.bench.large_cluster import MOST_ENDPOINTS
from proxylab.features.bench.runs import measure, room

_PATIENCE_SECONDS: Final = 900.0
"""How long a proxy may take to program a change, if the user says nothing: large clusters are the subject."""

_FORMS: Final[Mapping[str, Callable[[BenchReport, BenchComparison | None], str]]] = {
    ".json": lambda report, _: to_json(report),
    ".html": page,
    ".md": lambda report, _: to_markdown(report),
    ".svg": lambda report, _: plot(report),
}


class _Turn(NamedTuple):
    """One measurement: the number of its round, the Services, and the number of the engine."""

    round: int
    services: int
    engine: int


def _services(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """The numbers, ascending, each once. Raises ``BadParameter``."""
    words = [each.strip() for each in value.split(",")]
    if not all(each.isascii() and each.isdecimal() for each in words):
        raise click.BadParameter(f"{value!r} are no numbers of Services; write such as 100,1000", ctx, param)
    found = tuple(sorted({*map(int, words)}))
    if found[0] < 1 or found[-1] > room():
        raise click.BadParameter(f"a lab has room for 1 to {room():,} Services; name numbers in between", ctx, param)
    return found


class BenchOptions(Options, frozen=True, kw_only=True):
    """What is measured, how often, and what becomes of it."""

    services: Annotated[
        tuple[int, ...],
        option(
            "--services",
            metavar="N,…",
            default="100,1000",
            show_default=True,
            callback=_services,
            help="The numbers of Services, separated by commas.",
        ),
    ]
    endpoints: Annotated[
        int,
        option(
            "--endpoints",
            metavar="N",
            type=click.IntRange(1, MOST_ENDPOINTS),
            default=2,
            show_default=True,
            help="The endpoints of each Service.",
        ),
    ]
    rounds: Annotated[
        int,
        option(
            "--rounds",
            metavar="N",
            type=click.IntRange(1),
            default=5,
            show_default=True,
            help="How often everything is measured; a comparison needs two rounds, and sees more by more.",
        ),
    ]
    changes: Annotated[
        int,
        option(
            "--changes",
            metavar="N",
            type=click.IntRange(1),
            default=20,
            show_default=True,
            help="The single changes of each round.",
        ),
    ]
    proxies: EnginesOptions
    against: Annotated[
        Path | None,
        option(
            "--against",
            metavar="FILE",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="Compare with this report, which an earlier run has written by --report FILE.json: print what has "
            "changed by more than noise.",
        ),
    ]
    reports: Annotated[
        tuple[Path, ...],
        option(
            "--report",
            metavar="FILE",
            multiple=True,
            type=OutputFile(suffixes=_FORMS),
            help="Also write the benchmark to FILE, in the form of its suffix: .json, .html, .md, or .svg (a plot); "
            "may be repeated.",
        ),
    ]
    output: Output


@click.command("bench", short_help="Measure how a proxy grows with Services; compare runs.")
@takes
@click.pass_obj
def command(make_session: SessionMaker | None, /, *, options: BenchOptions) -> ExitCode:
    """Measure proxies among many Services: their start, syncs, changes, latencies and memory.

    Each round makes a new lab for each engine and each number of Services. The output has the median of the rounds, and
    the exponent by which a figure grows with Services, with its standard error. What each figure means stands on the
    page that --report FILE.html writes.

    With --against, it compares the rounds of both runs by Welch's test of their logarithms, corrected for the number
    of figures. The exit code is 1 if a figure is worse by more than noise, or an engine could not be measured.

    Example: proxylab bench --services 5,20 --rounds 2 --changes 3
    """
    before = _read(options.against) if options.against else None
    choices = choices_of(options.proxies.engines, options.proxies.proxy, options.proxies.kernels)
    for line in identity_lines((engine, choice.binary) for engine, choice in choices.items()):
        echo(line, err=True)
    report, trouble = _measured(
        [replace(choice, kernel=kernel) for choice in choices.values() for kernel in options.proxies.kernels],
        options,
        make_session or Session,
    )
    comparison = None if before is None else compare(before, report)
    for file in options.reports:
        write_whole(file, f"{_FORMS[file.suffix](report, comparison)}\n")
        echo(f"report: {file}", err=True)
    width = terminal_width()
    echo(to_json(report) if options.output == "json" else "\n".join(to_lines(report, width)))
    if comparison is not None:
        lines = ["", *comparison_lines(comparison, width)]
        echo("\n".join(lines), err=options.output == "json")
        if any(each.is_worse for each in comparison.figures):
            return ExitCode.FAILED
    return trouble.exit_code if trouble else ExitCode.OK


def _read(file: Path) -> BenchReport:
    wanted = "a file that `bench --report FILE.json` wrote"
    try:
        return read_report(read_input(file, wanted))
    except ValueError as error:
        raise click.UsageError(f"{file}: {error}; name {wanted}") from None


def _measured(
    choices: list[EngineChoice], options: BenchOptions, make_session: SessionMaker
) -> tuple[BenchReport, LabError | None]:
    """The report of all rounds, and the first reason why something could not be measured.

    Rounds are the outer loop, so that a machine that becomes slower slows all engines and sizes alike.
    """
    begun = RunStart.now().at
    sizes = {
        (number, services): BenchedSize(services=services)
        for number in range(len(choices))
        for services in options.services
    }
    machine: BenchedMachine | None = None
    trouble: LabError | None = None
    for turn, services, number in _turns(options, len(choices)):
        choice, size = choices[number], sizes[number, services]
        if size.failure:
            continue
        echo(f"round {turn} of {options.rounds}: {choice.name} at {services:,} Services", err=True)
        patient = replace(choice, sync_seconds=choice.sync_seconds or _PATIENCE_SECONDS)
        try:
            with make_session(patient) as session:
                found = measure(session, services, options.endpoints, options.changes)
        except (CapabilityError, EngineError, ProgramError) as error:
            trouble = trouble or error
            sizes[number, services] = replace(size, failure=str(error).partition("\n")[0])
            continue
        machine = machine or found.machine
        sizes[number, services] = size.with_round(found.figures)
    report = BenchReport(
        proxylab=proxylab.__version__,
        begun=f"{begun:%Y-%m-%d %H:%M} UTC",
        command=f"proxylab {shlex.join(sys.argv[1:])}",
        machine=machine,
        endpoints=options.endpoints,
        rounds=options.rounds,
        changes=options.changes,
        engines=tuple(
            BenchedEngine(
                engine=choice.name,
                kernel=choice.kernel,
                binary=str(choice.binary or ""),
                sizes=tuple(sizes[number, services] for services in options.services),
            )
            for number, choice in enumerate(choices)
        ),
    )
    return report, trouble


def _turns(options: BenchOptions, engines: int) -> Iterator[_Turn]:
    return (
        _Turn(turn, services, number)
        for turn in range(1, options.rounds + 1)
        for services in options.services
        for number in range(engines)
    )
