"""``proxylab diff``: run the same probes on several engines and compare."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Annotated, Final

import click

from proxylab.binary_identity import BinaryIdentity, identity_lines
from proxylab.cli.case_option import CaseId, ScenarioFile
from proxylab.cli.engine_options import OtherOptions, choices_of
from proxylab.cli.file_arguments import load_all
from proxylab.cli.options import option, takes
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import terminal_width
from proxylab.client.open_lab import OpenLab
from proxylab.client.session import Session, SessionMaker
from proxylab.engines.engine_names import mode_of, read_engine
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import ExitCode
from proxylab.evidence.words import amount
from proxylab.oracle.promised import promised_cases
from proxylab.report.step_timeline import timeline
from proxylab.report.trace_text import journey
from proxylab.scenario.model import Scenario
from proxylab.scenario.steps import Step
from proxylab.text import WIDTH, wrapped
from proxylab.verdict.model import ProbeVerdict, StepVerdict

AnyVerdict = ProbeVerdict | StepVerdict

INDENT: Final = "    "
"""The indentation of a packet's path."""

_BY_CHANCE: Final = frozenset({"backends", "endpoint", "spread"})
"""Observations of these are random for each flow, so only the judgement is compared."""


@click.command("diff", short_help="Run the same probes on several engines and compare.")
@takes
@click.pass_obj
def command(
    make_session: SessionMaker | None,
    /,
    *,
    file: ScenarioFile,
    named: Annotated[
        str,
        option(
            "--engines",
            metavar="A,B[,…]",
            required=True,
            help="Two or more engines, such as embedded/iptables,kube-proxy/iptables.",
        ),
    ],
    rules: Annotated[bool, option("--rules", is_flag=True, help="Compare the rules of every node by meaning, too.")],
    options: OtherOptions,
    case_id: CaseId,
) -> ExitCode:
    """Run the probes and steps of FILE on several engines side by side, and print the differences.

    For a probe, the output shows a packet's path on each engine; for a step, its timeline. With --rules, the rules
    before the first step are compared. The exit code is 1 if something differs. The first lines name the binaries, and
    say which engines run the same one.

    Example: proxylab diff scenarios/clusterip/from-a-pod.lab.yaml --engines embedded/iptables,kube-proxy/nftables
    """
    engines = _engines(named)
    (written,) = load_all((file,))
    choices = choices_of(engines, options.proxy, kernel=options.kernel)
    for line in (*identity_lines((engine, choice.binary) for engine, choice in choices.items()), *_alike(choices)):
        echo("\n".join(wrapped(line, "", "  ", terminal_width())))
    by_engine = {
        engine: {case.case.id: case for case in promised_cases(written, mode_of(engine), choice.version)}
        for engine, choice in choices.items()
    }
    shared = [each for each in by_engine[engines[0]] if all(each in found for found in by_engine.values())]
    chosen = shared if case_id is None else [each for each in shared if each == case_id]
    if not chosen:
        raise click.UsageError(
            f"--case: name a case that all engines run: {', '.join(filter(None, shared)) or 'there is none'}"
        )
    differences = 0
    with ExitStack() as stack:
        sessions = {
            engine: stack.enter_context(make_session(choice, 0) if make_session else Session(choice))
            for engine, choice in choices.items()
        }
        for each in chosen:
            scenarios = {engine: by_engine[engine][each] for engine in engines}
            with ExitStack() as labs:
                opened = {
                    engine: labs.enter_context(closing(sessions[engine].open(scenarios[engine]))) for engine in engines
                }
                differences += _compare_rules(opened) if rules else 0
                differences += _compare(scenarios, opened)
    if not differences:
        echo(f"{written.file}: no difference between {', '.join(engines)}")
    return ExitCode.FAILED if differences else ExitCode.OK


def _engines(named: str) -> tuple[str, ...]:
    try:
        engines = tuple(dict.fromkeys(str(read_engine(each.strip())) for each in named.split(",")))
    except ValueError as error:
        raise click.UsageError(f"--engines: {error}") from None
    if len(engines) < 2:
        raise click.UsageError("--engines: name two or more engines, separated by commas")
    return engines


def _alike(choices: Mapping[str, EngineChoice]) -> Iterator[str]:
    """A line for each group of engines that run the same binary in the same mode."""
    groups: dict[tuple[BinaryIdentity, str], list[str]] = {}
    for engine, choice in choices.items():
        if choice.binary is not None:
            groups.setdefault((choice.binary, mode_of(engine)), []).append(engine)
    for (_, mode), engines in groups.items():
        if len(engines) > 1:
            yield f"{' and '.join(engines)} are the same: one binary, in mode {mode}; what differs is chance"


def _compare(scenarios: dict[str, Scenario], labs: dict[str, OpenLab]) -> int:
    """Print each probe and step with different verdicts, and count them."""
    found = 0
    first = next(iter(scenarios.values()))
    judged = amount(len(first.all_probes), "probe") + (
        f" and {amount(len(first.steps), 'step')}" if first.steps else ""
    )
    echo(f"{first.file}: {judged}{first.case.id and f' [{first.case.id}]'}", err=True)
    by_name = {engine: {each.name: each for each in scenario.judged} for engine, scenario in scenarios.items()}
    for name in (each.name for each in first.judged):
        verdicts: dict[str, AnyVerdict] = {}
        for engine, lab in labs.items():
            each = by_name[engine][name]
            verdicts[engine] = lab.conclude(each) if isinstance(each, Step) else lab.probe(each)
        if not differ(verdicts):
            continue
        found += 1
        width = terminal_width()
        paths = {engine: _path(labs[engine], verdict, width - len(INDENT)) for engine, verdict in verdicts.items()}
        echo("\n".join(difference_lines(verdicts, paths, width)))
    return found


def _path(lab: OpenLab, verdict: AnyVerdict, width: int) -> Sequence[str]:
    """The timeline of a step, or the path of one more packet of a probe."""
    if isinstance(verdict, StepVerdict):
        return timeline(verdict, width)[1:]
    return journey(*lab.trace(verdict.probe), width)


def _compare_rules(labs: dict[str, OpenLab]) -> int:
    """Print how each engine's rules differ from the first engine's, and count the nodes where they do."""
    found = 0
    (first, lab), *others = labs.items()
    ours = lab.rules()
    for engine, other in others:
        if mode_of(engine) != mode_of(first):
            echo(f"{first} and {engine} run in different modes; their rules are not compared", err=True)
            continue
        theirs = other.rules()
        for node, text in ours.items():
            lines: Sequence[str] = MODES[mode_of(engine)].differences(text, theirs[node])
            if lines:
                found += 1
                echo("\n".join((f"rules on {node}: - {first}, + {engine}", *(f"  {line}" for line in lines))))
    return found


def differ(verdicts: Mapping[str, AnyVerdict]) -> bool:
    """Whether the engines, by name, observe or judge a probe differently.

    How many stream packets a change costs varies from run to run. So steps are compared by judgement and by
    expectation, which differs between engines where an ``except`` applies.
    """
    return len({_essence(verdict) for verdict in verdicts.values()}) > 1


def _essence(verdict: AnyVerdict) -> frozenset[tuple[str, ...]]:
    if isinstance(verdict, StepVerdict):
        return frozenset((each.expectation, each.judgement, each.expected) for each in verdict.verdicts)
    return frozenset(
        (each.expectation, each.judgement, "" if each.expectation in _BY_CHANCE else each.observed)
        for each in verdict.verdicts
    )


def difference_lines(
    verdicts: Mapping[str, AnyVerdict], ways: Mapping[str, Sequence[str]], width: int = WIDTH
) -> Iterator[str]:
    """The lines for one probe, with a packet's path on each engine, or for one step, with its timeline on each."""
    first = next(iter(verdicts.values()))
    written = first.written
    yield f"{written.position}: {written.name}"
    room = max(map(len, verdicts))
    for engine, verdict in verdicts.items():
        observed = "; ".join(f"{each.expectation} {each.observed}" for each in verdict.verdicts)
        yield from wrapped(f"{verdict.overall}: {observed}", f"  {engine:<{room}}  ", width=width)
    for engine, way in ways.items():
        yield f"  {'what happened' if isinstance(first, StepVerdict) else 'the path'} on {engine}:"
        yield from (f"{INDENT}{line}".rstrip() for line in way or ("no rule of any node saw the packet",))
