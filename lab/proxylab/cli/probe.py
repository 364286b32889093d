"""``proxylab probe``: send one probe and explain its verdict, in the words of a run."""

import shlex
import sys
from typing import Annotated, Final

import click
from msgspec.structs import replace

from proxylab.addresses import Transport
from proxylab.cli.chosen_lab import ChosenLab, LabOptions, lab_words
from proxylab.cli.dial_options import DialOptions, opened_for, probe_of
from proxylab.cli.netns_argument import complete_netns_and_services
from proxylab.cli.options import Options, option, takes
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Color, paint, terminal_width, wants_color
from proxylab.errors import ExitCode
from proxylab.report.exit_code import exit_code
from proxylab.report.failure_text import briefly, explain
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import MOST_FLOWS, MOST_PAYLOAD, Probe, Send
from proxylab.scenario.words import Manner, Outcome
from proxylab.text import wrapped
from proxylab.verdict.model import Judgement, ProbeVerdict, ScenarioResult

_BLANK: Final = " " * len("pass  ")
_NO_WORDS: Final = "no tap saw it"


class ProbeOptions(Options, frozen=True, kw_only=True):
    """What to send, and what must become of it."""

    dial: DialOptions
    flows: Annotated[
        int,
        option(
            "--flows", type=click.IntRange(1, MOST_FLOWS), default=1, show_default=True, help="The number of flows."
        ),
    ]
    manner: Annotated[
        str | None,
        option(
            "--as",
            type=click.Choice([each.value for each in Manner]),
            help="Kernel sockets or crafted packets; by default sockets, or a packet for ICMP.",
        ),
    ]
    payload: Annotated[
        int,
        option(
            "--payload",
            metavar="BYTES",
            type=click.IntRange(0, MOST_PAYLOAD),
            default=0,
            help="Bytes to send after the marker by which the lab recognises a flow. A datagram above the MTU leaves "
            "in fragments.",
        ),
    ]
    expect: Annotated[
        str,
        option(
            "--expect",
            type=click.Choice([each.value for each in Outcome]),
            default=Outcome.DELIVERED.value,
            show_default=True,
            help="The expected outcome; otherwise the exit code is 1.",
        ),
    ]

    def probe(self, scenario: Scenario, words: tuple[str, ...], namespace: str = "") -> Probe:
        """The probe between FROM and TO; ``namespace`` is that of names without one. Raises ``click.UsageError``."""
        crafted = Manner.PACKET if self.dial.sent == Transport.ICMP else Manner.CONNECT
        send = Send(manner=Manner(self.manner) if self.manner else crafted, flows=self.flows, payload=self.payload)
        outcome = Outcome(self.expect)
        return probe_of(scenario, "probe", words, self.dial, send=send, outcome=outcome, namespace=namespace)


@click.command("probe", short_help="Send one probe and explain the result.")
@takes
def command(
    *,
    sent: ProbeOptions,
    words: Annotated[tuple[str, ...], lab_words("[FILE] FROM TO", complete_netns_and_services)],
    options: LabOptions,
    color: Color,
) -> ExitCode:
    """Send one probe FROM a pod, host or node of the standing lab, and explain the result.

    FROM may name its source port, as in client:12345. TO is a Service, a pod, a node, a host or an address, followed by
    :PORT if it has several ports or none, as in node-a:30080.

    With FILE, run in a temporary lab of that scenario.

    Example: proxylab probe scenarios/clusterip/from-a-pod.lab.yaml client echo --flows 10
    """
    if sent.dial.sent == Transport.ICMP and sent.manner == Manner.CONNECT:
        raise click.UsageError("--as connect: ICMP has no connections; leave --as out")
    chosen = ChosenLab(words, options)

    def described(scenario: Scenario) -> Probe:
        return sent.probe(scenario, chosen.words, chosen.namespace)

    with opened_for(chosen, described) as (lab, probe):
        verdict = replace(lab.probe(probe), rerun_command=f"proxylab {shlex.join(sys.argv[1:])}")
    echo("\n".join(_lines(verdict, terminal_width())), color=wants_color(sys.stdout, color))
    return exit_code([ScenarioResult(file=lab.scenario.file, name=lab.scenario.name, engine="", probes=(verdict,))])


def _lines(verdict: ProbeVerdict, width: int) -> list[str]:
    """The judgement and the observation; the whole explanation unless the probe passes."""
    word = paint(str(verdict.overall), verdict.overall)
    if verdict.overall is Judgement.PASS:
        below, further = _BLANK, f"{_BLANK}  "
        lines = [part for line in briefly(verdict) or (_NO_WORDS,) for part in wrapped(line, below, further, width)]
        return [lines[0].replace(_BLANK, f"{word}  ", 1), *lines[1:]]
    first, *rest = explain(verdict, width)
    return [word + first.removeprefix(f"{verdict.probe.position}: {verdict.overall.upper()}"), *rest]
