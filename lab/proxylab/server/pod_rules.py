"""The rules that the network of a lab has for its pods: host ports in nodes, and pods that pass packets on.

They stand before the engines start, as those of pods do whose nodes restart their proxy: kube-proxy inserts its jumps
in front of them, and of two chains of nf_tables with one priority the later one comes first. Later they follow the
objects of the store: a step waits for them, and so does a probe in a lab whose controllers make pods.
"""

from collections.abc import Iterable, Mapping
from typing import Self

from proxylab.cluster.objects import KubeObject, Node, Pod, Service
from proxylab.cluster.store import Store
from proxylab.control.forwarding_pods import ForwardingPods
from proxylab.control.host_ports import HostPorts
from proxylab.kernel.netfilter.iptables_tool import IptablesTool, IptablesVariant
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.protocol.messages import Build
from proxylab.server.network import BuiltNetwork


class PodRules:
    """The rules of one lab for its pods."""

    def __init__(self, host_ports: HostPorts, forwarding_pods: ForwardingPods) -> None:
        self._host_ports = host_ports
        self._forwarding_pods = forwarding_pods
        self._revision = 0

    @classmethod
    async def begin(
        cls,
        request: Build,
        network: BuiltNetwork,
        launcher: Launcher,
        variant: IptablesVariant,
        tools: Mapping[str, IptablesTool],
    ) -> Self:
        """Load the rules of the pods that are there at first; ``tools`` are those of the nodes.

        Raises:
            CapabilityError: the machine lacks something that the rules need.
        """
        spaces = network.wiring.namespaces
        pods = {
            pod.name: IptablesTool(launcher, spaces[pod.namespace], f"{network.number}/{pod.namespace}", variant)
            for pod in request.plan.pods
            if pod.forwards is not None
        }
        forwarding = ForwardingPods(request.plan.pods, request.engine.families, pods)
        rules = cls(HostPorts(network.wiring, tools), forwarding)
        await rules.follow(request.objects)
        return rules

    async def settle(self, store: Store) -> None:
        """Let the rules be those of the objects that are there now. Raises ``CapabilityError``."""
        revision = store.revision
        if revision != self._revision:
            await self.follow(thing for kind in (Pod, Node, Service) for thing in store.list(kind))
            self._revision = revision

    async def restore(self, node: str) -> None:
        """Load a node's rules again after all of its rules were flushed. Raises ``CapabilityError``."""
        await self._host_ports.restore(node)

    async def follow(self, things: Iterable[KubeObject]) -> None:
        """Let the rules be those of these objects, which are all that there are. Raises ``CapabilityError``."""
        there = tuple(things)
        nodes = [each for each in there if isinstance(each, Node)]
        await self._host_ports.settle([each for each in there if isinstance(each, Pod)], nodes)
        await self._forwarding_pods.settle([each for each in there if isinstance(each, Service)], nodes)
