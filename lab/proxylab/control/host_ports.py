"""The work of a network plugin when pods come and go: the host ports of a lab's nodes follow its Pod objects.

Owns ``HostPorts``. ``plan.host_ports`` has the rules. Like portmap, it also lets the node route packets from 127.0.0.1
to a pod with a host port, and deletes the UDP connections to a port that begins to lead to a pod: packets of theirs
would not meet the new rules.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from typing import Final

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import Node, Pod
from proxylab.errors import CapabilityError
from proxylab.kernel.netfilter.iptables_tool import IptablesTool, RestoreRefusedError
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.conntrack import Conntrack
from proxylab.kernel.sandbox.sysctl import write_sysctls
from proxylab.plan.forwarding import route_to
from proxylab.plan.host_ports import HostPort, host_port_text, host_ports
from proxylab.plan.model import Sysctl

_CURE: Final = (
    "load the kernel's modules as root ('modprobe -a iptable_nat ip6table_nat xt_multiport xt_MASQUERADE'), or remove "
    "hostPort from the pods"
)

_ByNode = Mapping[tuple[str, Family], list[HostPort]]


class HostPorts:
    """The host ports of all nodes of one lab. ``tools`` load the rules of each node."""

    def __init__(self, wiring: Wiring, tools: Mapping[str, IptablesTool]) -> None:
        self._wiring = wiring
        self._tools = tools
        self._served: dict[tuple[str, Family], list[HostPort]] = {}
        self._order: dict[str, int] = {}
        self._settling = asyncio.Lock()

    async def settle(self, pods: Iterable[Pod], nodes: Iterable[Node]) -> None:
        """Serve the host ports of these pods, and no others. Raises ``CapabilityError``."""
        async with self._settling:
            wanted = self._wanted(pods, nodes)
            for at in {*wanted, *self._served}:
                before, now = self._served.get(at, []), wanted.get(at, [])
                if now != before:
                    await self._write(at, now, before, begins=at not in self._served)

    async def restore(self, node: str) -> None:
        """Load a node's rules again after all of its rules were flushed. Raises ``CapabilityError``."""
        async with self._settling:
            for at, served in self._served.items():
                if at[0] == node:
                    await self._load(at, host_port_text(served))

    def _wanted(self, pods: Iterable[Pod], nodes: Iterable[Node]) -> _ByNode:
        """The host ports of each node and family, those of the newest pod first."""
        found: defaultdict[tuple[str, Family], list[HostPort]] = defaultdict(list)
        for each in host_ports(self._wiring.plan, pods, nodes):
            self._order.setdefault(each.pod, len(self._order))
            if each.node in self._tools:
                found[each.node, Family.of(each.address)].append(each)
        there = {each.pod for served in found.values() for each in served}
        self._order = {pod: number for pod, number in self._order.items() if pod in there}
        return {at: sorted(served, key=lambda each: -self._order[each.pod]) for at, served in found.items()}

    async def _write(
        self, at: tuple[str, Family], now: list[HostPort], before: Collection[HostPort], *, begins: bool
    ) -> None:
        node, _ = at
        for each in now:
            if each not in before:
                self._let_in_from_loopback(node, each)
        await self._load(at, host_port_text(now, (each.pod for each in before), begins=begins))
        self._served[at] = now
        self._forget_datagrams(at, {each.port for each in now if each not in before and each.protocol is Protocol.UDP})

    async def _load(self, at: tuple[str, Family], text: str) -> None:
        node, family = at
        try:
            await self._tools[node].load(family, text)
        except RestoreRefusedError as refused:
            raise CapabilityError(f"host ports over {family} ({refused.output})", _CURE) from refused

    def _let_in_from_loopback(self, node: str, served: HostPort) -> None:
        """Let the node route packets from 127.0.0.1 to the device of the pod, which the plan knows of its own pods."""
        namespace = self._wiring.plan.namespace(node)
        planned = any(served.address in pod.addresses for pod in self._wiring.plan.pods)
        if served.address.version == 4 and planned:
            device = route_to(namespace, served.address).device.replace(".", "/")
            write_sysctls(self._wiring.namespaces[node], [Sysctl(f"net.ipv4.conf.{device}.route_localnet", "1")])

    def _forget_datagrams(self, at: tuple[str, Family], ports: Collection[int]) -> None:
        node, family = at
        if not ports:
            return
        with closing(Conntrack(self._wiring.namespaces[node])) as conntrack:
            entries = conntrack.entries(family, Protocol.UDP.number)
            conntrack.delete(each for each in entries if each.destination[1] in ports)
