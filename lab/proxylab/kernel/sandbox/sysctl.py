"""Writing and reading sysctls of a network namespace.

The module writes only below ``net``. ``plan.sysctls`` chooses names and values. A few sysctls hold in all namespaces,
and only the kernel's first one can write them. The lab process of a guest lives there (``kernel.sandbox.sandbox``).
"""

import os
from collections.abc import Sequence
from typing import Final

from proxylab.errors import CapabilityError, InternalError
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.plan.model import Sysctl
from proxylab.plan.sysctls import OF_THE_KERNEL, path_of

_PER_NAMESPACE: Final = "use a kernel that has this sysctl per network namespace, or remove it from the scenario"
_IN_A_GUEST: Final = "run it on a kernel of its own: --kernel uml"


def write_sysctls(netns: NetNs, sysctls: Sequence[Sysctl]) -> None:
    """Write sysctls in ``netns``; this kernel may lack a key that is not required.

    Raises:
        CapabilityError: a required key does not exist here, or is read-only in a network namespace.
        InternalError: the name leaves ``net``.
    """
    for sysctl in sysctls:
        if not sysctl.name.startswith("net.") or ".." in sysctl.name:
            raise InternalError(f"{netns.name}: {sysctl.name} is not a sysctl of a network namespace")
    own = [each for each in sysctls if each.name not in OF_THE_KERNEL]
    if own:
        with inside(netns):
            for sysctl in own:
                _write(sysctl, netns.name, _PER_NAMESPACE)
    for sysctl in sysctls:
        if sysctl.name in OF_THE_KERNEL:
            _write(sysctl, "the kernel", _IN_A_GUEST)


def restore_sysctls_of_the_kernel() -> None:
    """Give the sysctls that hold in all namespaces the lab's values, where this process can write them."""
    for name, value in OF_THE_KERNEL.items():
        _write(Sysctl(name, value, required=False), "the kernel", _IN_A_GUEST)


def _write(sysctl: Sysctl, where: str, cure: str) -> None:
    try:
        fd = os.open(f"/proc/sys/{path_of(sysctl.name)}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, sysctl.value.encode() + b"\n")  # an empty list is still one line
        finally:
            os.close(fd)
    except OSError as error:
        if sysctl.required:
            needed = f"{sysctl.name}: the value {sysctl.value!r} could not be written in {where} ({error.strerror})"
            raise CapabilityError(needed, cure) from error


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
