"""``proxylab trace``: one packet through the lab of a scenario, and its whole way in words.

Owns: the verb's options, and the probe that they stand for.
Must not: judge; nothing is expected of the packet.
"""

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import click

from lab.cli.engine import choice_of, engine_options
from lab.cli.files import load_all
from lab.engines.names import mode_of, version_of
from lab.errors import ExitCode
from lab.ip import Transport
from lab.scenario.cases import cases
from lab.scenario.model import (
    AddressTarget,
    Expect,
    Front,
    HostTarget,
    Manner,
    Outcome,
    PodTarget,
    Position,
    Probe,
    Scenario,
    Send,
    ServiceTarget,
    Source,
    Target,
)
from lab.session import Session
from lab.verdict.journey import journey

__all__ = ["command"]

SessionMaker = Callable[..., Session]

_FRONTS: Final = (Front.CLUSTER_IP, Front.NODE_PORT, Front.EXTERNAL_IP, Front.LOAD_BALANCER_IP)


@click.command("trace", short_help="Send one packet through a scenario's lab and tell its way, rule by rule.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("sender", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--via", type=click.Choice([front.value for front in _FRONTS]), default=Front.CLUSTER_IP.value,
              show_default=True, help="The front of a Service that is dialled.")  # fmt: skip
@click.option("--node", help="The node that is dialled, or that the router hands the packet to.")
@click.option(
    "--udp",
    "sent",
    flag_value=Transport.UDP.value,
    help="Send a datagram; without it, the protocol of the port that is dialled.",
)
@click.option("--icmp", "sent", flag_value=Transport.ICMP.value, help="Send an echo request, which has no port.")
@engine_options
@click.pass_obj
def command(
    make_session: SessionMaker | None,
    /,
    *,
    file: Path,
    sender: str,
    target: str,
    via: str,
    node: str | None,
    sent: str | None,
    engine: str,
    **of_engine: Any,
) -> ExitCode:
    """Build the lab of the scenario FILE, send one packet FROM a pod, host or node, and tell its way there and back.

    TO is a Service, a pod, a host or an address, each with :PORT behind it where it has several ports or none.

    Example: proxylab trace scenarios/clusterip/from-a-pod.lab.yaml client echo
    """
    (written,) = load_all((file,))
    scenario = next(iter(cases(written, mode_of(engine), version_of(engine))), None)
    if scenario is None:
        raise click.UsageError(f"FILE: the scenario has no case for {mode_of(engine)}")
    protocol = Transport(sent) if sent else None
    probe = Probe(
        name=f"{sender} to {target}",
        source=Source(name=sender),
        target=_target(scenario, target, Front(via), node, echo=protocol is Transport.ICMP),
        send=Send(protocol=protocol, manner=Manner.PACKET),
        expect=Expect(outcome=Outcome.DELIVERED, position=_command_line(sender, target)),
        position=_command_line(sender, target),
    )
    with (
        (make_session or Session)(choice_of(engine, **of_engine)) as session,
        closing(session.open(replace(scenario, probes=(probe,)))) as lab,
    ):
        click.echo(f"{scenario.file}: {probe.name}", err=True)
        errand, evidence = lab.trace(probe)
    click.echo("\n".join(journey(errand, evidence) or ("no rule of any node saw the packet",)), file=sys.stdout)
    return ExitCode.OK


def _command_line(sender: str, target: str) -> Position:
    """Where the probe is written: in the second and third argument."""
    return Position(f"trace {sender} {target}", 1, 1)


def _target(scenario: Scenario, text: str, via: Front, node: str | None, *, echo: bool = False) -> Target:
    """What TO names. An echo request has no port.

    Raises:
        click.UsageError: it names nothing of the scenario, or lacks its port.
    """
    name, _, port = text.rpartition(":") if ":" in text and not echo else (text, "", "")
    number = int(port) if port.isdigit() else None
    namespace, _, service = name.rpartition("/")
    if any((each.namespace, each.name) == (namespace or "default", service) for each in scenario.services):
        wanted: str | int | None = number if number is not None else port or None
        return ServiceTarget(service=service, namespace=namespace or "default", port=wanted, via=via, node=node)
    if any(name in group.pod_names for group in scenario.pods):
        return PodTarget(pod=name, port=number)
    if number is None and not echo:
        known = [each.name for each in scenario.services]
        known += [pod for group in scenario.pods for pod in group.pod_names]
        raise click.UsageError(
            f"TO: {text!r} is no Service and no pod; there are {', '.join(dict.fromkeys(known))}; or ADDRESS:PORT"
        )
    if any(host.name == name for host in scenario.hosts):
        return HostTarget(host=name, port=number)
    try:
        return AddressTarget(address=ip_address(name.strip("[]")), port=number)
    except ValueError:
        raise click.UsageError(f"TO: {name!r} is no Service, pod, host or address of the scenario") from None
