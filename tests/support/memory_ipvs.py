"""What mode ipvs plans for a case, and a node's kernel in memory that its proxier changes."""

import asyncio
from collections.abc import Iterable, Mapping

from memory_loader import MemoryLoader
from rule_cases import Case

from proxylab.addresses import Family, IPAddress
from proxylab.engines.embedded.ipvs.tables import ServerKey, Tables, plan_tables
from proxylab.engines.embedded.ipvs.writer import Held
from proxylab.engines.embedded.ports import PortTracker
from proxylab.engines.embedded.proxier import Proxier, RulesRefusedError
from proxylab.evidence.ipvs import IpSet, VirtualServer


def planned(given: Case, family: Family = Family.IPV4) -> Tables:
    ports = PortTracker(family, given.node.name).update(given.cluster)
    return plan_tables(ports, given.node, given.settings, family)


class MemoryIpvs(MemoryLoader):
    """A node's kernel in memory; ``refusing`` makes IPVS refuse every change."""

    def __init__(self) -> None:
        super().__init__()
        self.servers: dict[ServerKey, VirtualServer] = {}
        self.sets: dict[str, IpSet] = {}
        self.bound: set[IPAddress] = set()
        self.refusing = False

    def prepare(self) -> None:
        pass

    def held(self, family: Family) -> Held:
        return Held(dict(self.servers), dict(self.sets), frozenset(self.bound))

    def served(self) -> list[ServerKey]:
        return [*self.servers]

    def serve(self, wanted: Iterable[VirtualServer], before: Mapping[ServerKey, VirtualServer]) -> None:
        assert before == self.servers, "the proxier knows what the kernel holds"
        if self.refusing:
            raise RulesRefusedError("the kernel refused to add -t 10.96.0.20:80: Permission denied")
        self.servers |= {each.key: each for each in wanted}

    def end(self, servers: Iterable[VirtualServer]) -> None:
        for each in servers:
            del self.servers[each.key]

    def fill(self, wanted: Iterable[IpSet], before: Mapping[str, IpSet]) -> None:
        assert before == self.sets
        self.sets |= {each.name: each for each in wanted}

    def bind(self, addresses: Iterable[IPAddress]) -> None:
        self.bound |= {*addresses}

    def unbind(self, addresses: Iterable[IPAddress]) -> None:
        self.bound -= {*addresses}

    def look_after_ending(self) -> None:
        pass

    async def rules(self, family: Family) -> str:
        return await self.dump(family)


def synced(proxier: Proxier, given: Case, *, full: bool = False) -> str:
    return asyncio.run(proxier.sync(given.cluster, given.node, full=full)).what
