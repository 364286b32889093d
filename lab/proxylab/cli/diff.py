"""``proxylab diff``: the same probes on several engines, and what they make of them.

Owns: the verb's options, and the order in which engines are asked.
Must not: say what is a difference (``proxylab.report.differences`` does).
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import click

from proxylab.cli.case import CASE, FILE
from proxylab.cli.engine import choices_of, given_options
from proxylab.cli.files import load_all
from proxylab.cli.run import SessionMaker
from proxylab.cli.width import terminal_width
from proxylab.client.open_lab import OpenLab
from proxylab.client.session import Session
from proxylab.engines.names import mode_of, read_engine
from proxylab.engines.rulesets import rule_differences
from proxylab.errors import ExitCode
from proxylab.evidence.words import amount
from proxylab.report.differences import INDENT, Judged, differing, told
from proxylab.scenario.cases import cases
from proxylab.scenario.model import Scenario, Step
from proxylab.verdict.journey import journey
from proxylab.verdict.model import StepVerdict
from proxylab.verdict.timeline import timeline

__all__ = ["command"]


@click.command("diff", short_help="Run the same probes on several engines, and say what differs.")
@FILE
@click.option(
    "--engines",
    "named",
    metavar="A,B[,…]",
    required=True,
    help="The engines, such as embedded/iptables,kube-proxy/iptables,kube-proxy@v1.34/nftables.",
)
@click.option("--rules", is_flag=True, help="Compare the rules of every node, too, by what they mean.")
@given_options
@CASE
@click.pass_obj
def command(
    make_session: SessionMaker | None,
    /,
    *,
    file: Path,
    named: str,
    rules: bool,
    case_id: str | None,
    **of_engine: Any,
) -> ExitCode:
    """Run the probes and steps of FILE on several engines side by side, and say what differs.

    Of a probe, the packet's way on each engine is told; of a step, what happened in it. With --rules, the rules are
    compared as they stand before the first step. The exit code is 1 if something differs.

    Example: proxylab diff scenarios/clusterip/from-a-pod.lab.yaml --engines embedded/iptables,kube-proxy/nftables
    """
    engines = _engines(named)
    (written,) = load_all((file,))
    choices = choices_of(engines, **of_engine)
    by_engine = {
        engine: {case.case.id: case for case in cases(written, mode_of(engine), choice.version)}
        for engine, choice in choices.items()
    }
    shared = [each for each in by_engine[engines[0]] if all(each in found for found in by_engine.values())]
    chosen = shared if case_id is None else [each for each in shared if each == case_id]
    if not chosen:
        raise click.UsageError(
            f"--case: name one that the engines share: {', '.join(filter(None, shared)) or 'there is none'}"
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
        click.echo(f"{written.file}: no difference between {', '.join(engines)}")
    return ExitCode.FAILED if differences else ExitCode.OK


def _engines(named: str) -> tuple[str, ...]:
    try:
        engines = tuple(dict.fromkeys(str(read_engine(each.strip())) for each in named.split(",")))
    except ValueError as error:
        raise click.UsageError(f"--engines: {error}") from None
    if len(engines) < 2:
        raise click.UsageError("--engines: name two engines or more, with a comma between")
    return engines


def _compare(scenarios: dict[str, Scenario], labs: dict[str, OpenLab]) -> int:
    """Print each probe and step that the engines treat differently, and count them."""
    found = 0
    first = next(iter(scenarios.values()))
    said = amount(len(first.all_probes), "probe") + (f" and {amount(len(first.steps), 'step')}" if first.steps else "")
    click.echo(f"{first.file}: {said}{first.case.id and f' [{first.case.id}]'}", err=True)
    by_name = {engine: {each.name: each for each in scenario.judged} for engine, scenario in scenarios.items()}
    for name in (each.name for each in first.judged):
        verdicts: dict[str, Judged] = {}
        for engine, lab in labs.items():
            judged = by_name[engine][name]
            verdicts[engine] = lab.conclude(judged) if isinstance(judged, Step) else lab.probe(judged)
        if not differing(verdicts):
            continue
        found += 1
        width = terminal_width()
        ways = {engine: _way(labs[engine], verdict, width - len(INDENT)) for engine, verdict in verdicts.items()}
        click.echo("\n".join(told(verdicts, ways, width)))
    return found


def _way(lab: OpenLab, verdict: Judged, width: int) -> Sequence[str]:
    """What happened in a step, or the way of one more packet of a probe."""
    if isinstance(verdict, StepVerdict):
        return timeline(verdict, width)[1:]
    return journey(*lab.trace(verdict.probe), width)


def _compare_rules(labs: dict[str, OpenLab]) -> int:
    """Print how the rules of each engine differ from those of the first, and count the nodes where they do."""
    found = 0
    (first, lab), *others = labs.items()
    ours = lab.rules()
    for engine, other in others:
        if mode_of(engine) != mode_of(first):
            click.echo(f"rules of {first} and {engine} are of different modes, and not compared", err=True)
            continue
        theirs = other.rules()
        for node, text in ours.items():
            lines: Sequence[str] = rule_differences(mode_of(engine), text, theirs[node])
            if lines:
                found += 1
                click.echo("\n".join((f"rules on {node}: - {first}, + {engine}", *(f"  {line}" for line in lines))))
    return found
