"""FROM and TO on the command line: whom a packet comes from, and what it is sent to.

Owns: the arguments and options, and the probe that they stand for.
Must not: send anything.
"""

from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, Final, TypeVar

import click

from proxylab.addresses import Transport
from proxylab.cli.netns import check_netns
from proxylab.scenario.model import (
    AddressTarget,
    Expect,
    Frontend,
    HostTarget,
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

__all__ = ["dial_options", "probe_of"]

Command = TypeVar("Command", bound=Callable[..., Any])

_FRONTS: Final = (
    Frontend.CLUSTER_IP,
    Frontend.NODE_PORT,
    Frontend.EXTERNAL_IP,
    Frontend.LOAD_BALANCER_IP,
    Frontend.DNS_NAME,
)

_LAST_PORT: Final = 65535

_OPTIONS: Final = (
    click.option(
        "--via",
        type=click.Choice([frontend.value for frontend in _FRONTS]),
        default=Frontend.CLUSTER_IP.value,
        show_default=True,
        help="The front of a Service that is dialled.",
    ),
    click.option("--node", help="The node that is dialled, or that the router hands the packet to."),
    click.option(
        "--udp",
        "sent",
        flag_value=Transport.UDP.value,
        help="Send a datagram; without it, the protocol of the port that is dialled.",
    ),
    click.option("--icmp", "sent", flag_value=Transport.ICMP.value, help="Send an echo request, which has no port."),
)


def dial_options(command: Command) -> Command:
    """Give a command the options that say how TO is dialled: ``via``, ``node`` and ``sent``."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def probe_of(
    scenario: Scenario,
    verb: str,
    words: tuple[str, ...],
    *,
    via: str,
    node: str | None,
    sent: str | None,
    send: Send,
    outcome: Outcome = Outcome.DELIVERED,
) -> Probe:
    """The probe that FROM and TO stand for.

    Args:
        scenario: of the lab.
        verb: which says so, for where the probe is written.
        words: FROM and TO.
        via: the front of a Service.
        node: that is dialled, or ``None``.
        sent: the protocol, or ``None``: that of the port that is dialled.
        send: how it is sent; its protocol follows from ``sent``.
        outcome: what is expected of it.

    Raises:
        click.UsageError: they name nothing of the scenario, or there are not two.
    """
    if len(words) != 2:
        raise click.UsageError(f"FROM and TO: name a place and what it dials, as in `proxylab {verb} client echo`")
    sender, target = words
    source = _source(scenario, sender, send)
    netns_name = Position(f"proxylab {verb} {sender} {target}", 1, 1)
    protocol = Transport(sent) if sent else None
    return Probe(
        name=f"{sender} to {target}",
        source=source,
        target=_target(scenario, target, Frontend(via), node, echo=protocol is Transport.ICMP),
        send=Send(protocol=protocol, manner=send.manner, flows=send.flows),
        expect=Expect(outcome=outcome, position=netns_name),
        position=netns_name,
    )


def _source(scenario: Scenario, text: str, send: Send) -> Source:
    """Who sends, and from which port, if one is named behind a colon.

    Raises:
        click.UsageError: nobody is called so, no port is written so, or it is to be the port of several flows.
    """
    name, colon, port = text.partition(":")
    check_netns(scenario, name, "FROM")
    if not colon:
        return Source(name=name)
    if not port.isdigit() or not 0 < int(port) <= _LAST_PORT:
        raise click.UsageError(f"FROM: {port!r} is no port; write one of 1 to {_LAST_PORT}, as in {name}:12345")
    if send.flows > 1:
        raise click.UsageError("--flows: flows from one fixed port are one flow; leave the port of FROM away")
    return Source(name=name, port=int(port))


def _target(scenario: Scenario, text: str, via: Frontend, node: str | None, *, echo: bool) -> Target:
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
        there = ", ".join(dict.fromkeys(_known(scenario)))
        raise click.UsageError(f"TO: {text!r} is no Service and no pod; there are {there}; or ADDRESS:PORT")
    if any(host.name == name for host in scenario.hosts):
        return HostTarget(host=name, port=number)
    try:
        return AddressTarget(address=ip_address(name.strip("[]")), port=number)
    except ValueError:
        there = ", ".join([*dict.fromkeys(_known(scenario)), *(host.name for host in scenario.hosts)])
        raise click.UsageError(
            f"TO: {name!r} is no Service, pod, host or address of the scenario; there are {there}; or ADDRESS:PORT"
        ) from None


def _known(scenario: Scenario) -> list[str]:
    """Services and pods."""
    return [each.name for each in scenario.services] + [pod for group in scenario.pods for pod in group.pod_names]
