"""How each engine is made for a node.

Owns: ``make_engine``, with a maker for each of the ``names``.
Must not: run anything, or decide which engine a scenario gets.
"""

from collections.abc import Callable, Mapping
from typing import Final

from lab.cluster.store import Store
from lab.engines.embedded.loader import RulesRefusedError
from lab.engines.embedded.pace import Periods
from lab.engines.embedded.settings import ProxySettings
from lab.engines.embedded.sync import EmbeddedEngine
from lab.engines.names import ENGINES
from lab.engines.protocol import Engine, EngineChoice
from lab.errors import InternalError
from lab.ip import Family
from lab.kernel.rules import IptablesTool, RestoreRefusedError

__all__ = ["make_engine"]


class _ToolLoader:
    """``RuleLoader`` by the kernel room's iptables, whose refusals it passes on in the engine's own terms."""

    def __init__(self, tool: IptablesTool) -> None:
        self._tool = tool

    async def load(self, family: Family, text: str) -> None:
        try:
            await self._tool.load(family, text)
        except RestoreRefusedError as refused:
            raise RulesRefusedError(refused.output) from refused

    async def has_chain(self, family: Family, table: str, chain: str) -> bool:
        return await self._tool.has_chain(family, table, chain)

    async def save(self, family: Family) -> str:
        return await self._tool.save(family)


def _embedded_iptables(choice: EngineChoice, node: str, store: Store, tool: IptablesTool) -> Engine:
    settings = ProxySettings.of(choice.configuration, choice.cluster_cidrs)
    periods = Periods(least=choice.configuration.min_sync_period, sync=choice.configuration.sync_period)
    return EmbeddedEngine(node, store, _ToolLoader(tool), settings, periods=periods)


_MAKERS: Final[Mapping[str, Callable[[EngineChoice, str, Store, IptablesTool], Engine]]] = {
    "embedded/iptables": _embedded_iptables,
}


def make_engine(choice: EngineChoice, node: str, store: Store, tool: IptablesTool) -> Engine:
    """The engine of that choice for one node, not yet started.

    Raises:
        InternalError: there is no engine of that name; who asks the user for one checks it against ``names.ENGINES``.
    """
    maker = _MAKERS.get(choice.name)
    if maker is None:
        raise InternalError(f"no engine {choice.name!r}; there are {', '.join(ENGINES)}")
    return maker(choice, node, store, tool)
