"""The lab that a verb uses: a running one by its name, or a temporary one that the verb builds from FILE."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from proxylab.cli.case_option import CASE, print_cases
from proxylab.cli.engine import choice_of, engine_options
from proxylab.cli.files import load_all
from proxylab.client.connection import ControlConnection
from proxylab.client.control_sockets import ControlSockets, NoSuchLabError
from proxylab.client.open_lab import OpenLab
from proxylab.client.session import Session
from proxylab.client.standing_lab import attach_to
from proxylab.engines.names import mode_of, version_of
from proxylab.scenario.cases import cases
from proxylab.scenario.model import Scenario

__all__ = ["NAME", "case_of", "complete_names", "lab_options", "standing", "the_lab", "with_file"]

SessionMaker = Callable[..., Session]
Command = TypeVar("Command", bound=Callable[..., Any])

_OF_FILES: Final = ("engine", "kube_proxy", "feature_gates", "flags", "iptables", "case_id")


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of standing labs."""
    return [CompletionItem(name) for name in ControlSockets.of_user().names() if name.startswith(incomplete)]


NAME: Final = click.option(
    "-n",
    "--name",
    metavar="NAME",
    envvar="LAB_NAME",
    shell_complete=complete_names,
    help="The standing lab; by default the only one.",
)


def lab_options(command: Command) -> Command:
    """Add the options that choose a lab: ``--name``, and for a lab of FILE its case and engine."""
    return NAME(CASE(engine_options(command)))


def with_file(words: Sequence[str]) -> tuple[Path | None, tuple[str, ...]]:
    """FILE, if the first word is one, and the other words. No node, pod, host or Service is called ``*.yaml``."""
    if words and words[0].endswith((".yaml", ".yml")):
        path = Path(words[0])
        if not path.is_file():
            raise click.UsageError(
                f"FILE: {words[0]!r} does not exist; name another, or write it with `proxylab init {words[0]}`"
            )
        return path, tuple(words[1:])
    return None, tuple(words)


def case_of(file: Path, engine: str, case_id: str | None) -> Scenario:
    """The case of FILE with this id, or the first; then the ids of all cases go to standard error.

    Raises:
        ScenarioError: the file has mistakes.
        click.UsageError: the file has no such case.
    """
    (written,) = load_all((file,))
    found = cases(written, mode_of(engine), version_of(engine))
    ids = [case.case.id for case in found]
    if not found:
        raise click.UsageError(
            f"FILE: the scenario has no case for {mode_of(engine)}; choose an engine of another mode"
        )
    if case_id is None:
        if len(found) > 1:
            print_cases(str(file), ids)
        return found[0]
    if case_id not in ids:
        raise click.UsageError(f"--case: there is no {case_id!r}; there are {', '.join(filter(None, ids)) or 'none'}")
    return found[ids.index(case_id)]


@contextmanager
def the_lab(
    make_session: SessionMaker | None,
    file: Path | None,
    name: str | None,
    *,
    engine: str,
    case_id: str | None,
    adapt: Callable[[Scenario], Scenario] = lambda scenario: scenario,
    **of_engine: Any,
) -> Iterator[OpenLab]:
    """The lab of FILE, which is closed at the end; without FILE, the standing lab.

    Args:
        make_session: creates the session of FILE's lab.
        file: the scenario, or ``None``.
        name: the standing lab's name, or ``None`` for the only one.
        engine: the engine of FILE's lab.
        case_id: the case of FILE's matrix.
        adapt: changes FILE's scenario before its lab is built.
        of_engine: further options, for ``choice_of``.
    """
    if file is None:
        _refuse_options_of_files()
        with standing(name) as connection:
            yield attach_to(connection)
        return
    if name is not None and _is_typed("name"):
        raise click.UsageError("give FILE, to build a temporary lab, or --name, for a running one, not both")
    scenario = adapt(case_of(file, engine, case_id))
    with (
        (make_session or Session)(choice_of(engine, **of_engine)) as session,
        closing(session.open(scenario)) as lab,
    ):
        yield lab


@contextmanager
def standing(name: str | None, *, or_file: bool = True) -> Iterator[ControlConnection]:
    """A connection to the standing lab of that name, or to the only one.

    ``or_file``: the verb takes a FILE instead, and the error message says so.
    """
    control_sockets = ControlSockets.of_user()
    chosen = name or _only(control_sockets, or_file=or_file)
    try:
        connection = ControlConnection(control_sockets.connect(chosen), chosen)
    except NoSuchLabError:
        names = control_sockets.names()
        there = f"there are {', '.join(names)}" if names else "start one with `proxylab up FILE`"
        raise click.UsageError(f"--name: no lab {chosen!r} is running; {there}") from None
    except TimeoutError:
        raise click.UsageError(f"the lab {chosen} does not answer; stop it with `proxylab down {chosen}`") from None
    with connection:
        yield connection


def _only(control_sockets: ControlSockets, *, or_file: bool) -> str:
    names = control_sockets.names()
    if not names:
        here = ", or give a FILE" if or_file else ""
        raise click.UsageError(f"no lab is running; start one with `proxylab up FILE`{here}")
    if len(names) > 1:
        raise click.UsageError(f"{len(names)} labs are running; choose one with --name: {', '.join(names)}")
    return names[0]


def _refuse_options_of_files() -> None:
    """Refuse engine and case options for a standing lab: it has both already."""
    for option in _OF_FILES:
        if _is_typed(option):
            spelt = {"flags": "--kube-proxy-flag", "case_id": "--case"}.get(option, f"--{option.replace('_', '-')}")
            raise click.UsageError(f"{spelt} is for a temporary lab of FILE, but this lab runs already; leave it out")


def _is_typed(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE
