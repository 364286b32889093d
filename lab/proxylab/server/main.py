"""The entry point of a lab process.

Its command is ``python -m proxylab.server.main [--kernel JSON | --in-guest RIGHTS] [--privileged] FD [SOCKET FOLDER]``.

It enters the sandbox (``kernel.sandbox.sandbox``), forks the launcher (``kernel.sandbox.launcher_child``) and starts
the event loop (``server.event_loop``), in this order. Supervisor, init and launcher are copies of this process, so it
imports nothing heavy before the launcher is forked.

With a kernel of its own, it boots a guest in the sandbox instead. This entry point runs again there (``--in-guest``,
with what ``guest.rights`` says of the guest's kernel).
"""

import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import proxylab
from proxylab.errors import LAUNCHER_ENDED, CapabilityError, LabEndedError
from proxylab.kernel.sandbox.control_groups import ControlGroup, find_groups
from proxylab.kernel.sandbox.launcher_child import fork_launcher
from proxylab.kernel.sandbox.limits import raise_descriptor_limit, take_memory_in_order
from proxylab.kernel.sandbox.memory import search_rarely
from proxylab.kernel.sandbox.sandbox import InheritedControlSocket, enter
from proxylab.resource_limits import is_root_of_the_machine, limit_reached

_REPORT_SECONDS: Final = 5.0

_FOLDERS_OF_SCAPY: Final = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME")
"""Where scapy would make folders of its own at its first import, in a home in which the user asked for none.

Its cache saves 80 ms at each import, which few lab processes do twice."""


def main() -> None:
    """Become supervisor, init, launcher and lab process, each in its turn."""
    given = sys.argv[1:]
    kernel, guest_rights = _taken(given, "--kernel"), _taken(given, "--in-guest")
    privileged = given[0] == "--privileged"
    first, *further = map(int, given[privileged:])
    client = socket.socket(fileno=first)
    control_socket = InheritedControlSocket(socket.socket(fileno=further[0]), further[1]) if further else None
    if control_socket is not None:
        os.chdir("/")  # a detached lab must not keep this directory busy
    _forget_inherited_signals()
    raise_descriptor_limit()
    rootless = os.geteuid() != 0
    # A guest is a machine for this lab alone, and root of a user namespace is an ordinary user of the machine.
    bounded = not (rootless or guest_rights is not None or privileged) and is_root_of_the_machine()
    groups = find_groups(*map(_text, ("/proc/self/mountinfo", "/proc/self/cgroup"))) if bounded else ()
    if kernel is not None:
        _boot(kernel, client, control_socket, groups, confined=bounded)
    try:
        enter(client, control_socket, groups, in_guest=guest_rights is not None)
        others = [control_socket.socket] if control_socket else []
        confined = bounded and is_root_of_the_machine()  # a container's root may have become that of a user namespace
        launcher = fork_launcher(client, *others, confined=confined, readable=_own_files(), groups=groups)
    except CapabilityError as error:
        _refuse(client, error)
    except LabEndedError:
        os._exit(LAUNCHER_ENDED)
    except OSError as error:
        if (lacking := limit_reached(error)) is None:
            raise
        _refuse(client, lacking)
    os.environ.update(dict.fromkeys(_FOLDERS_OF_SCAPY, os.devnull))  # not in the launcher: commands are the user's
    if guest_rights is not None:
        from proxylab.guest.rights import of_guest  # noqa: PLC0415 - only a guest needs it

        take_memory_in_order()
        launcher = of_guest(launcher, guest_rights)
    from proxylab.server.event_loop import serve  # noqa: PLC0415 - heavy, and only the lab process needs it

    search_rarely()
    serve(client, launcher, control_socket.socket if control_socket else None, rootless=rootless)


def _taken(given: list[str], name: str) -> str | None:
    """Take an option with its value off the front of the words."""
    if given[0] != name:
        return None
    _, value = given.pop(0), given.pop(0)
    return value


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # a kernel without control groups
        return ""


def _own_files() -> list[Path]:
    """Where Python, proxylab, and the binaries of proxies that it keeps can lie: commands of a lab need them."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    given = (sys.prefix, sys.base_prefix, proxylab.__file__, os.environ.get("HOME", ""), cache)
    return [Path(each) for each in given if Path(each).is_absolute()]


def _boot(
    document: str,
    client: socket.socket,
    control_socket: InheritedControlSocket | None,
    groups: Sequence[ControlGroup],
    *,
    confined: bool,
) -> NoReturn:
    """Boot a guest in a sandbox, or without one where the machine allows none."""
    from proxylab.encoding import decode  # noqa: PLC0415 - only a guest needs these
    from proxylab.guest.kernels import Kernel  # noqa: PLC0415
    from proxylab.guest.outside import run_guest, stay_on_one_cpu  # noqa: PLC0415
    from proxylab.guest.rights import KernelRights, confined_rights  # noqa: PLC0415

    kernel = decode(document.encode(), Kernel)
    claim = None if kernel.is_image else stay_on_one_cpu()
    sandboxed = True
    try:
        try:
            enter(client, control_socket, groups)
        except CapabilityError:
            if not kernel.ends_its_processes:
                raise
            sandboxed = False
        further = control_socket.socket if control_socket else None
        has_rights = confined and sandboxed and is_root_of_the_machine()
        rights = confined_rights(kernel, _own_files(), groups) if has_rights else KernelRights()
        os._exit(run_guest(kernel, client, further, rights, sandboxed=sandboxed))
    except CapabilityError as error:
        _refuse(client, error)
    finally:
        del claim


def _refuse(client: socket.socket, error: CapabilityError) -> NoReturn:
    _report(client, error)
    os._exit(int(error.exit_code))


def _forget_inherited_signals() -> None:
    """Unblock all signals and restore the usual actions, since exec(2) passes on the client's.

    Init learns of dead children by SIGCHLD, and every process ends by SIGTERM: a client that blocks or ignores them
    must not make a sandbox that never ends. SIGINT is ignored, and the client has blocked it until now.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


def _report(client: socket.socket, error: CapabilityError) -> None:
    from proxylab.protocol.channel import Channel, ChannelClosedError  # noqa: PLC0415 - only on the way out
    from proxylab.protocol.faults import fault_of  # noqa: PLC0415
    from proxylab.protocol.messages import Failed  # noqa: PLC0415
    from proxylab.timing import Deadline  # noqa: PLC0415

    with suppress(TimeoutError, ChannelClosedError):  # a client that has gone needs no report
        Channel(client).send(Failed(fault_of(error)), Deadline.after(_REPORT_SECONDS))


if __name__ == "__main__":
    main()
