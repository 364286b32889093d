"""The user-mode Linuxes of this machine, for tests that run on each, and the skips where one is missing.

``./dev test`` runs them on the one that ``uml`` means: the built one, or else Debian's. ``--all`` runs them on both.
Which there are is looked up when a test begins: ``./dev test`` builds one while others run.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxylab.guest.kernels import Kernel, known_images, known_kernels

__all__ = ["DEBIANS", "EACH", "IMAGE", "IPSET", "OWN", "kernel", "pytest_runtest_setup", "readable"]

IMAGE = next(known_images(), None) if shutil.which("qemu-system-x86_64") else None

OWN = pytest.mark.needs_kernel
DEBIANS = pytest.mark.needs_kernel(built=False)
IPSET = pytest.mark.skipif(
    shutil.which("ipset") is None, reason="needs ipset, which kube-proxy starts in mode ipvs; 'apt-get install ipset'"
)
_ANY = pytest.mark.needs_kernel(built=None)
EACH = pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(None, id="uml", marks=_ANY),
        pytest.param(False, id="debian", marks=[DEBIANS, pytest.mark.thorough]),
    ],
    indirect=True,
)


@pytest.hookimpl
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose kernel is not there."""
    for marker in item.iter_markers("needs_kernel"):
        built = marker.kwargs.get("built", True)
        if _known(built) is None:
            pytest.skip(
                "needs Debian's user-mode Linux; 'apt-get install user-mode-linux kmod'"
                if built is False
                else "needs a kernel for guests; 'proxylab kernels --obtain' builds one, where an administrator has "
                "typed 'apt-get install gcc libc6-dev make flex bison bc xz-utils'"
            )


@pytest.fixture
def kernel(request: pytest.FixtureRequest) -> Kernel:
    """The kernel of a test with ``EACH``."""
    found = _known(request.param)
    assert found is not None, "the hook has looked"
    return found


def _known(built: bool | None) -> Kernel | None:
    """The built kernel, or Debian's; or, without a wish, the one that ``uml`` means."""
    return next((each for each in known_kernels() if built in (None, not each.modules)), None)


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
