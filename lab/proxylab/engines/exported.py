"""Reads what the engine of a node exports at /metrics: an embedded one and the real kube-proxy alike.

The lab reads the page when a step ends, so that it shows the sync of the step's change: a node's engine reflects a
change once its sync is over, or once its next sync has begun (``wait_synced``), and both set these metrics in a sync.
"""

from collections.abc import Collection

from proxylab.cluster.configuration import SocketAddress
from proxylab.control.http_client import fetch
from proxylab.evidence.stream_records import Exported, Sample
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.timing import Deadline

__all__ = ["read_exported"]


async def read_exported(
    node: str, netns: NetNs, server: SocketAddress, names: Collection[str], deadline: Deadline
) -> Exported:
    """All names that the engine of ``node`` exports, and the samples of those in ``names``."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - 40 ms, and seldom needed

    try:
        status, page = await fetch(netns, server.address, server.port, "/metrics", deadline)
    except (OSError, TimeoutError) as error:
        return Exported(node, problem=str(error) or type(error).__name__)
    if status != 200:
        return Exported(node, problem=f"it answered with status {status}")
    families = text_string_to_metric_families(page.decode(errors="replace"))
    samples = [sample for family in families for sample in family.samples]
    return Exported(
        node,
        tuple(dict.fromkeys(each.name for each in samples)),
        tuple(Sample(each.name, each.labels, each.value) for each in samples if each.name in names),
    )
