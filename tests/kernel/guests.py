"""The user-mode Linuxes of this machine, for tests that run on each, and the skips where one is missing.

``./dev test`` runs them on the one that ``uml`` means: the built one, or else Debian's. ``--all`` runs them on both.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxylab.guest.kernels import Kernel, known_images, known_kernels

_KNOWN = tuple(known_kernels())
_OWN = next((kernel for kernel in _KNOWN if not kernel.modules), None)
_DEBIANS = next((kernel for kernel in _KNOWN if kernel.modules), None)
IMAGE = next(known_images(), None) if shutil.which("qemu-system-x86_64") else None

OWN = pytest.mark.skipif(_OWN is None, reason="no built kernel: 'proxylab kernels --obtain'")
DEBIANS = pytest.mark.skipif(_DEBIANS is None, reason="no linux.uml: 'apt-get install user-mode-linux kmod'")
EACH = pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(_OWN, id="own", marks=OWN),
        pytest.param(_DEBIANS, id="debian", marks=[DEBIANS, *([pytest.mark.thorough] if _OWN else [])]),
    ],
)


@contextmanager
def readable(kernel: Kernel) -> Iterator[str]:
    """A path of the kernel that every user can read: the cache may lie in a directory of root only."""
    if kernel.modules:
        yield kernel.binary
        return
    folder = Path(tempfile.mkdtemp(prefix="kernel-", dir="/tmp"))
    try:
        folder.chmod(0o755)
        yield str(shutil.copy(kernel.binary, folder / "linux"))
    finally:
        shutil.rmtree(folder)
