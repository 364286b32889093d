"""Writing and reading sysctls of a network namespace.

The module writes only below ``net``. ``plan.sysctls`` chooses names and values.
"""

import os
from collections.abc import Sequence

from proxylab.errors import CapabilityError, InternalError
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.plan.model import Sysctl
from proxylab.plan.sysctls import path_of


def write_sysctls(netns: NetNs, sysctls: Sequence[Sysctl]) -> None:
    """Write sysctls in ``netns``; this kernel may lack a key that is not required.

    Raises:
        CapabilityError: a required key does not exist here, or is read-only in a network namespace.
        InternalError: the name leaves ``net``.
    """
    for sysctl in sysctls:
        if not sysctl.name.startswith("net.") or ".." in sysctl.name:
            raise InternalError(f"{netns.name}: {sysctl.name} is not a sysctl of a network namespace")
    if not sysctls:
        return
    with inside(netns):
        for sysctl in sysctls:
            try:
                fd = os.open(f"/proc/sys/{path_of(sysctl.name)}", os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.write(fd, sysctl.value.encode() + b"\n")  # an empty list is still one line
                finally:
                    os.close(fd)
            except OSError as error:
                if not sysctl.required:
                    continue
                raise CapabilityError(
                    f"{sysctl.name}: the value {sysctl.value!r} could not be written in {netns.name} "
                    f"({error.strerror})",
                    "use a kernel that has this sysctl per network namespace, or remove it from the scenario",
                ) from error


def read_sysctl(netns: NetNs, name: str) -> str | None:
    """The value of one sysctl in ``netns``; ``None`` where this kernel lacks it."""
    with inside(netns):
        try:
            fd = os.open(f"/proc/sys/{path_of(name)}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return os.read(fd, 4096).decode().strip()
        finally:
            os.close(fd)
