"""Pods of a load balancer that pass packets on (``forwardsTo``): their rules follow the Service and their node.

Owns ``ForwardingPods``. ``plan.service_lb`` has the rules, which replace those that a pod had before.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from proxylab.addresses import Family
from proxylab.cluster.objects import Node, Service
from proxylab.errors import CapabilityError
from proxylab.kernel.netfilter.iptables_tool import IptablesTool, RestoreRefusedError
from proxylab.plan.model import PodPlacement
from proxylab.plan.service_lb import ForwardedPort, forwarded_ports, forwarding_text

_CURE: Final = (
    "load the kernel's modules as root ('modprobe -a iptable_nat ip6table_nat xt_MASQUERADE'), or remove forwardsTo "
    "from the pods"
)


class ForwardingPods:
    """The pods of one lab that pass packets on; ``tools`` load the rules of each, by the pod's name."""

    def __init__(
        self, pods: Iterable[PodPlacement], families: Sequence[Family], tools: Mapping[str, IptablesTool]
    ) -> None:
        self._pods = tuple(pod for pod in pods if pod.forwards is not None)
        self._families = families
        self._tools = tools
        self._passed_on: dict[tuple[str, Family], tuple[ForwardedPort, ...]] = {}
        self._settling = asyncio.Lock()

    async def settle(self, services: Iterable[Service], nodes: Iterable[Node]) -> None:
        """Let each pod pass packets on to its Service as it is now. Raises ``CapabilityError``."""
        if not self._pods:
            return
        async with self._settling:
            known = {(each.namespace, each.name): each for each in services}
            machines = {each.name: each for each in nodes}
            for pod in self._pods:
                for family in self._families:
                    await self._write(pod, family, self._wanted(pod, family, known, machines))

    @staticmethod
    def _wanted(
        pod: PodPlacement,
        family: Family,
        services: Mapping[tuple[str, str], Service],
        nodes: Mapping[str, Node],
    ) -> tuple[ForwardedPort, ...]:
        forwards = pod.forwards
        service = None if forwards is None else services.get((forwards.namespace, forwards.service))
        if forwards is None or service is None or pod.node not in nodes:
            return ()
        return tuple(forwarded_ports(forwards, service, nodes[pod.node], family))

    async def _write(self, pod: PodPlacement, family: Family, wanted: tuple[ForwardedPort, ...]) -> None:
        if wanted == self._passed_on.get((pod.name, family), ()):
            return
        try:
            await self._tools[pod.name].load(family, forwarding_text(wanted))
        except RestoreRefusedError as refused:
            needed = f"rules of pods that pass packets on over {family} ({refused.output})"
            raise CapabilityError(needed, _CURE) from refused
        self._passed_on[pod.name, family] = wanted
