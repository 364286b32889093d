"""``proxylab diagnose``: check the stages of a Service in order, and report where it breaks.

``runs`` runs the checks. This module prints the diagnosis, and adds the lab's name to the commands that it suggests.
"""

import json
import shlex
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import click
from msgspec.structs import replace

from proxylab.cli.chosen_lab import ChosenLab, LabOptions, lab_words
from proxylab.cli.netns_argument import check_netns, complete_services, find_netns
from proxylab.cli.options import option, takes
from proxylab.cli.standard_streams import echo
from proxylab.cli.terminal import Color, Output, paint, terminal_width, wants_color
from proxylab.client.connection import ControlConnection
from proxylab.client.control_sockets import ControlSockets
from proxylab.client.open_lab import OpenLab
from proxylab.errors import ExitCode
from proxylab.evidence.words import listed
from proxylab.features.diagnose.model import Diagnosis, Standing
from proxylab.features.diagnose.runs import Round
from proxylab.scenario.model import Scenario
from proxylab.text import WIDTH, table, wrapped
from proxylab.verdict.model import Judgement

_JUDGEMENTS = {
    Standing.HOLDS: Judgement.PASS,
    Standing.BREAKS: Judgement.FAIL,
    Standing.UNCLEAR: Judgement.INCONCLUSIVE,
}
"""The judgement of a run that a standing is like, which has its colour."""
_CONCLUSIONS = {"every stage holds": Judgement.PASS, "it breaks": Judgement.FAIL, "unclear": Judgement.INCONCLUSIVE}
_SHORT = {Standing.NOTHING: "-", Standing.UNSEEN: "-"}


@click.command("diagnose", short_help="Check a Service stage by stage; report where it breaks.")
@takes
def command(
    *,
    sender: Annotated[
        str | None, option("--from", metavar="NODE|POD|HOST", help="The client; by default the likeliest.")
    ],
    node: Annotated[str | None, option("--node", metavar="NAME", help="Check this node only; by default all nodes.")],
    output: Output,
    words: Annotated[tuple[str, ...], lab_words("[FILE] SERVICE", complete_services)],
    options: LabOptions,
    color: Color,
) -> ExitCode:
    """Check SERVICE, or NAMESPACE/SERVICE, in the standing lab stage by stage, and report where it breaks.

    The stages are: its DNS name, its endpoints, the engines, the rules that match its frontends, the rules that choose
    an endpoint, translation, masquerading, an endpoint that dials its own Service, and the health checks of load
    balancers. The stages after a broken one are skipped. The exit code is 1 if a stage breaks.

    With FILE, run in a temporary lab of that scenario.

    Example: proxylab diagnose scenarios/clusterip/from-a-pod.lab.yaml echo
    """
    chosen = ChosenLab(words, options)
    if len(chosen.words) != 1:
        raise click.UsageError("SERVICE: name one Service, as in `proxylab diagnose echo`")
    namespace, _, service = chosen.words[0].removeprefix("service/").removeprefix("svc/").rpartition("/")
    namespace = namespace or chosen.namespace or "default"

    def alone(scenario: Scenario) -> Scenario:
        return replace(scenario, probes=(), steps=(), streams=())

    with chosen.opened(alone) as lab:
        if sender is not None:
            sender = find_netns(lab.scenario, sender, chosen.namespace, "--from")
        if node is not None:
            check_netns(lab.scenario, node, "NODE")
        echo(f"{lab.scenario.file}: {namespace}/{service}", err=True)
        diagnosis = Round(lab, namespace, service, sender, node).go()
        commands = _commands(diagnosis, lab, chosen)
    if output == "json":
        echo(json.dumps(_document(diagnosis, commands), indent=4))
    else:
        lines = lines_of(diagnosis, commands, terminal_width())
        echo("\n".join(map(painted, lines)), color=wants_color(sys.stdout, color))
    return _exit_code(diagnosis)


def lines_of(diagnosis: Diagnosis, commands: Sequence[str] = (), width: int = WIDTH) -> list[str]:
    """A table of stages, the sentence that names the cause, and commands that show it."""
    rows = [
        (each.stage.value, _SHORT.get(each.standing, each.standing.value), "; ".join(each.seen))
        for each in diagnosis.findings
    ]
    lines = [f"{diagnosis.service} on {diagnosis.engine}", *table(rows, "  ", width=width), ""]
    broken = diagnosis.broken
    if broken is None:
        held = [each.stage.value for each in diagnosis.findings if each.standing is Standing.HOLDS]
        return [*lines, *wrapped(f"every stage holds: {listed(held)}.", rest="", width=width)]
    what = "unclear" if broken.standing is Standing.UNCLEAR else "it breaks"
    lines += wrapped(f"{what} at {broken.stage}: {broken.cause}", rest="  ", width=width)
    return [*lines, "look at:", *(f"  {each}" for each in commands)]


def _document(diagnosis: Diagnosis, commands: Sequence[str] = ()) -> dict[str, Any]:
    """The diagnosis as a document for programs."""
    broken = diagnosis.broken
    return {
        "service": diagnosis.service,
        "engine": diagnosis.engine,
        "holds": broken is None,
        "breaksAt": broken.stage.value if broken else None,
        "cause": broken.cause if broken else None,
        "lookAt": list(commands),
        "stages": [
            {"stage": each.stage.value, "standing": each.standing.value, "seen": list(each.seen)}
            for each in diagnosis.findings
        ],
    }


def painted(line: str) -> str:
    """A row of the table with its standing in colour, or the sentence below it with its first words so."""
    for standing, judgement in _JUDGEMENTS.items():
        before, word, after = line.partition(f"  {standing.value}  ")
        if word and len(before) <= len("  entry rules"):
            return f"{before}  {paint(standing.value, judgement)}  {after}"
    for words, judgement in _CONCLUSIONS.items():
        if line.startswith(words):
            return f"{paint(words, judgement)}{line.removeprefix(words)}"
    return line


def _exit_code(diagnosis: Diagnosis) -> ExitCode:
    broken = diagnosis.broken
    if broken is None:
        return ExitCode.OK
    return ExitCode.FAILED if broken.standing is Standing.BREAKS else ExitCode.INCONCLUSIVE


def _commands(diagnosis: Diagnosis, lab: OpenLab, chosen: ChosenLab) -> list[str]:
    """The commands to type: with ``--lab`` if several labs run; after ``proxylab up`` if the lab was of FILE."""
    broken = diagnosis.broken
    if broken is None:
        return []
    named = ""
    if isinstance(lab.connection, ControlConnection) and ControlSockets.of_user().names() != [lab.connection.name]:
        named = f" --lab {lab.connection.name}"
    typed = []
    for each in broken.look_at:
        command, bar, rest = each.partition(" | ")
        command, dashes, inside = command.partition(" -- ")
        typed.append(f"proxylab {command}{named}{dashes}{inside}{bar}{rest}")
    if chosen.file is None:
        return typed
    engine = f" --engine {lab.engine.name}" if lab.engine.options else ""
    case = f" --case {shlex.quote(chosen.case_id)}" if chosen.case_id else ""
    return [f"proxylab up {shlex.quote(str(chosen.file))}{case}{engine}", *typed]
