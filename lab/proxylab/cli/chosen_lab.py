"""The lab that a verb uses: a running one by its name, or a temporary one that the verb builds from FILE."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Final

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from proxylab.cli.case_option import CaseId, choose_case
from proxylab.cli.engine_options import EngineOptions
from proxylab.cli.options import Option, Options, argument, option, options_of
from proxylab.client.connection import ControlConnection
from proxylab.client.control_sockets import ControlSockets, NoSuchLabError
from proxylab.client.open_lab import OpenLab
from proxylab.client.session import Session, SessionMaker
from proxylab.client.standing_lab import attach_to
from proxylab.engines.engine_names import mode_of, version_of
from proxylab.errors import LabEndedError, LabStuckError
from proxylab.scenario.model import Scenario
from proxylab.scenario.versions import Version


def complete_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of standing labs."""
    return [CompletionItem(name) for name in ControlSockets.of_user().names() if name.startswith(incomplete)]


LabName = Annotated[
    str | None,
    option(
        "--lab",
        "--name",
        metavar="NAME",
        envvar="LAB_NAME",
        shell_complete=complete_names,
        help="The standing lab; by default the only one.",
    ),
]


KubernetesNamespace = Annotated[
    str | None,
    option(
        "-n",
        "--namespace",
        metavar="NAMESPACE",
        help="The Kubernetes namespace of names that are written without one.",
    ),
]


def check_namespace(namespace: str | None, known: Iterable[str]) -> None:
    """Raise ``UsageError`` for a namespace in which the cluster has nothing."""
    there = sorted({*known} - {""})
    if namespace is None or namespace in there:
        return
    if namespace in ControlSockets.of_user().names():
        raise click.UsageError(f"-n: the lab is --lab {namespace} now; -n names a Kubernetes namespace")
    raise click.UsageError(f"-n: there is nothing in a namespace {namespace!r}; there are {', '.join(there)}")


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


def lab_words(metavar: str, complete: Callable[..., list[CompletionItem]], *, required: bool = True) -> Option:
    """The argument of a verb that uses a lab: FILE, if one is given, and what is named in the lab."""
    return argument(nargs=-1, required=required, metavar=metavar, shell_complete=complete)


class LabOptions(Options, frozen=True, kw_only=True):
    """The options that choose a lab: of a standing one its name, of a temporary one of FILE its case and engine.

    ``namespace`` is that of names in the lab which are written without one.
    """

    name: LabName
    namespace: KubernetesNamespace
    case_id: CaseId
    engine: EngineOptions


class ChosenLab:
    """The lab that the command line chooses: a temporary one of FILE, or a standing one.

    Attributes:
        file: the scenario of the temporary lab; ``None`` for a standing lab.
        words: the words of the command line after FILE.
        namespace: that of names without one; empty if the command line has none.
    """

    def __init__(self, words: Sequence[str], options: LabOptions) -> None:
        self.file, self.words = with_file(words)
        self.engine: Final = options.engine.engine
        self.case_id: Final = options.case_id
        self.namespace: Final = options.namespace or ""
        self._options = options.engine
        self._name = options.name
        self._make_session: SessionMaker = click.get_current_context().obj or Session

    @contextmanager
    def opened(
        self,
        adapt: Callable[[Scenario], Scenario] = lambda scenario: scenario,
        choose: Callable[[Path, str | None, str, Version | None], Scenario] = choose_case,
    ) -> Iterator[OpenLab]:
        """The lab. The end of the block closes that of a FILE.

        ``choose`` reads the case of FILE, and ``adapt`` changes its scenario before its lab is built.
        """
        if self.file is None:
            _refuse_options_of_files()
            with standing(self._name) as connection:
                stands = attach_to(connection)
                stands.look_around()
                self._check_namespace(stands.scenario)
                yield stands
            return
        if self._name is not None and _is_typed("name"):
            raise click.UsageError("give FILE, to build a temporary lab, or --lab, for a running one, not both")
        version = version_of(self.engine)
        scenario = choose(self.file, self.case_id, mode_of(self.engine), version)
        self._check_namespace(scenario)
        scenario = adapt(scenario)
        with self._make_session(self._options.announced_choice()) as session, closing(session.open(scenario)) as lab:
            yield lab

    def _check_namespace(self, scenario: Scenario) -> None:
        of_pods = (each.namespace for each in scenario.pods)
        check_namespace(self.namespace or None, ["default", *of_pods, *(each.namespace for each in scenario.services)])


@contextmanager
def standing(name: str | None, *, or_file: bool = True) -> Iterator[ControlConnection]:
    """A connection to the standing lab of that name, or to the only one.

    ``or_file``: the verb takes a FILE instead, and the error message says so.
    """
    control_sockets = ControlSockets.of_user()
    chosen = name or _only(control_sockets, or_file=or_file)
    try:
        connection = ControlConnection(control_sockets, chosen)
    except NoSuchLabError:
        if how := control_sockets.how_it_ended(chosen):
            raise LabEndedError(f"the lab {chosen} has ended: {how}; start it again with `proxylab up FILE`") from None
        names = control_sockets.names()
        there = f"there are {', '.join(names)}" if names else "start one with `proxylab up FILE`"
        raise click.UsageError(f"--lab: no lab {chosen!r} is running; {there}") from None
    except TimeoutError:
        why = control_sockets.stuck_process_of(chosen)
        words = f"the lab {chosen} does not answer{f': {why}' if why else ''}; stop it with `proxylab down {chosen}`"
        raise LabStuckError(words) from None
    with connection:
        yield connection


def _only(control_sockets: ControlSockets, *, or_file: bool) -> str:
    names = control_sockets.names()
    if not names and (ended := control_sockets.ended()):
        words = "\n".join(f"the lab {name} has ended: {how}" for name, how in ended)
        raise LabEndedError(f"{words}; start it again with `proxylab up FILE`")
    if not names:
        here = ", or give a FILE" if or_file else ""
        raise click.UsageError(f"no lab is running; start one with `proxylab up FILE`{here}")
    if len(names) > 1:
        raise click.UsageError(f"{len(names)} labs are running; choose one with --lab: {', '.join(names)}")
    return names[0]


def _refuse_options_of_files() -> None:
    """Refuse engine and case options for a standing lab: it has both already."""
    spellings = {**{name: each.spelt for name, each in options_of(EngineOptions)}, "case_id": "--case"}
    for name, spelt in spellings.items():
        if _is_typed(name):
            raise click.UsageError(f"{spelt} is for a temporary lab of FILE, but this lab runs already; leave it out")


def _is_typed(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is ParameterSource.COMMANDLINE
