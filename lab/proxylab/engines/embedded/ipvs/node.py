"""Mode ipvs on one node: the ``NodeMode`` that programs IPVS, ipset, a dummy device and iptables."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Final, NamedTuple

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, Protocol
from proxylab.cluster.configuration import IpvsConfiguration, ProxyConfiguration
from proxylab.engines.context import NodeContext
from proxylab.engines.embedded.iptables.cleanup import IPVS_CHAINS, remove
from proxylab.engines.embedded.iptables.node import IptablesNode
from proxylab.engines.embedded.ipvs.meter import IpvsMeter
from proxylab.engines.embedded.ipvs.mutants import MUTANT_LINES
from proxylab.engines.embedded.ipvs.sets import NodeSet
from proxylab.engines.embedded.ipvs.tables import DUMMY
from proxylab.engines.embedded.ipvs.texts import print_tables
from proxylab.engines.embedded.ipvs.writer import Held, IpvsWriter
from proxylab.engines.embedded.proxier import ModeProxier, Proxier, RulesRefusedError
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.node_mode import NodeMode
from proxylab.engines.protocol import ModeProcess
from proxylab.errors import CapabilityError
from proxylab.evidence.ipvs import IpSet, IpvsDestination, IpvsTimeouts, ServerKey, VirtualServer
from proxylab.kernel.netfilter.ipset import IpSets, SetsRefusedError
from proxylab.kernel.netfilter.ipvs import Ipvs, IpvsRefusedError
from proxylab.kernel.netlink.links import DummyDevice
from proxylab.kernel.netlink.links_carry import kernel_release
from proxylab.kernel.sandbox.sysctl import write_sysctls
from proxylab.plan.model import Sysctl

_OWN_CHAIN: Final = b"KUBE-LOAD-BALANCER"
"""The chain of table nat that no other mode has."""

# Of NewProxier in pkg/proxy/ipvs/proxier.go.
_SYSCTLS: Final = {
    "net.ipv4.vs.conntrack": "1",
    "net.ipv4.vs.expire_nodest_conn": "1",
    "net.ipv4.vs.expire_quiescent_template": "1",
    "net.ipv4.ip_forward": "1",
}
_OLD_REUSE: Final = (4, 1), (5, 9)
"""Kernels from the first to before the second delay a connection that reuses a port (kubernetes#70747)."""

_NO_REUSE_MODE: Final = {"net.ipv4.vs.conn_reuse_mode": "0"}
_STRICT_ARP: Final = {"net.ipv4.conf.all.arp_ignore": "1", "net.ipv4.conf.all.arp_announce": "2"}

Pair = tuple[VirtualServer, IpvsDestination]


class DestinationKey(NamedTuple):
    """What identifies a destination of a virtual server."""

    server: ServerKey
    address: IPAddress
    port: int


class IpvsNode:
    """Mode ipvs on the node of a context; also the ``NodeTables`` of its proxiers."""

    def __init__(self, context: NodeContext) -> None:
        self._netns = context.netns
        self._mutation = context.mutation
        self._iptables = IptablesNode(context, MUTANT_LINES)
        self._configuration = IpvsConfiguration()
        self._ending = Ending()

    def require(self) -> None:
        """Raise ``CapabilityError`` where the kernel lacks IPVS."""
        Ipvs(self._netns).close()

    def proxiers(
        self,
        families: Sequence[Family],
        settings: ProxySettings,
        configuration: ProxyConfiguration,
        version: tuple[int, ...],
    ) -> Mapping[Family, Proxier]:
        """A proxier for each family. They write the rules of one version only."""
        del version
        self._configuration = configuration.ipvs
        return {family: ModeProxier(IpvsWriter(family, self, settings, self._mutation)) for family in families}

    @property
    def processes(self) -> Sequence[ModeProcess]:
        """None: the mode has no process."""
        return ()

    async def close(self) -> None:
        """Nothing: the mode has no process, and everything in the kernel stays."""

    async def dump(self, family: Family) -> str:
        """The rules as iptables-save prints them, then the other tables as their tools save them."""
        held = self.held(family)
        return await self.rules(family) + print_tables(held.sets.values(), held.servers.values(), held.bound)

    async def flush(self, family: Family) -> None:
        """Delete the rules, the virtual servers and the sets; the dummy device keeps its addresses."""
        await self._iptables.flush(family)
        self._empty(family)

    async def remove(self, family: Family) -> bool:
        """Remove the chains, virtual servers, sets and addresses of this mode; the device goes with the last one."""
        present = any(_OWN_CHAIN in rule for rule in self.written(family))
        if present:
            await remove(self._iptables, family, IPVS_CHAINS)
        with closing(DummyDevice(self._netns, DUMMY)) as device:
            bound = device.addresses(family)
            device.unbind(bound)
            if bound and not any(device.addresses(each) for each in Family):
                device.delete()
        if present or bound:
            self._empty(family)
        return present or bool(bound)

    def written(self, family: Family) -> list[bytes]:
        """The rules of table nat."""
        return self._iptables.written(family)

    def meter(self, family: Family) -> IpvsMeter:
        """A meter that reads the counters of rules and the connections of IPVS."""
        return IpvsMeter(self._netns, family, self._iptables.meter(family))

    @property
    def counted(self) -> tuple[Sequence[str], Sequence[str]]:
        """The tables in which kube-proxy has chains."""
        return self._iptables.counted

    def prepare(self) -> None:
        """Make the dummy device, and write the sysctls and timeouts of the mode."""
        first, fixed = _OLD_REUSE
        reuse = _NO_REUSE_MODE if first <= kernel_release() < fixed else {}
        wanted = _SYSCTLS | reuse | (_STRICT_ARP if self._configuration.strict_arp else {})
        write_sysctls(self._netns, [Sysctl(name, value) for name, value in wanted.items()])
        with closing(DummyDevice(self._netns, DUMMY)) as device:
            device.ensure()
        own = self._configuration
        if own.tcp or own.tcp_fin or own.udp:
            with self._changing() as (ipvs, _):
                ipvs.set_timeouts(IpvsTimeouts(int(own.tcp), int(own.tcp_fin), int(own.udp)))

    def held(self, family: Family) -> Held:
        """What the kernel holds; nothing on a kernel without IPVS."""
        names = {each.name_in(family) for each in NodeSet}
        with self._changing() as (ipvs, sets), closing(DummyDevice(self._netns, DUMMY)) as device:
            servers = {each.key: each for each in ipvs.servers() if Family.of(each.address) is family}
            found = {each.name: each for each in sets.sets() if each.name in names}
            return Held(servers, found, device.addresses(family))

    def served(self) -> Collection[ServerKey]:
        """The virtual servers of both families, without a request for the destinations of each."""
        with self._changing() as (ipvs, _):
            return [each.key for each in ipvs.servers_alone()]

    def serve(self, wanted: Iterable[VirtualServer], before: Mapping[ServerKey, VirtualServer]) -> None:
        """Add and change virtual servers; destinations that go end gracefully."""
        with self._changing() as (ipvs, _):
            servers = list(wanted)
            ipvs.add([each for each in servers if each.key not in before])
            changed = [each for each in servers if each.key in before and each != before[each.key]]
            ipvs.edit([each for each in changed if each.alone != before[each.key].alone])
            for each in changed:
                held = {(one.address, one.port): one for one in before[each.key].destinations}
                needed = {(one.address, one.port): one for one in each.destinations}
                missing = [(each, one) for key, one in needed.items() if key not in held]
                resumed = [(each, one) for key, one in needed.items() if key in held and not held[key].weight]
                resumed += self._ending.take_back([*missing, *resumed])
                ipvs.add_destinations([pair for pair in missing if pair not in resumed])
                ipvs.edit_destinations(resumed)
                self._ending.begin(ipvs, [(each, one) for key, one in held.items() if key not in needed])

    def end(self, servers: Iterable[VirtualServer]) -> None:
        """Delete virtual servers."""
        gone = list(servers)
        with self._changing() as (ipvs, _):
            ipvs.delete(gone)
        self._ending.forget(gone)

    def fill(self, wanted: Iterable[IpSet], before: Mapping[str, IpSet]) -> None:
        """Make the sets, and their members those that are wanted."""
        with self._changing() as (_, sets):
            for each in wanted:
                held = before.get(each.name)
                if held is None:
                    sets.create([each])
                elif each.members != held.members:
                    sets.delete(each, held.members - each.members)
                    sets.add(each, each.members - held.members)

    def bind(self, addresses: Iterable[IPAddress]) -> None:
        """Add addresses to the dummy device."""
        with closing(DummyDevice(self._netns, DUMMY)) as device:
            device.bind(addresses)

    def unbind(self, addresses: Iterable[IPAddress]) -> None:
        """Delete addresses of the dummy device."""
        with closing(DummyDevice(self._netns, DUMMY)) as device:
            device.unbind(addresses)

    def look_after_ending(self) -> None:
        """Delete the ending destinations whose connections are gone."""
        with self._changing() as (ipvs, _):
            self._ending.look(ipvs)

    async def load(self, family: Family, text: str) -> None:
        """Load rules with iptables-restore. Raises ``RulesRefusedError``."""
        await self._iptables.load(family, text)

    async def rules(self, family: Family) -> str:
        """The rules as iptables-save prints them."""
        return await self._iptables.dump(family)

    async def has_chain(self, family: Family, table: str, chain: str) -> bool:
        """Whether a table of iptables has that chain."""
        return await self._iptables.has_chain(family, table, chain)

    def _empty(self, family: Family) -> None:
        """Delete the virtual servers and the sets of a family, where the kernel has any."""
        try:
            held = self.held(family)
        except CapabilityError:
            return
        with self._changing() as (ipvs, sets):
            ipvs.delete(held.servers.values())
            sets.destroy(held.sets)

    @contextmanager
    def _changing(self) -> Iterator[tuple[Ipvs, IpSets]]:
        """IPVS and ipset of the node; what the kernel refuses becomes a ``RulesRefusedError``."""
        with closing(Ipvs(self._netns)) as ipvs, closing(IpSets(self._netns)) as sets:
            try:
                yield ipvs, sets
            except (IpvsRefusedError, SetsRefusedError) as refused:
                raise RulesRefusedError(str(refused)) from refused


class Ending:
    """The destinations of one node that end gracefully. They get no new connection, and go when they have none left.

    kube-proxy does so for TCP alone (graceful_termination.go in pkg/proxy/ipvs). IPVS drops packets to a destination
    that is gone (expire_nodest_conn), so that a UDP client's next packet finds another one.
    """

    def __init__(self) -> None:
        self._ending: dict[DestinationKey, Pair] = {}

    def begin(self, ipvs: Ipvs, pairs: Iterable[Pair]) -> None:
        """Delete destinations, or set the weight of those with connections to 0."""
        left = _delete_idle(ipvs, [pair for pair in pairs if _key(pair) not in self._ending])
        ipvs.edit_destinations([(server, replace(each, weight=0)) for server, each in left])
        self._ending |= {_key(pair): pair for pair in left}

    def look(self, ipvs: Ipvs) -> None:
        """Delete those whose connections are gone."""
        if self._ending:
            self._ending = {_key(pair): pair for pair in _delete_idle(ipvs, list(self._ending.values()))}

    def take_back(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Those of the destinations that were ending. They are wanted again, and the kernel has them with weight 0."""
        return [pair for pair in pairs if self._ending.pop(_key(pair), None) is not None]

    def forget(self, servers: Iterable[VirtualServer]) -> None:
        """Forget the destinations of deleted virtual servers."""
        gone = {each.key for each in servers}
        self._ending = {key: pair for key, pair in self._ending.items() if key.server not in gone}


def _delete_idle(ipvs: Ipvs, pairs: list[Pair]) -> list[Pair]:
    """Delete the destinations without connections, and return the others."""
    servers = {server.key: server for server, _ in pairs if server.protocol is Protocol.TCP}
    connections: Mapping[DestinationKey, int] = {
        _key((server, each)): each.active + each.inactive
        for server in servers.values()
        for each in ipvs.destinations(server)
    }
    left = [pair for pair in pairs if connections.get(_key(pair))]
    ipvs.delete_destinations([pair for pair in pairs if pair not in left])
    return left


def _key(pair: Pair) -> DestinationKey:
    server, destination = pair
    return DestinationKey(server.key, destination.address, destination.port)


ON_NODE: Final[Callable[[NodeContext], NodeMode]] = IpvsNode
