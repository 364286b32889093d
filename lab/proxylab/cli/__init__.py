"""The ``proxylab`` command: a module per verb.

A verb's module is imported only when the verb is called: ``check`` answers in a fraction of a second because it never
loads what ``run`` needs. This module also turns an error into a message and an exit code.
"""

import difflib
import gc
import importlib
import keyword
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

import click

from proxylab import __version__
from proxylab.cli.standard_streams import flush, is_of_output, open_closed_streams
from proxylab.errors import ExitCode, InternalError, LabEndedError, LabError

if TYPE_CHECKING:
    from proxylab.cli.scenario_results import SessionMaker

__all__ = ["main", "proxylab"]

_INTERRUPTED: Final = 130  # 128 + SIGINT, as a shell counts

_NEW_OBJECTS: Final = 100_000
"""How many new objects start Python's garbage collector.

Reading a large file makes millions of objects that stay, and with Python's default of 700 the collector takes half of
its time."""

_HYPHEN: Final = "\N{NON-BREAKING HYPHEN}"
"""Replaces a hyphen while the formatter breaks lines."""

_VERBS: Final = {
    "apply": "Change a standing lab to match its edited scenario.",
    "capture": "Capture frames as text, as pcapng or in Wireshark.",
    "check": "Report every mistake in scenario files; run nothing.",
    "completion": "Print the completion script for bash, fish or zsh.",
    "conformance": "Run the catalogue on a proxy; print a table by theme.",
    "describe": "Describe a node, pod, Service or outside host of a lab.",
    "diagnose": "Check a Service stage by stage; report where it breaks.",
    "diff": "Run the same probes on several engines and compare.",
    "doctor": "Check that this machine can run labs; print the fixes.",
    "down": "Stop and remove standing labs.",
    "engines": "List engines, and the sources of kube-proxy binaries.",
    "exec": "Run a command in a node, pod or host.",
    "get": "List nodes, pods, Services or endpoints of a lab.",
    "graph": "Draw a scenario's network as text, Mermaid or SVG.",
    "import": "Write a scenario from kubectl's output of a live cluster.",
    "init": "Write an example scenario, or set up a repository.",
    "judge": "Judge recorded probes and steps again.",
    "kernels": "List the kernels that labs can run on; build one.",
    "logs": "Print the log of a node's engine.",
    "merge": "Merge the reports of several runs, or of shards.",
    "mutate": "Change each rule, and report which probe notices.",
    "plan": "Show a scenario's nodes, pods, addresses and devices.",
    "probe": "Send one probe and explain the result.",
    "ps": "List the standing labs.",
    "rules": "Print the rules of a node.",
    "run": "Run scenarios and judge every probe.",
    "schema": "Print the format of scenarios as JSON Schema.",
    "semantics": "List Kubernetes' promises for Services, with their probes.",
    "shell": "Open a shell in a node, pod or host.",
    "trace": "Trace one packet, rule by rule.",
    "up": "Start the lab of a scenario and leave it running.",
    "watch": "Judge a scenario again at each save, in a lab that stands.",
}

_EPILOG: Final = """\
\b
Exit codes:
  0  every expectation held
  1  an expectation or an engine failed
  2  a scenario or the command line is invalid
  3  proxylab has a bug: please report it
  4  this machine lacks something that the lab needs
  5  nothing was selected
  6  nothing failed, but a verdict was inconclusive
130  interrupted; the lab was cleaned up first
"""


class _Formatter(click.HelpFormatter):
    """Breaks lines of help at blanks only: the name of an option or engine stays whole, so that users can copy it."""

    def write_text(self, text: str) -> None:
        super().write_text(_whole(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(term, _whole(meaning)) for term, meaning in rows], col_max, col_spacing)

    def write(self, string: str) -> None:
        super().write(string.replace(_HYPHEN, "-"))


def _whole(text: str) -> str:
    return text.replace("-", _HYPHEN)


class _Context(click.Context):
    formatter_class = _Formatter


class _Verbs(click.Group):
    """A group whose commands are modules of this package."""

    context_class = _Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        command: click.Command = importlib.import_module(f"proxylab.cli.{_module(cmd_name)}").command
        command.context_class = _Context
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in _VERBS:
            ctx.fail(f"there is no verb {args[0]!r}; {_suggestion(args[0])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(sorted(_VERBS.items()))


def _suggestion(word: str) -> str:
    """The known verb closest to an unknown one, or all of them."""
    near = difflib.get_close_matches(word, _VERBS, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(_VERBS))}"


def _module(verb: str) -> str:
    """The module of a verb: a Python keyword gets an underscore, since ``import`` cannot be a module's name."""
    return f"{verb}_" if keyword.iskeyword(verb) else verb


@click.group(
    cls=_Verbs,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "LAB"},
)
@click.version_option(__version__, prog_name="proxylab")
def proxylab() -> None:
    """Prove Kubernetes Service proxies on a real kernel.

    Results go to standard output, progress to standard error.

    Example: proxylab run scenarios/clusterip/from-a-pod.lab.yaml
    """


def main(arguments: Sequence[str] | None = None, make_session: "SessionMaker | None" = None) -> NoReturn:
    """Run one verb and exit with a code that ``--help`` lists.

    Args:
        arguments: the command line; by default that of the process.
        make_session: creates the run's session; by default ``proxylab.client.session.Session``.
    """
    code: int
    gc.set_threshold(_NEW_OBJECTS)
    if open_closed_streams():
        code = _print_error("standard output is closed; redirect it to a file or to /dev/null", ExitCode.SCENARIO)
    else:
        code = _exit_code(lambda: proxylab.main(arguments, "proxylab", standalone_mode=False, obj=make_session))
    if (error := flush()) is not None:
        code = _print_output_error(error)
    sys.exit(code)


def _exit_code(verb: Callable[[], object]) -> int:
    """Run a verb, print its error, and return its exit code."""
    try:
        code = verb()
    except click.ClickException as error:
        with suppress(OSError):  # standard error may be closed
            error.show()
        return error.exit_code
    except click.Abort:  # click raises it on Ctrl-C
        return _INTERRUPTED
    except InternalError as error:
        if not isinstance(error, LabEndedError):
            return _report(error)
        return _print_error(str(error), error.exit_code)
    except LabError as error:
        return _print_error(str(error), error.exit_code)
    except Exception as error:  # a bug of proxylab, unless standard output cannot be written
        if not is_of_output(error):
            return _report(error)
        flush()
        return _print_output_error(error)
    return code if isinstance(code, int) else ExitCode.OK


def _print_error(line: str, code: ExitCode) -> ExitCode:
    """Print an error on standard error, unless that is closed: the exit code says it too."""
    with suppress(OSError):
        click.echo(line, err=True)
    return code


def _print_output_error(error: Exception) -> ExitCode:
    why = getattr(error, "strerror", None) or str(error)
    return _print_error(f"cannot write standard output: {why}; redirect it to another file", ExitCode.SCENARIO)


def _report(error: Exception) -> ExitCode:
    """Print a traceback: users see one only for a bug of proxylab."""
    click.echo("".join(traceback.format_exception(error)), nl=False, err=True)
    click.echo(f"proxylab {__version__} has a bug; please report the lines above with your scenario", err=True)
    return ExitCode.INTERNAL
