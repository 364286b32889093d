"""The entry point of the ``proxylab`` command, which ``proxylab.cli.command`` runs.

Ctrl-C ends the process at each moment without a traceback. All imports but Python's own wait for ``main``: while they
go on, the kernel ends the process by itself. Afterwards a handler decides by the code that it interrupts, so that no
moment lies between two settings: only below ``run``, where ``main`` catches it, it raises ``KeyboardInterrupt``.
"""

import os
import signal
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, FrameType
    from typing import NoReturn

    from proxylab.client.session import SessionMaker

_INTERRUPTED = 130  # 128 + SIGINT, as a shell counts
_LACKING = 4  # ExitCode.CAPABILITY, whose module may be the damaged one


def main(arguments: "Sequence[str] | None" = None, make_session: "SessionMaker | None" = None) -> "NoReturn":
    """Run one verb and exit with a code that ``--help`` lists.

    Args:
        arguments: the command line of a caller that goes on, and has its own way with Ctrl-C again afterwards; by
            default that of the process.
        make_session: creates the run's session; by default ``proxylab.client.session.Session``.
    """
    try:  # from the first line on, where Python's own handler still raises
        _run_interruptibly(arguments, make_session)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


def _run_interruptibly(arguments: "Sequence[str] | None", make_session: "SessionMaker | None") -> "NoReturn":
    """Run one verb, with the handler of SIGINT that each moment needs. Raises ``KeyboardInterrupt``."""
    is_python_s_own = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a background job ignores it
    with suppress(ValueError):  # only the main thread may set a handler
        if is_python_s_own:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from proxylab.cli.command import run  # noqa: PLC0415 - see above
    except Exception as error:
        _end_if_damaged(error)
        raise

    try:
        with suppress(ValueError):
            if is_python_s_own:
                signal.signal(signal.SIGINT, _interrupting_only(run.__code__))
        run(arguments, make_session)
    finally:
        if arguments is not None and is_python_s_own:
            with suppress(ValueError):
                signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_if_damaged(error: Exception) -> None:
    from proxylab.compiled_modules import is_of_damaged_module, remove_damaged  # noqa: PLC0415 - rarely needed

    if is_of_damaged_module(error):
        sys.stderr.write(f"{remove_damaged()}\n")
        sys.exit(_LACKING)


def _interrupting_only(called: "CodeType") -> "Callable[[int, FrameType | None], None]":
    """A handler that raises ``KeyboardInterrupt`` below a call of this code, and elsewhere ends the process.

    Elsewhere no ``except`` would stand around it: in the steps before and after that call, and while Python ends.
    """

    def interrupt(number: int, frame: "FrameType | None") -> None:
        while frame is not None:
            if frame.f_code is called:
                raise KeyboardInterrupt
            frame = frame.f_back
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    return interrupt
