"""The command line of a guest's kernel.

It names no file that has to be made first: the kernel starts Python as its init, and passes on what follows ``--``.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from proxylab.errors import CapabilityError

__all__ = ["uml_command"]

_LIMIT: Final = 2000
"""A little less than COMMAND_LINE_SIZE, beyond which the kernel cuts the line without a word."""


def uml_command(
    binary: str,
    init: Sequence[str],
    *,
    environment: Mapping[str, str],
    line: int,
    mebibytes: int,
) -> list[str]:
    """The command that boots a user-mode Linux.

    Args:
        binary: the kernel.
        init: the guest's first process: its path, and its arguments, which the kernel separates by blanks.
        environment: of that process.
        line: the descriptor that becomes the guest's first serial line.
        mebibytes: the guest's memory.

    Raises:
        CapabilityError: the paths do not fit into the line.
    """
    parameters = [
        f"mem={mebibytes}M",
        "root=/dev/root",
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",  # the machine's files; the guest writes to an overlay
        f"ssl0=fd:{line}",
        "ssl=null",
        "con0=null,fd:2",
        "con=null",
        "uml_dir=/proc/",  # where it can make no file: its pid and management console would outlive a killed guest
        "quiet",
        "loglevel=4",
        "panic=-1",  # a panic ends the process
        "seccomp=auto",  # from 6.16 on: system calls of the guest without ptrace(2), in half the time
        "nf_conntrack.hashsize=65536",  # the default goes by memory, and its 8,192 connections are fewer than a probe's
        "initcall_blacklist=raid6_select_algo",  # Debian's kernel would measure it for a second
        f"init={_quoted(init[0])}",
        *(f"{name}={_quoted(value)}" for name, value in environment.items()),
        "--",
        *init[1:],
    ]
    if len(" ".join(parameters)) > _LIMIT:
        raise CapabilityError(
            f"room for the guest's command line (the paths to Python and proxylab exceed {_LIMIT} characters)",
            "install proxylab at a shorter path",
        )
    return [binary, *parameters]


def _quoted(value: str) -> str:
    """A value as parse_args() in kernel/params.c reads it: quotes keep blanks together, and nothing can quote a quote.

    Raises:
        CapabilityError: the value has a quote.
    """
    if '"' in value:
        raise CapabilityError(f"a path without a double quote: {value}", "install proxylab elsewhere")
    return f'"{value}"' if " " in value else value
