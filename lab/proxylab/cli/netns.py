"""PLACE on the command line: a node, pod or outside host.

Owns: what is said of one that is not there, and what a shell completes.
Must not: ask a lab that hangs for longer than whoever presses the tabulator would wait.
"""

from typing import Final

import click
from click.shell_completion import CompletionItem

from proxylab.cli.files import complete_scenarios
from proxylab.cluster.objects import Service
from proxylab.client.control_sockets import Doors, NoSuchLabError
from proxylab.errors import LabError
from proxylab.client.connection import Visit
from proxylab.scenario.model import Scenario
from proxylab.timing import Deadline
from proxylab.protocol.standing_labs import Memory, Remember

__all__ = [
    "check_place",
    "complete_nodes",
    "complete_places",
    "complete_places_and_services",
    "complete_services",
    "places_of",
]

_SECONDS: Final = 1.0


def places_of(scenario: Scenario) -> list[str]:
    """Nodes, pods and hosts, in this order."""
    pods = [name for group in scenario.pods for name in group.pod_names]
    return [*(node.name for node in scenario.nodes), *pods, *(host.name for host in scenario.hosts)]


def check_place(scenario: Scenario, place: str, word: str = "PLACE") -> None:
    """Raise ``UsageError`` for a place that the scenario has not; ``NODE`` may only be a node."""
    known = [node.name for node in scenario.nodes] if word == "NODE" else places_of(scenario)
    if place not in known:
        raise click.UsageError(f"{word}: there is no {place!r}; there are {', '.join(known)}")


def _remembered(ctx: click.Context) -> Memory | None:
    """What is known of the standing lab that a command line is about; ``None`` if that cannot be told."""
    try:
        doors = Doors.of_user()
        names = doors.names()
        name = ctx.params.get("name") or (names[0] if len(names) == 1 else "")
        if not name:
            return None
        with Visit(doors.connect(name, _SECONDS), name) as line:
            return line.request(Remember(), Memory, Deadline.after(_SECONDS))
    except (LabError, NoSuchLabError, TimeoutError):
        return None


def complete_places(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The places of the lab that stands, for a shell."""
    memory = _remembered(ctx)
    found = [] if memory is None else _items(places_of(memory.scenario), incomplete)
    return found or complete_scenarios(ctx, param, incomplete)


def complete_nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The nodes of the lab that stands, for a shell."""
    memory = _remembered(ctx)
    found = [] if memory is None else _items([node.name for node in memory.scenario.nodes], incomplete)
    return found or complete_scenarios(ctx, param, incomplete)


def complete_places_and_services(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Places and Services of the lab that stands, for a shell; or scenario files."""
    memory = _remembered(ctx)
    if memory is None:
        return complete_scenarios(ctx, param, incomplete)
    services = [each.name for each in memory.scenario.services]
    return _items([*places_of(memory.scenario), *services], incomplete) or complete_scenarios(ctx, param, incomplete)


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
