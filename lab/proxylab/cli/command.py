"""The ``proxylab`` command: a module per verb, which ``proxylab.cli.verbs`` finds.

``run`` runs one. This module turns an error into a message and an exit code.
"""

import gc
import io
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

from proxylab import __version__
from proxylab.cli.standard_streams import buffer_streams, echo, flush, is_of_output, open_closed_streams
from proxylab.cli.verbs import AddedVerbError, Verbs
from proxylab.client.warning_lines import warnings_to
from proxylab.compiled_modules import is_of_damaged_module, remove_damaged
from proxylab.errors import ExitCode, InternalError, LabEndedError, LabError
from proxylab.resource_limits import limit_reached

if TYPE_CHECKING:
    from proxylab.client.session import SessionMaker

_INTERRUPTED: Final = 130  # 128 + SIGINT, as a shell counts

_NEW_OBJECTS: Final = 100_000
"""How many new objects start Python's garbage collector.

Reading a large file makes millions of objects that stay, and with Python's default of 700 the collector takes half of
its time."""

_EPILOG: Final = """\
\b
Exit codes:
  0  every expectation held
  1  an expectation or an engine failed
  2  a scenario or the command line is invalid
  3  proxylab, or the package of an added verb, has a bug
  4  this machine lacks something that the lab needs
  5  nothing was selected
  6  nothing failed, but a verdict was inconclusive
130  interrupted; the lab was cleaned up first
"""


@click.group(
    cls=Verbs,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "LAB"},
)
@click.version_option(__version__, prog_name="proxylab")
def proxylab() -> None:
    """Prove Kubernetes Service proxies on a real kernel.

    Results go to standard output, progress to standard error.

    Example: proxylab run scenarios/clusterip/from-a-pod.lab.yaml
    """


def run(arguments: Sequence[str] | None, make_session: "SessionMaker | None") -> NoReturn:
    """Run one verb and exit with its code; see ``proxylab.cli.main``."""
    code: int
    gc.set_threshold(_NEW_OBJECTS)
    was_closed = open_closed_streams()
    buffer_streams()
    if was_closed:
        code = _print_error("standard output is closed; redirect it to a file or to /dev/null", ExitCode.SCENARIO)
    else:
        code = _exit_code(lambda: proxylab.main(arguments, "proxylab", standalone_mode=False, obj=make_session))
    if (error := flush()) is not None:
        code = _print_output_error(error)
    sys.exit(code)


def _exit_code(verb: Callable[[], object]) -> int:
    """Run a verb, print its error, and return its exit code."""
    try:
        with warnings_to(partial(echo, err=True)):
            code = verb()
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        _print_error(shown.getvalue().rstrip("\n"), ExitCode.SCENARIO)
        return error.exit_code
    except click.Abort as abort:  # click raises it on Ctrl-C, and in place of an EOFError
        return _unforeseen(abort.__cause__) if isinstance(abort.__cause__, EOFError) else _INTERRUPTED
    except InternalError as error:
        if not isinstance(error, LabEndedError):
            return _report(error)
        return _print_error(str(error), error.exit_code)
    except LabError as error:
        return _print_error(str(error), error.exit_code)
    except Exception as error:
        return _unforeseen(error)
    return code if isinstance(code, int) else ExitCode.OK


def _unforeseen(error: Exception) -> int:
    """Print an error that no verb foresees: a bug of proxylab, unless the process lacks something."""
    if (lacking := limit_reached(error)) is not None:
        return _print_error(str(lacking), lacking.exit_code)
    if is_of_damaged_module(error):
        return _print_error(remove_damaged(), ExitCode.CAPABILITY)
    if isinstance(error, FileNotFoundError) and not _has_working_directory():
        return _print_error("the working directory is gone; change to one that is there", ExitCode.SCENARIO)
    if not is_of_output(error):
        return _report(error)
    flush()
    return _print_output_error(error)


def _has_working_directory() -> bool:
    try:
        return Path.cwd().is_absolute()
    except FileNotFoundError:
        return False


def _print_error(line: str, code: ExitCode) -> ExitCode:
    """Print an error on standard error, unless that is closed: the exit code says it too."""
    with suppress(OSError):
        echo(line, err=True)
    return code


def _print_output_error(error: Exception) -> ExitCode:
    why = getattr(error, "strerror", None) or str(error)
    return _print_error(f"cannot write standard output: {why}; redirect it to another file", ExitCode.SCENARIO)


def _report(error: Exception) -> ExitCode:
    """Print a traceback: users see one only for a bug of proxylab, or of a verb that another package adds."""
    cause: BaseException | None = error
    line = f"proxylab {__version__} has a bug; please report the lines above with your scenario"
    if isinstance(error, AddedVerbError):
        cause, line = error.__cause__, f"{error}; please report this to the authors of that package"
    echo("".join(traceback.format_exception(cause)) if cause else "", nl=False, err=True)
    echo(line, err=True)
    return ExitCode.INTERNAL
