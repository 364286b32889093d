"""The control plane of a lab: etcd, API server, controllers, scheduler and kubectl, in one program of proxylab's own.

Kubernetes releases them as programs of their own, which together are three times as big and start later. So the program
is built from Go modules, as kube-proxy is where no release is at hand; its main package lies beside this module.
"""

from pathlib import Path
from typing import Final

from proxylab.binaries.binary import CONTROL_PLANE, Binary, inspect
from proxylab.binaries.cache import Cache
from proxylab.binaries.choose import Sources, newest_kept
from proxylab.binaries.module import module_of_kubernetes
from proxylab.errors import CapabilityError

CONTROL_PLANE_MODULE: Final = module_of_kubernetes(CONTROL_PLANE, "control_plane.go.txt")
"""The build of it, which takes eleven minutes of one processor."""

EMBEDDED: Final = "embedded"
"""The word for the lab's own API alone, in ``--control-plane``."""

REAL: Final = "real"
"""The word for a control plane of real Kubernetes, in ``--control-plane``."""


def control_plane_sources() -> Sources:
    """The sources of this user on this machine."""
    return Sources(Cache.of_user(CONTROL_PLANE), {"module": CONTROL_PLANE_MODULE})


def find_control_plane(name: str, cache: Cache) -> Binary:
    """The control plane that ``--control-plane`` names; nothing is built.

    ``name`` is ``real`` for the newest of the cache, ``real@VERSION``, or a path. Raises ``CapabilityError``.
    """
    if "/" in name:
        return inspect(Path(name).expanduser(), name, CONTROL_PLANE)
    word, _, wanted = name.partition("@")
    if word != REAL:
        raise CapabilityError(
            f"a control plane {name!r}", "name embedded, real, real@VERSION, or the path of a control-plane"
        )
    return newest_kept(cache, wanted, "a control plane of Kubernetes")
