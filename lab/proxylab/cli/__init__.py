"""The ``proxylab`` command: a module per verb.

Owns: the list of verbs, and what becomes of an error on its way to the user.
Must not: import a verb's module before that verb is asked for: ``check`` answers in a fraction of a second because it
never loads what ``run`` needs.
"""

import difflib
import importlib
import keyword
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

import click

from proxylab import __version__
from proxylab.cli.streams import flush, is_of_output, open_closed_streams
from proxylab.errors import ExitCode, InternalError, LabEndedError, LabError

if TYPE_CHECKING:
    from proxylab.cli.run import SessionMaker

__all__ = ["main", "proxylab"]

_INTERRUPTED: Final = 130  # 128 + SIGINT, as a shell counts

_HYPHEN: Final = "\N{NON-BREAKING HYPHEN}"
"""Stands for a hyphen while lines of help are broken."""

_VERBS: Final = {
    "apply": "Bring a standing lab to an edited file.",
    "capture": "Show what crosses a device, as lines, as a file or in Wireshark.",
    "check": "Say every mistake of scenario files, and run nothing.",
    "completion": "Print what makes bash or zsh complete names.",
    "describe": "Describe a node, pod, Service or outside host of a lab.",
    "diagnose": "Look at every station of a Service, and say where it breaks.",
    "diff": "Run the same probes on several engines, and say what differs.",
    "doctor": "Say what this machine can do for a lab, and what would cure the rest.",
    "down": "End standing labs.",
    "engines": "List what can be run, and where a kube-proxy can be had.",
    "exec": "Run a command in a node, pod or host.",
    "get": "List nodes, pods, Services or endpoints of a lab.",
    "graph": "Draw the wire of a scenario, and the way of a probe, as text, Mermaid or SVG.",
    "import": "Write a scenario of what kubectl prints of a live cluster.",
    "init": "Write a commented scenario to begin with.",
    "judge": "Judge recorded probes again, from their evidence alone.",
    "logs": "Print what the engine of a node has said.",
    "plan": "Show what a scenario's lab would be made of, and make nothing.",
    "probe": "Send one probe through a lab and say what became of it.",
    "ps": "List the labs that stand.",
    "rules": "Print the rules of a node: as they stand, or as an engine would program them.",
    "run": "Run scenarios on this machine's kernel and judge every probe.",
    "schema": "Print the format of scenarios as JSON Schema.",
    "shell": "Open a shell in a node, pod or host.",
    "trace": "Send one packet through a lab and tell its way, rule by rule.",
    "up": "Make the lab of a scenario, and let it stand.",
}

_EPILOG: Final = """\
\b
Exit codes:
  0  every expectation held
  1  an expectation failed, or an engine did
  2  a scenario is invalid, or the command line is
  3  proxylab itself is at fault: please report it
  4  this machine lacks something that the lab needs
  5  nothing was selected
  6  nothing failed, but something was inconclusive
130  interrupted, after everything was cleaned up
"""


class _Formatter(click.HelpFormatter):
    """Lines of help that break at blanks only: the name of an option or an engine stays whole, to be copied."""

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
            ctx.fail(f"there is no verb {args[0]!r}; {_meant(args[0])}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(sorted(_VERBS.items()))


def _meant(word: str) -> str:
    """What somebody may have meant who typed a verb that there is not."""
    near = difflib.get_close_matches(word, _VERBS, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(_VERBS))}"


def _module(verb: str) -> str:
    """The module of a verb; a word of Python's own, which nothing could import, has an underscore behind it."""
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
    """Run one verb and exit with the code that stands in ``--help``.

    Args:
        arguments: by default those of the process.
        make_session: what makes the run's session; by default ``proxylab.client.session.Session``.
    """
    code: int
    if open_closed_streams():
        code = _tell("standard output is closed; send it to a file, or to /dev/null", ExitCode.SCENARIO)
    else:
        code = _answer(lambda: proxylab.main(arguments, "proxylab", standalone_mode=False, obj=make_session))
    if (error := flush()) is not None:
        code = _tell_of_output(error)
    sys.exit(code)


def _answer(verb: Callable[[], object]) -> int:
    """The exit code of a verb, after telling the user what it could not do."""
    try:
        code = verb()
    except click.ClickException as error:
        with suppress(OSError):  # of a standard error that takes nothing
            error.show()
        return error.exit_code
    except click.Abort:  # click's word for Ctrl-C
        return _INTERRUPTED
    except InternalError as error:
        if not isinstance(error, LabEndedError):
            return _report(error)
        return _tell(str(error), error.exit_code)
    except LabError as error:
        return _tell(str(error), error.exit_code)
    except Exception as error:  # whatever it is, it is ours, unless a stream of the caller's takes nothing
        if not is_of_output(error):
            return _report(error)
        flush()
        return _tell_of_output(error)
    return code if isinstance(code, int) else ExitCode.OK


def _tell(line: str, code: ExitCode) -> ExitCode:
    """Say on standard error what is wrong, if that takes anything; the exit code says it as well."""
    with suppress(OSError):
        click.echo(line, err=True)
    return code


def _tell_of_output(error: Exception) -> ExitCode:
    why = getattr(error, "strerror", None) or str(error)
    return _tell(f"standard output cannot be written: {why}; send it to another file", ExitCode.SCENARIO)


def _report(error: Exception) -> ExitCode:
    """The only traceback a user ever sees is that of our own mistake."""
    click.echo("".join(traceback.format_exception(error)), nl=False, err=True)
    click.echo(f"proxylab {__version__} is at fault; please report the lines above with your scenario", err=True)
    return ExitCode.INTERNAL
