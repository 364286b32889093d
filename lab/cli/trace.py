"""``proxylab trace``: one packet through a lab, and its whole way in words.

Owns: the verb's options.
Must not: judge; nothing is expected of the packet.
"""

from dataclasses import replace
from typing import Any

import click

from lab.cli.dialled import dial_options, probe_of
from lab.cli.places import complete_places_and_services
from lab.cli.which import SessionMaker, lab_options, the_lab, with_file
from lab.errors import ExitCode
from lab.scenario.model import Manner, Scenario, Send
from lab.verdict.journey import journey

__all__ = ["command"]


@click.command("trace", short_help="Send one packet through a lab and tell its way, rule by rule.")
@click.argument("words", nargs=-1, required=True, metavar="[FILE] FROM TO", shell_complete=complete_places_and_services)
@dial_options
@lab_options
@click.pass_obj
def command(
    make_session: SessionMaker | None,
    /,
    *,
    words: tuple[str, ...],
    via: str,
    node: str | None,
    sent: str | None,
    name: str | None,
    **of_lab: Any,
) -> ExitCode:
    """Send one packet FROM a pod, host or node of the lab that stands, and tell its way there and back.

    TO is a Service, a pod, a host or an address, each with :PORT behind it where it has several ports or none. With
    FILE, the lab of that scenario is made for it, and closed.

    Example: proxylab trace scenarios/clusterip/from-a-pod.lab.yaml client echo
    """
    file, rest = with_file(words)
    send = Send(manner=Manner.PACKET)

    def alone(scenario: Scenario) -> Scenario:
        probe = probe_of(scenario, "trace", rest, via=via, node=node, sent=sent, send=send)
        return replace(scenario, probes=(probe,), steps=(), streams=())

    with the_lab(make_session, file, name, adapt=alone, **of_lab) as lab:
        probe = probe_of(lab.scenario, "trace", rest, via=via, node=node, sent=sent, send=send)
        click.echo(f"{lab.scenario.file}: {probe.name}", err=True)
        lab.add(probe)
        errand, evidence = lab.trace(probe)
    click.echo("\n".join(journey(errand, evidence) or ("no rule of any node saw the packet",)))
    return ExitCode.OK
