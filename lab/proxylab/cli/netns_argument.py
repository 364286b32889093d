"""NODE|POD|HOST on the command line: check the name, and complete it in a shell.

Completion asks the standing lab for its names, and gives up after a second: the user waits at the prompt.
"""

from collections.abc import Callable
from typing import Final

import click
from click.shell_completion import CompletionItem

from proxylab.cli.scenario_files import complete_scenarios
from proxylab.client.connection import ControlConnection
from proxylab.client.control_sockets import ControlSockets, NoSuchLabError
from proxylab.errors import LabError
from proxylab.protocol.standing_labs import LabRecord, Remember
from proxylab.scenario.model import Scenario
from proxylab.timing import Deadline

_ANSWER_SECONDS: Final = 1.0


def _netns_names_of(scenario: Scenario) -> list[str]:
    """Nodes, pods and hosts, in this order."""
    return [*(node.name for node in scenario.nodes), *pods_of(scenario), *(host.name for host in scenario.hosts)]


_KINDS: Final = {
    **dict.fromkeys(("svc", "service", "services"), "service"),
    **dict.fromkeys(("po", "pod", "pods"), "pod"),
    **dict.fromkeys(("no", "node", "nodes"), "node"),
}
"""The kinds that kubectl writes before a name, as in svc/echo."""


def kind_and_name(text: str) -> tuple[str, str]:
    """The kind before a name, in one word, or empty; and the name, which may be ``NAMESPACE/NAME``."""
    before, slash, name = text.partition("/")
    return (_KINDS[before], name) if slash and before in _KINDS else ("", text)


def pods_of(scenario: Scenario) -> list[str]:
    """The names of all pods."""
    return [name for group in scenario.pods for name in group.pod_names]


def pod_of(scenario: Scenario, text: str, namespace: str = "") -> str:
    """The pod that ``NAME`` or ``NAMESPACE/NAME`` means, by its name in the plan; empty without one.

    One that is there goes before one of the same name that is gone, or is yet to come. ``namespace`` is that of a name
    without one; if it is empty, any.
    """
    written, _, name = text.rpartition("/")
    wanted = written or namespace
    for group in sorted(scenario.pods, key=lambda each: not each.present):
        if wanted in ("", group.namespace):
            for each in group.pod_names:
                if each in (name, f"{name}.{group.namespace}"):
                    return each
    return ""


def find_netns(scenario: Scenario, text: str, namespace: str = "", word: str = "NODE|POD|HOST") -> str:
    """The node, pod or host that a name means, which may have its kind or a namespace before it.

    Raises:
        click.UsageError: there is none.
    """
    kind, name = kind_and_name(text)
    if kind in ("", "pod") and (pod := pod_of(scenario, name, namespace)):
        return pod
    machines = {"": [each.name for each in scenario.machines], "node": _nodes_of(scenario)}.get(kind, [])
    if name in machines:
        return name
    known = ", ".join([*machines, *(pods_of(scenario) if kind in ("", "pod") else ())]) or "none"
    raise click.UsageError(f"{word}: there is no {text!r}; there are {known}")


def check_netns(scenario: Scenario, netns_name: str, word: str = "NODE|POD|HOST") -> None:
    """Raise ``UsageError`` for a name that the scenario does not have; ``NODE`` may only be a node."""
    known = _nodes_of(scenario) if word == "NODE" else _netns_names_of(scenario)
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
        with ControlConnection(control_sockets, name, _ANSWER_SECONDS) as connection:
            return connection.request(Remember(), Deadline.after(_ANSWER_SECONDS))
    except (LabError, NoSuchLabError, TimeoutError):
        return None


Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completing(names: Callable[[Scenario], list[str]]) -> Completion:
    """A completion with the standing lab's names that begin as the word does, or else with scenario files."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        record = _record_of_lab(ctx)
        known = [] if record is None else [name for name in names(record.scenario) if name.startswith(incomplete)]
        return [CompletionItem(name) for name in dict.fromkeys(known)] or complete_scenarios(ctx, param, incomplete)

    return complete


def _nodes_of(scenario: Scenario) -> list[str]:
    return [node.name for node in scenario.nodes]


def services_of(scenario: Scenario) -> list[str]:
    """The names of Services, with their namespace unless that is ``default``."""
    return [each.name if each.namespace == "default" else f"{each.namespace}/{each.name}" for each in scenario.services]


complete_nodes: Final = _completing(_nodes_of)
complete_netns: Final = _completing(_netns_names_of)
complete_services: Final = _completing(services_of)
complete_netns_and_services: Final = _completing(lambda scenario: [*_netns_names_of(scenario), *services_of(scenario)])
