"""Which addresses of nodes serve node ports for sure, whatever the proxy's version, and where host ports lead.

``nodePortAddresses`` chooses them, and its default depends on the mode. At any other address of a node the node's own
program may have the port, so a flow may end at what was dialled.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from types import MappingProxyType
from typing import Final, Self

from proxylab.addresses import Family, IPAddress
from proxylab.cluster.configuration import Mode, ProxyConfiguration
from proxylab.plan.addresses import allocate_addresses
from proxylab.plan.host_ports import LedTo, NodeSocket, led_to
from proxylab.plan.lookup import with_role
from proxylab.plan.model import Plan, Role
from proxylab.plan.renumbering import Moves, moved, renumbered
from proxylab.scenario.model import Scenario

_NO_MOVES: Final[Moves] = MappingProxyType({})


class NodePortAddresses:
    """The addresses of a scenario's nodes, and which of them serve node ports in each mode that its proxies ever have.

    A scenario that is no case may run in any mode. ``moves`` are those of the nodes' addresses that ``plan`` has made.
    """

    def __init__(self, scenario: Scenario, plan: Plan, moves: Moves = _NO_MOVES) -> None:
        nodes = with_role(plan, Role.NODE).values()
        self.local = tuple(each.interface.ip for node in nodes for each in node.addresses)
        self._scenario = scenario
        self.surely_serves = cache(self._surely_serves)
        self._plan = plan
        self._moves = moves

    def after(self, moves: Moves) -> Self:
        """The same once nodes have moved to these addresses."""
        return type(self)(self._scenario, renumbered(self._plan, moves), moves) if moves else self

    @cached_property
    def led(self) -> Mapping[NodeSocket, Sequence[LedTo]]:
        """Where the host ports of all pods lead, also of those that are not there yet or no more."""
        groups = {name: group for group in self._scenario.pods for name in group.pod_names}
        return led_to(self._plan.pods, groups, with_role(self._plan, Role.NODE))

    def _surely_serves(self, address: IPAddress) -> bool:
        """Whether that is certain of an address, whatever the proxy's version."""
        configuration = self._scenario.proxy or ProxyConfiguration()
        return all(_serves(mode, configuration, self._primary, address) for mode in _modes(self._scenario))

    @cached_property
    def _primary(self) -> frozenset[IPAddress]:
        primary = allocate_addresses(self._scenario).node.values()
        return frozenset(each for own in primary for each in moved(own, self._moves))


def _modes(scenario: Scenario) -> Iterator[Mode]:
    yield from [Mode(scenario.case.mode)] if scenario.case.mode else Mode
    yield from scenario.named_modes


def _serves(mode: Mode, configuration: ProxyConfiguration, primary: Collection[IPAddress], address: IPAddress) -> bool:
    facts = mode.facts
    if not facts.reads_node_port_addresses:
        return not address.is_loopback
    chosen = [cidr for cidr in configuration.node_port_addresses if Family.of(cidr) is Family.of(address)]
    by_default = not configuration.node_port_addresses and not configuration.node_port_words
    if configuration.node_port_primary or (by_default and facts.primary_by_default):
        return address in primary or any(address in cidr for cidr in chosen)
    if address.is_loopback:
        return facts.serves_loopback and address.version == 4 and configuration.localhost_node_ports and not chosen
    return not chosen or any(address in cidr for cidr in chosen)
