"""Reads the counters of the nodes' network stacks before a run, and again before its first sentinel packet.

At that moment it also reads which queues beyond the nodes hold packets: in a switch, a router, or a pod. Those of the
nodes are among their foreign rules.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping

from proxylab.evidence.evidence import ForeignRule, KernelCount
from proxylab.kernel.capture.stack_counters import StackCounters, counters_in
from proxylab.kernel.netlink.traffic_control import Queue, TrafficControl
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.verdict.drops import COUNTERS


class Stacks:
    """The counters of the stacks in which a run's packets may end, one run at a time.

    Args:
        netns_by_name: every namespace of the lab.
        nodes: those that are nodes.
    """

    def __init__(self, netns_by_name: Mapping[str, NetNs], nodes: Collection[str]) -> None:
        self._netns_by_name = netns_by_name
        self._nodes = nodes
        self._open: dict[str, StackCounters] = {}
        self._before: dict[str, dict[str, str]] = {}
        self._after: dict[str, dict[str, str]] = {}
        self.counters_read_at = 0
        self.holding: tuple[ForeignRule, ...] = ()

    def begin(self, namespaces: Iterable[str]) -> None:
        """Remember the counters of these namespaces."""
        self._after = {}
        self.counters_read_at = 0
        self.holding = ()
        self._before = {name: self._counters(name).read() for name in namespaces}

    def read_again(self) -> None:
        """Read the counters now: what comes later is not the run's. A second call does nothing."""
        if not self._after:
            self.counters_read_at = time.time_ns()
            self._after = {node: self._counters(node).read() for node in self._before}
            self.holding = tuple(self._queues_beyond_nodes())

    def _queues_beyond_nodes(self) -> Iterator[ForeignRule]:
        """The queues that hold packets. The namespaces may be many, so no socket stays open."""
        for name in sorted(self._netns_by_name.keys() - self._nodes):
            devices = TrafficControl(self._netns_by_name[name])
            try:
                found = devices.read()
            finally:
                devices.close()
            for each in found:
                if isinstance(each, Queue) and each.waiting:
                    yield ForeignRule(name, "tc", each.device, "egress", 0, f"queue {each.kind}", 0, each.waiting)

    def end(self) -> tuple[KernelCount, ...]:
        """How far the counters of packets and of drops moved; empty for a run without a missing packet.

        Where every flow was settled, the run sent no sentinel packet and read no counter a second time.
        """
        return tuple(
            KernelCount(node, name, gained)
            for node, files in self._after.items()
            for name, gained in _moved(self._before[node], files)
        )

    def close(self) -> None:
        """Close every file."""
        for counters in self._open.values():
            counters.close()
        self._open.clear()

    def _counters(self, node: str) -> StackCounters:
        if node not in self._open:
            self._open[node] = StackCounters(self._netns_by_name[node])
        return self._open[node]


def _moved(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    earlier, later = counters_in(before), counters_in(after)
    for name in sorted(COUNTERS):
        gained = later.get(name, 0) - earlier.get(name, 0)
        if gained > 0:
            yield name, gained
