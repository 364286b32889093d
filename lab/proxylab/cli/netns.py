"""NODE|POD|HOST on the command line: check the name, and complete it in a shell.

Completion asks the standing lab for its names, and gives up after a second: the user waits at the prompt.
"""

from typing import Final

import click
from click.shell_completion import CompletionItem

from proxylab.cli.files import complete_scenarios
from proxylab.client.connection import ControlConnection
from proxylab.client.control_sockets import ControlSockets, NoSuchLabError
from proxylab.cluster.objects import Service
from proxylab.errors import LabError
from proxylab.protocol.standing_labs import LabRecord, Remember
from proxylab.scenario.model import Scenario
from proxylab.timing import Deadline

__all__ = [
    "check_netns",
    "complete_netns",
    "complete_netns_and_services",
    "complete_nodes",
    "complete_services",
    "netns_names_of",
]

_SECONDS: Final = 1.0


def netns_names_of(scenario: Scenario) -> list[str]:
    """Nodes, pods and hosts, in this order."""
    pods = [name for group in scenario.pods for name in group.pod_names]
    return [*(node.name for node in scenario.nodes), *pods, *(host.name for host in scenario.hosts)]


def check_netns(scenario: Scenario, netns_name: str, word: str = "NODE|POD|HOST") -> None:
    """Raise ``UsageError`` for a name that the scenario does not have; ``NODE`` may only be a node."""
    known = [node.name for node in scenario.nodes] if word == "NODE" else netns_names_of(scenario)
    if netns_name not in known:
        raise click.UsageError(f"{word}: there is no {netns_name!r}; there are {', '.join(known)}")


def _record_of_lab(ctx: click.Context) -> LabRecord | None:
    """The scenario of the standing lab that the command line names; ``None`` if no lab answers."""
    try:
        control_sockets = ControlSockets.of_user()
        names = control_sockets.names()
        name = ctx.params.get("name") or (names[0] if len(names) == 1 else "")
        if not name:
            return None
        with ControlConnection(control_sockets.connect(name, _SECONDS), name) as connection:
            return connection.request(Remember(), LabRecord, Deadline.after(_SECONDS))
    except (LabError, NoSuchLabError, TimeoutError):
        return None


def complete_netns(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete nodes, pods and hosts of the standing lab."""
    record = _record_of_lab(ctx)
    found = [] if record is None else _items(netns_names_of(record.scenario), incomplete)
    return found or complete_scenarios(ctx, param, incomplete)


def complete_nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete nodes of the standing lab."""
    record = _record_of_lab(ctx)
    found = [] if record is None else _items([node.name for node in record.scenario.nodes], incomplete)
    return found or complete_scenarios(ctx, param, incomplete)


def complete_netns_and_services(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete nodes, pods, hosts and Services of the standing lab, or scenario files."""
    record = _record_of_lab(ctx)
    if record is None:
        return complete_scenarios(ctx, param, incomplete)
    services = [each.name for each in record.scenario.services]
    return _items([*netns_names_of(record.scenario), *services], incomplete) or complete_scenarios(
        ctx, param, incomplete
    )


def complete_services(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete Services of the standing lab, or scenario files."""
    record = _record_of_lab(ctx)
    found = [] if record is None else _items([_called(each) for each in record.scenario.services], incomplete)
    return found or complete_scenarios(ctx, param, incomplete)


def _called(service: Service) -> str:
    """The name of a Service, with its namespace unless that is ``default``."""
    return service.name if service.namespace == "default" else f"{service.namespace}/{service.name}"


def _items(names: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]
