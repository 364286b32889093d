"""How the engines of a lab do: whether they live, how far they have come, and what they answer to /healthz.

Owns: ``inspect``.
Must not: judge, or change what an engine is to program.
"""

import json
from typing import Any, Final

from proxylab.addresses import Family, IPAddress
from proxylab.control.ask import fetch
from proxylab.evidence.engine_progress import ProxyRecord
from proxylab.evidence.words import endpoint
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.protocol.messages import Inspected
from proxylab.server.control_plane import ControlPlane
from proxylab.timing import Deadline, together

__all__ = ["inspect"]

_PROGRESS_SECONDS: Final = 3.0
"""Longer than ``minSyncPeriod``: what has just changed may still be taken up."""
_ASK_SECONDS: Final = 2.0


async def inspect(control_plane: ControlPlane) -> Inspected:
    """Look at the engines of all nodes at once."""
    deadline = Deadline.after(_PROGRESS_SECONDS)
    return Inspected(await together(_record(control_plane, node, deadline) for node in control_plane.contexts))


async def _record(control_plane: ControlPlane, node: str, deadline: Deadline) -> ProxyRecord:
    fleet, healthz = control_plane.fleet, control_plane.choice.configuration.healthz
    progress = await fleet.engines[node].progress(deadline)
    if not healthz.port:
        return ProxyRecord(node=node, progress=progress)
    address = healthz.address
    if address.is_unspecified:  # every address of either family, as for kube-proxy
        address = (Family.IPV4 if Family.IPV4 in control_plane.choice.families else Family.IPV6).loopback
    status, said = await _asked(control_plane.contexts[node].netns, address, healthz.port)
    asked = f"http://{endpoint(address, healthz.port)}/healthz"
    return ProxyRecord(
        node=node, progress=progress, healthz=status, asked=asked, eligible=said.get("nodeEligible") is not False
    )


async def _asked(netns: NetNs, address: IPAddress, port: int) -> tuple[int | None, dict[str, Any]]:
    """The status, and what the body says, if it is an object of JSON."""
    try:
        status, body = await fetch(netns, address, port, "/healthz", Deadline.after(_ASK_SECONDS))
    except OSError:  # a TimeoutError is one
        return None, {}
    try:
        said = json.loads(body)
    except ValueError:
        said = {}
    return status, said if isinstance(said, dict) else {}
