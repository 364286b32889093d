"""The entry point of the ``proxylab`` command, which ``proxylab.cli.command`` runs.

All imports but Python's own wait for ``main``: Ctrl-C while they go on ends the process, without a traceback.
"""

import signal
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from proxylab.client.session import SessionMaker

_INTERRUPTED = 130  # 128 + SIGINT, as a shell counts


def main(arguments: "Sequence[str] | None" = None, make_session: "SessionMaker | None" = None) -> "NoReturn":
    """Run one verb and exit with a code that ``--help`` lists.

    Args:
        arguments: the command line; by default that of the process.
        make_session: creates the run's session; by default ``proxylab.client.session.Session``.
    """
    is_python_s_own = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a background job ignores it
    with suppress(ValueError):  # only the main thread may set a handler
        if is_python_s_own:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    from proxylab.cli.command import run  # noqa: PLC0415 - see above

    try:
        with suppress(ValueError):
            if is_python_s_own:
                signal.signal(signal.SIGINT, signal.default_int_handler)
        run(arguments, make_session)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
