"""FROM and TO on the command line: the sender and the target of a packet."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Annotated, Final

import click
from msgspec.structs import replace

from proxylab.addresses import Transport
from proxylab.cli.chosen_lab import ChosenLab
from proxylab.cli.netns_argument import find_netns, kind_and_name, pod_of, pods_of, services_of
from proxylab.cli.options import Options, option
from proxylab.cli.standard_streams import echo
from proxylab.client.open_lab import OpenLab
from proxylab.plan.lookup import own_addresses_of
from proxylab.plan.topology import draw
from proxylab.scenario.expect import Expect
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import AddressTarget, HostTarget, PodTarget, Probe, Send, ServiceTarget, Source, Target
from proxylab.scenario.targets import FRONTENDS_OF_PORTS
from proxylab.scenario.words import Frontend, Outcome, Position

_FRONTENDS: Final = (*FRONTENDS_OF_PORTS, Frontend.DNS_NAME)

_LAST_PORT: Final = 65535


class DialOptions(Options, frozen=True, kw_only=True):
    """How to dial TO. ``sent`` is the protocol, ``None`` for that of the dialled port."""

    via: Annotated[
        str,
        option(
            "--via",
            type=click.Choice([frontend.value for frontend in _FRONTENDS]),
            default=Frontend.CLUSTER_IP.value,
            show_default=True,
            help="The frontend of the Service to dial.",
        ),
    ]
    node: Annotated[
        str | None,
        option("--node", metavar="NAME", help="The node to dial, or the node to which the router sends the packet."),
    ]
    sent: Annotated[
        str | None,
        option("--udp", flag_value=Transport.UDP.value, help="Send UDP; by default the protocol of the dialled port."),
        option("--icmp", flag_value=Transport.ICMP.value, help="Send an ICMP echo request, which has no port."),
    ]


@contextmanager
def opened_for(chosen: ChosenLab, describe: Callable[[Scenario], Probe]) -> Iterator[tuple[OpenLab, Probe]]:
    """The chosen lab with the probe that ``describe`` makes of its scenario; a lab of FILE has no other probe."""

    def alone(scenario: Scenario) -> Scenario:
        return replace(scenario, probes=(describe(scenario),), steps=(), streams=())

    with chosen.opened(alone) as lab:
        probe = describe(lab.scenario)
        echo(f"{lab.scenario.file}: {probe.name}", err=True)
        lab.add(probe)
        yield lab, probe


def probe_of(
    scenario: Scenario,
    verb: str,
    words: tuple[str, ...],
    dial: DialOptions,
    *,
    send: Send,
    outcome: Outcome = Outcome.DELIVERED,
    namespace: str = "",
) -> Probe:
    """The probe that FROM and TO describe.

    The protocol of ``send`` follows from ``dial``. ``namespace`` is that of names without one.
    Raises ``click.UsageError``.
    """
    if len(words) != 2:
        raise click.UsageError(f"FROM and TO: name a sender and a target, as in `proxylab {verb} client echo`")
    sender, target = words
    source = _source(scenario, sender, send, namespace)
    position = Position(f"proxylab {verb} {sender} {target}", 1, 1)
    protocol = Transport(dial.sent) if dial.sent else None
    return Probe(
        name=f"{sender} to {target}",
        source=source,
        target=_target(
            scenario, target, Frontend(dial.via), dial.node, echo=protocol is Transport.ICMP, home=namespace
        ),
        send=Send(protocol=protocol, manner=send.manner, flows=send.flows, payload=send.payload),
        expect=Expect(outcome=outcome, position=position),
        position=position,
    )


def _source(scenario: Scenario, text: str, send: Send, namespace: str) -> Source:
    """The sender, and its source port if FROM has one after a colon.

    Raises:
        click.UsageError: FROM names no sender or no port, or several flows would share the port.
    """
    asked, colon, port = text.partition(":")
    name = find_netns(scenario, asked, namespace, "FROM")
    if not colon:
        return Source(name=name)
    if not port.isdigit() or not 0 < int(port) <= _LAST_PORT:
        raise click.UsageError(f"FROM: {port!r} is no port; write 1 to {_LAST_PORT}, as in {name}:12345")
    if (send.flows or 1) > 1:
        raise click.UsageError("--flows: flows from one fixed port are one flow; leave out the port of FROM")
    return Source(name=name, port=int(port))


def _target(scenario: Scenario, text: str, via: Frontend, node: str | None, *, echo: bool, home: str) -> Target:
    """The target that TO names. An echo request has no port; ``home`` is the namespace of a name without one.

    Raises:
        click.UsageError: TO names nothing of the scenario, or lacks its port.
    """
    asked, _, port = text.rpartition(":") if ":" in text and not echo else (text, "", "")
    number = int(port) if port.isdigit() else None
    kind, name = kind_and_name(asked)
    namespace, _, service = name.rpartition("/")
    namespace = namespace or home or "default"
    if kind in ("", "service") and any(
        (each.namespace, each.name) == (namespace, service) for each in scenario.services
    ):
        wanted: str | int | None = number if number is not None else port or None
        return ServiceTarget(service=service, namespace=namespace, port=wanted, via=via, node=node)
    if kind in ("", "pod") and (pod := pod_of(scenario, name, home)):
        return PodTarget(pod=pod, port=number)
    if kind in ("service", "pod"):
        there = ", ".join(services_of(scenario) if kind == "service" else pods_of(scenario)) or "none"
        raise click.UsageError(f"TO: there is no {kind} {name!r}; there are {there}")
    machines = [*(each.name for each in scenario.nodes), *(each.name for each in scenario.hosts)]
    if number is None and not echo and name in machines:
        raise click.UsageError(f"TO: {text!r} has no port; write {name}:PORT, such as {name}:30080 for a node port")
    if number is None and not echo:
        there = ", ".join(_known(scenario))
        raise click.UsageError(f"TO: {text!r} is no Service and no pod; there are {there}; or NODE:PORT, ADDRESS:PORT")
    if any(node.name == name for node in scenario.nodes):
        primary = own_addresses_of(draw(scenario).namespace(name))[0]  # node ports are served there
        return AddressTarget(address=primary, port=number)
    if any(host.name == name for host in scenario.hosts):
        return HostTarget(host=name, port=number)
    try:
        return AddressTarget(address=ip_address(name.strip("[]")), port=number)
    except ValueError:
        there = ", ".join([*_known(scenario), *machines])
        raise click.UsageError(
            f"TO: {name!r} is no Service, pod, node, host or address of the scenario; there are {there}; "
            "or ADDRESS:PORT"
        ) from None


def _known(scenario: Scenario) -> list[str]:
    """The Services, as TO names them, and all pods."""
    return list(dict.fromkeys([*services_of(scenario), *pods_of(scenario)]))
