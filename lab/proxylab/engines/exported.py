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

__all__ = ["parse_exported", "read_exported"]


async def read_exported(
    node: str, netns: NetNs, server: SocketAddress, names: Collection[str], deadline: Deadline
) -> Exported:
    """Ask the engine of ``node`` for its page of metrics; a problem in the record says why there is none."""
    try:
        status, page = await fetch(netns, server.address, server.port, "/metrics", deadline)
    except (OSError, TimeoutError) as error:
        return Exported(node, problem=str(error) or type(error).__name__)
    if status != 200:
        return Exported(node, problem=f"it answered with status {status}")
    return parse_exported(node, page.decode(errors="replace"), names)


def parse_exported(node: str, page: str, names: Collection[str]) -> Exported:
    """All names on a page in Prometheus' text format, and the samples of those in ``names``."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - 40 ms, and seldom needed

    try:
        samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    except ValueError as error:
        return Exported(node, problem=f"its answer is not in Prometheus' text format: {error}")
    return Exported(
        node,
        tuple(dict.fromkeys(each.name for each in samples)),
        tuple(Sample(each.name, each.labels, each.value) for each in samples if each.name in names),
    )
