"""``proxylab trace``: send one packet through a lab and print its path, rule by rule. It judges nothing."""

import re
import sys
from typing import Annotated, Final

import click

from proxylab.cli.chosen_lab import ChosenLab, LabOptions, lab_words
from proxylab.cli.dial_options import DialOptions, opened_for, probe_of
from proxylab.cli.netns_argument import complete_netns_and_services
from proxylab.cli.options import takes
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Color, paint, terminal_width, wants_color
from proxylab.errors import ExitCode
from proxylab.evidence.evidence import Evidence
from proxylab.plan.dialled_service import DialledService
from proxylab.plan.model import Plan
from proxylab.plan.resolved import ResolvedProbe
from proxylab.report.trace_text import journey, trace_summary
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe, Send
from proxylab.scenario.words import Manner
from proxylab.text import WIDTH, wrapped
from proxylab.verdict.model import Judgement

_ENDS: Final = re.compile(r"\b(?:drops it|rejects it)\b")
_ARRIVES: Final = re.compile(r"^  \S+ (gets) the (?:request|reply) ")


@click.command("trace", short_help="Trace one packet, rule by rule.")
@takes
def command(
    *,
    dial: DialOptions,
    words: Annotated[tuple[str, ...], lab_words("[FILE] FROM TO", complete_netns_and_services)],
    options: LabOptions,
    color: Color,
) -> ExitCode:
    """Send one packet FROM a pod, host or node of the standing lab, and print its path there and back, rule by rule.

    The last sentence names the rule, or the kernel's reason, that stopped the packet or changed its source.

    FROM may name its source port, as in client:12345. TO is a Service, a pod, a node, a host or an address, followed by
    :PORT if it has several ports or none, as in node-a:30080.

    With FILE, run in a temporary lab of that scenario.

    Example: proxylab trace scenarios/clusterip/from-a-pod.lab.yaml client echo
    """
    chosen = ChosenLab(words, options)

    def described(scenario: Scenario) -> Probe:
        return probe_of(
            scenario, "trace", chosen.words, dial, send=Send(manner=Manner.PACKET), namespace=chosen.namespace
        )

    with opened_for(chosen, described) as (lab, probe):
        resolved, evidence = lab.trace(probe)
        plan, service = lab.current_plan(), lab.service_of(resolved)
    lines = trace_lines(probe, resolved, evidence, plan, service, width=terminal_width())
    echo("\n".join(map(painted, lines)), color=wants_color(sys.stdout, color))
    return ExitCode.OK


def trace_lines(
    probe: Probe,
    resolved: ResolvedProbe,
    evidence: Evidence,
    plan: Plan,
    service: DialledService | None = None,
    *,
    width: int = WIDTH,
) -> list[str]:
    """The path of a traced packet, and its summary."""
    path = journey(resolved, evidence, width) or ("no rule of any node saw the packet",)
    return [*path, "", *wrapped(trace_summary(probe, resolved, evidence, plan, service), "in short: ", width=width)]


def painted(line: str) -> str:
    """A line of a trace with what ended the packet, or that it arrived, in the colours of a run."""
    if arrives := _ARRIVES.match(line):
        start, end = arrives.span(1)
        return f"{line[:start]}{paint(arrives[1], Judgement.PASS)}{line[end:]}"
    return _ENDS.sub(lambda found: paint(found[0], Judgement.FAIL), line)
