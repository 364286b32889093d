"""Mode userspace on one node: the ``NodeMode`` whose rules are those of iptables and whose proxiers have a process."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from proxylab.addresses import Family
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.context import NodeContext
from proxylab.engines.embedded.iptables.cleanup import remove
from proxylab.engines.embedded.iptables.node import IptablesNode
from proxylab.engines.embedded.node import LOOPBACK
from proxylab.engines.embedded.proxier import ModeProxier, Proxier
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.userspace.process import StartedProcess
from proxylab.engines.embedded.userspace.rules import CHAINS
from proxylab.engines.embedded.userspace.writer import UserspaceWriter
from proxylab.engines.node_mode import NodeMode
from proxylab.engines.protocol import ModeProcess
from proxylab.kernel.netlink.addresses_answer import default_route_address

_NAMES: Final = frozenset(chain.name for chain in CHAINS)
_IN_RULES: Final = tuple(name.encode() for name in _NAMES)


class UserspaceNode(IptablesNode):
    """Mode userspace on the node of a context."""

    def __init__(self, context: NodeContext) -> None:
        super().__init__(context)
        self._processes: list[StartedProcess] = []

    def proxiers(
        self,
        families: Sequence[Family],
        settings: ProxySettings,
        configuration: ProxyConfiguration,
        version: tuple[int, ...],
    ) -> Mapping[Family, Proxier]:
        """The proxier of the first family: kube-proxy had no second one in this mode.

        It knows no Node. Its own address is that of the default route (``NewCustomProxier`` in
        pkg/proxy/userspace/proxier.go). Where there is none, kube-proxy does not start.
        """
        del version
        family, listen = families[0], settings.node_address
        process = StartedProcess(self._context, family, listen, configuration.udp_idle_timeout)
        self._processes.append(process)
        host = default_route_address(self._context.netns, family) or LOOPBACK[family]
        return {family: ModeProxier(UserspaceWriter(family, self, process, settings, listen, host))}

    @property
    def processes(self) -> Sequence[ModeProcess]:
        """That of each proxier."""
        return tuple(self._processes)

    async def close(self) -> None:
        """End the processes. The rules stay, and lead to closed ports."""
        while self._processes:
            await self._processes.pop().close()

    async def remove(self, family: Family) -> bool:
        """Remove the chains of this mode; those of mode iptables stay."""
        present = any(name in rule for rule in self.written(family) for name in _IN_RULES)
        return present and await remove(self, family, _NAMES)


ON_NODE: Final[Callable[[NodeContext], NodeMode]] = UserspaceNode
