"""Writes what load balancers dial into the router's rules; ``plan.dialling`` has the rules, ``balancers`` decides."""

from collections.abc import Sequence
from typing import Final

from proxylab.addresses import Family
from proxylab.errors import CapabilityError
from proxylab.kernel.netfilter.iptables_tool import IptablesTool, RestoreRefusedError
from proxylab.plan.dialling import DialledPort, dialling_text

_CURE: Final = (
    "load the kernel's modules as root ('modprobe -a iptable_nat ip6table_nat xt_conntrack xt_statistic "
    "xt_MASQUERADE'), or remove dials: nodePorts from the load balancers"
)


class NodePortDialler:
    """The rules of one router, which ``tool`` loads."""

    def __init__(self, tool: IptablesTool, families: Sequence[Family]) -> None:
        self._tool = tool
        self._families = families
        self._standing: tuple[DialledPort, ...] = ()

    async def write(self, dialled: tuple[DialledPort, ...]) -> None:
        """Dial these node ports from now on, and no others. Raises ``CapabilityError``."""
        if dialled == self._standing:
            return
        for family in self._families:
            try:
                await self._tool.load(
                    family, dialling_text(each for each in dialled if Family.of(each.address) is family)
                )
            except RestoreRefusedError as refused:
                needed = f"a load balancer that dials node ports over {family} ({refused.output})"
                raise CapabilityError(needed, _CURE) from refused
        self._standing = dialled
