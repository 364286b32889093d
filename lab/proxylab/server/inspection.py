"""The state of a lab's engines: whether they live, how far they have come, and their answers to /healthz."""

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
"""Longer than ``minSyncPeriod``, so that a recent change can still be programmed."""
_ASK_SECONDS: Final = 2.0


async def inspect(control_plane: ControlPlane) -> Inspected:
    """Inspect the engines of all nodes at once."""
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
    status, document = await _healthz(control_plane.contexts[node].netns, address, healthz.port)
    asked = f"http://{endpoint(address, healthz.port)}/healthz"
    return ProxyRecord(
        node=node, progress=progress, healthz=status, asked=asked, eligible=document.get("nodeEligible") is not False
    )


async def _healthz(netns: NetNs, address: IPAddress, port: int) -> tuple[int | None, dict[str, Any]]:
    """The status, and the JSON object in the body, if it is one."""
    try:
        status, body = await fetch(netns, address, port, "/healthz", Deadline.after(_ASK_SECONDS))
    except OSError:  # a TimeoutError is one
        return None, {}
    try:
        document = json.loads(body)
    except ValueError:
        document = {}
    return status, document if isinstance(document, dict) else {}
