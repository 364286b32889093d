"""``proxylab diff``: the same probes on several engines, and what they make of them.

Owns: the verb's options, and the order in which engines are asked.
Must not: say what is a difference (``lab.report.differences`` does).
"""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import click

from lab.cli.case import CASE, FILE
from lab.cli.engine import choice_of
from lab.cli.files import load_all
from lab.cli.run import SessionMaker
from lab.cli.width import terminal_width
from lab.engines.names import mode_of, read_engine
from lab.engines.rulesets import rule_differences
from lab.errors import ExitCode
from lab.open_lab import OpenLab
from lab.report.differences import INDENT, differing, told
from lab.scenario.cases import cases
from lab.scenario.model import Scenario
from lab.session import Session
from lab.verdict.journey import journey
from lab.verdict.words import amount

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
@click.option("--kube-proxy", metavar="WHERE", default="", envvar="LAB_KUBE_PROXY", help="As for `proxylab run`.")
@CASE
@click.pass_obj
def command(
    make_session: SessionMaker | None, /, *, file: Path, named: str, rules: bool, kube_proxy: str, case_id: str | None
) -> ExitCode:
    """Run the probes of FILE on several engines side by side, and say what differs, with the packet's way on each.

    The exit code is 1 if something differs.

    Example: proxylab diff scenarios/clusterip/from-a-pod.lab.yaml --engines embedded/iptables,kube-proxy/nftables
    """
    engines = _engines(named)
    (written,) = load_all((file,))
    choices = {engine: choice_of(engine, kube_proxy=kube_proxy) for engine in engines}
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
                differences += _compare_probes(scenarios, opened)
                differences += _compare_rules(opened) if rules else 0
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


def _compare_probes(scenarios: dict[str, Scenario], labs: dict[str, OpenLab]) -> int:
    """Print each probe that the engines treat differently, and count them."""
    found = 0
    first = next(iter(scenarios.values()))
    case = first.case.id and f" [{first.case.id}]"
    click.echo(f"{first.file}: {amount(len(first.probes), 'probe')}{case}", err=True)
    for probes in zip(*(scenario.probes for scenario in scenarios.values()), strict=True):
        verdicts = {engine: lab.probe(probe) for (engine, lab), probe in zip(labs.items(), probes, strict=True)}
        if not differing(verdicts):
            continue
        found += 1
        width = terminal_width()
        ways = {
            engine: journey(*lab.trace(probe), width - len(INDENT))
            for (engine, lab), probe in zip(labs.items(), probes, strict=True)
        }
        click.echo("\n".join(told(verdicts, ways, width)))
    return found


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
