"""PLACE on the command line: a node, pod or outside host.

Owns: what is said of one that is not there, and what a shell completes.
Must not: ask a lab that hangs for longer than whoever presses the tabulator would wait.
"""

from typing import Final

import click
from click.shell_completion import CompletionItem

from proxylab.cli.files import complete_scenarios
from proxylab.client.connection import ControlConnection
from proxylab.client.control_sockets import ControlSockets, NoSuchLabError
from proxylab.cluster.objects import Service
from proxylab.errors import LabError
from proxylab.protocol.standing_labs import Memory, Remember
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


def check_netns(scenario: Scenario, netns_name: str, word: str = "PLACE") -> None:
    """Raise ``UsageError`` for a place that the scenario has not; ``NODE`` may only be a node."""
    known = [node.name for node in scenario.nodes] if word == "NODE" else netns_names_of(scenario)
    if netns_name not in known:
        raise click.UsageError(f"{word}: there is no {netns_name!r}; there are {', '.join(known)}")


def _remembered(ctx: click.Context) -> Memory | None:
    """What is known of the standing lab that a command line is about; ``None`` if that cannot be told."""
    try:
        control_sockets = ControlSockets.of_user()
        names = control_sockets.names()
        name = ctx.params.get("name") or (names[0] if len(names) == 1 else "")
        if not name:
            return None
        with ControlConnection(control_sockets.connect(name, _SECONDS), name) as connection:
            return connection.request(Remember(), Memory, Deadline.after(_SECONDS))
    except (LabError, NoSuchLabError, TimeoutError):
        return None


def complete_netns(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The places of the lab that stands, for a shell."""
    memory = _remembered(ctx)
    found = [] if memory is None else _items(netns_names_of(memory.scenario), incomplete)
    return found or complete_scenarios(ctx, param, incomplete)


def complete_nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The nodes of the lab that stands, for a shell."""
    memory = _remembered(ctx)
    found = [] if memory is None else _items([node.name for node in memory.scenario.nodes], incomplete)
    return found or complete_scenarios(ctx, param, incomplete)


def complete_netns_and_services(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Places and Services of the lab that stands, for a shell; or scenario files."""
    memory = _remembered(ctx)
    if memory is None:
        return complete_scenarios(ctx, param, incomplete)
    services = [each.name for each in memory.scenario.services]
    return _items([*netns_names_of(memory.scenario), *services], incomplete) or complete_scenarios(
        ctx, param, incomplete
    )


def complete_services(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Services of the lab that stands, for a shell; or scenario files."""
    memory = _remembered(ctx)
    found = [] if memory is None else _items([_called(each) for each in memory.scenario.services], incomplete)
    return found or complete_scenarios(ctx, param, incomplete)


def _called(service: Service) -> str:
    """A Service as it is named where no namespace stands for ``default``."""
    return service.name if service.namespace == "default" else f"{service.namespace}/{service.name}"


def _items(names: list[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]
