"""A rule loader that keeps in memory which chains and rules there are, as ``iptables-restore --noflush`` would.

It refuses what the kernel would refuse to link: a rule in, or a jump to, a chain that does not exist, and the deletion
of a chain that is still in use.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from rule_cases import HERE

from proxylab.addresses import Family
from proxylab.cluster.store import Store
from proxylab.engines.embedded.health import Health
from proxylab.engines.embedded.iptables.writer import IptablesWriter
from proxylab.engines.embedded.metrics import SyncMetrics
from proxylab.engines.embedded.proxier import ModeProxier, Proxier, RulesRefusedError
from proxylab.engines.embedded.settings import Periods, ProxySettings
from proxylab.engines.embedded.sync import Clock, EmbeddedEngine, MonotonicClock, Served

BUILT_IN = {
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
}
Tables = dict[str, dict[str, list[str]]]


def fresh() -> Tables:
    return {table: {chain: [] for chain in chains} for table, chains in BUILT_IN.items()}


def target_of(rule: str) -> str:
    return rule.rpartition("-j ")[2].partition(" ")[0]


class MemoryLoader:
    """``texts`` holds every text that was offered; ``refuse`` makes the next load fail at the line with that in it.

    While ``gate`` is cleared, loads wait: changes can then be made in the middle of one.
    """

    def __init__(self) -> None:
        self.tables: dict[Family, Tables] = defaultdict(fresh)
        self.texts: list[tuple[Family, str]] = []
        self.saves = 0
        self.refuse: str | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def load(self, family: Family, text: str) -> None:
        self.texts.append((family, text))
        await self.gate.wait()
        if self.refuse is not None:
            wrong, self.refuse = self.refuse, None
            found = (number for number, line in enumerate(text.splitlines(), 1) if wrong in line)
            raise RulesRefusedError(f"iptables-restore: line {next(found, 0)} failed")
        self.tables[family] = self._loaded(self.tables[family], text)

    async def has_chain(self, family: Family, table: str, chain: str) -> bool:
        return chain in self.tables[family][table]

    def has_chains_of_proxies(self, family: Family) -> bool:
        return any(chain.startswith("KUBE-") for table in ("nat", "filter") for chain in self.tables[family][table])

    async def dump(self, family: Family) -> str:
        self.saves += 1
        lines = []
        for table, chains in self.tables[family].items():
            lines.append(f"*{table}")
            lines += [f":{chain} {'ACCEPT' if chain in BUILT_IN[table] else '-'} [0:0]" for chain in chains]
            lines += [f"[0:0] -A {chain} {rule}" for chain, rules in chains.items() for rule in rules]
            lines.append("COMMIT")
        return "\n".join(lines) + "\n"

    @staticmethod
    def _loaded(before: Tables, text: str) -> Tables:
        tables = {table: {chain: [*rules] for chain, rules in chains.items()} for table, chains in before.items()}
        chains: dict[str, list[str]] = {}
        for number, line in enumerate(text.splitlines(), 1):
            verb, _, rest = line.partition(" ")
            name, _, rule = rest.partition(" ")
            target = target_of(rule)
            if line.startswith("*"):
                chains = tables[line[1:]]
            elif line.startswith(":"):
                chains[verb[1:]] = []
            elif verb in {"-A", "-I"} and name in chains and (target in chains or not target.startswith("KUBE-")):
                chains[name].insert(len(chains[name]) if verb == "-A" else 0, rule)
            elif verb == "-D" and rule in chains.get(name, ()):
                chains[name].remove(rule)
            elif (
                verb == "-X"
                and not chains[name]
                and name not in {target_of(each) for rules in chains.values() for each in rules}
            ):
                del chains[name]
            elif line != "COMMIT":
                raise RulesRefusedError(f"iptables-restore: line {number} failed")
        return tables


def engine_with(
    store: Store,
    loader: MemoryLoader,
    periods: Periods,
    *,
    settings: ProxySettings | None = None,
    families: tuple[Family, ...] = (Family.IPV4,),
    clock: Clock | None = None,
    **options: Any,
) -> EmbeddedEngine:
    """An embedded engine in mode iptables on the node ``HERE``."""
    clock = clock or MonotonicClock()
    proxiers = {
        family: ModeProxier(
            IptablesWriter(family, loader, settings or ProxySettings(), sync_period=periods.sync, now=clock.now)
        )
        for family in families
    }
    return alone(store, "iptables", proxiers, periods, clock=clock, **options)


def alone(
    store: Store, mode: str, proxiers: Mapping[Family, Proxier], periods: Periods, **options: Any
) -> EmbeddedEngine:
    """An embedded engine on the node ``HERE`` that writes rules and does nothing else."""
    rest = {"others": {}, "interface_addresses": tuple, "node_address": None, "surroundings": NoSurroundings()}
    return EmbeddedEngine(HERE, store, mode, proxiers, periods=periods, **rest | options)


class NoSurroundings:
    """Rules and nothing else."""

    async def open(self, health: Health, metrics: SyncMetrics) -> tuple[str, ...]:
        return ()

    def hold(self, *, answers: bool) -> None:
        self.held = answers

    async def follow(self, served: Served) -> tuple[str, ...]:
        return ()

    async def close(self) -> None:
        pass
