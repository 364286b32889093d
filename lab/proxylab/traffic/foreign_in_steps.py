"""What foreign rules counted in the steps of a lab, in which its streams run.

A rule of NAT counts the first packet of a flow, and a flow lives through many steps. So ``ForeignInSteps`` adds up all
steps so far, and keeps a rule that is gone; it marks those that met nothing in the latest one, since a rule that drops
acts at once. What probes send while the streams rest does not count. Nothing shows which rule made an entry that a
stream goes on with, so the doubt about who led it stays until the lab ends.

Meters cannot read while an engine reloads its rules. So the rules of the engine's own tables are listed at a step's
begin and end, where others have rules in them, too.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.evidence.evidence import ForeignRule, RuleCount
from proxylab.plan.resolved import ResolvedProbe
from proxylab.timing import together
from proxylab.traffic.foreign import NAT, ForeignRules

__all__ = ["ForeignInSteps"]

_Key = tuple[bool, str, Family, object]
"""Whether the rule stands in a table of the engine's, the node, the family, and the rule's own key."""


class ForeignInSteps:
    """The foreign rules that may have led packets of streams."""

    def __init__(self, nodes: Mapping[str, ForeignRules]) -> None:
        self._nodes = nodes
        self._watched: dict[tuple[str, Family], ForeignRules] = {}
        self._before: dict[_Key, ForeignRule] | None = None
        self._found: dict[_Key, ForeignRule] = {}
        self._latest: set[_Key] = set()

    async def begin(self, streams: Iterable[ResolvedProbe] = (), *, changing: bool = False) -> None:
        """Remember the counters on the nodes of the streams, which are about to send; a second call does nothing.

        Where engines are ``changing``, the rules of one may remain beside those of its successor in another mode. What
        they counted before is then remembered, too.
        """
        for each in streams:
            for node in each.nodes if each.service_port else ():
                if node in self._nodes:
                    self._watched[node, Family.of(each.destination)] = self._nodes[node]
        if self._before is None:
            self._before = await self._read(always=changing)

    async def end(self) -> None:
        """Add what has been counted since, now that all streams are at rest; a second call does nothing."""
        began, self._before = self._before, None
        if began is None:
            return
        for key, rule in (await self._read(always=False)).items():
            if rule.packets is None:
                self._found[key] = rule
                self._latest.add(key)
                continue
            before = _packets(began.get(key, began.get((not key[0], *key[1:]))))
            gained = rule.packets - before if rule.packets >= before else rule.packets
            if gained:
                self._found[key] = replace(rule, packets=gained + _packets(self._found.get(key)))
                self._latest.add(key)

    def found(self) -> tuple[tuple[ForeignRule, ...], tuple[RuleCount, ...]]:
        """The foreign rules that counted in this step or an earlier one or have no counter, and what rules counted.

        The latter are all rules of tables that the engine shares with others, but those of the past in table nat alone.
        The step ends with this.
        """
        latest, self._latest = self._latest, set()
        foreign = dict.fromkeys(
            replace(rule, past=key not in latest) for key, rule in self._found.items() if not key[0]
        )
        counts = (rule for key, rule in self._found.items() if key[0] and (rule.table == NAT or key in latest))
        return tuple(foreign), tuple(
            RuleCount(rule.node, rule.table, rule.chain, rule.text, _packets(rule)) for rule in counts
        )

    async def _read(self, *, always: bool) -> dict[_Key, ForeignRule]:
        found: dict[_Key, ForeignRule] = {}
        watched = list(self._watched.items())
        for shared in (False, True):
            read = await together(
                rules.read_shared(family, always=always) if shared else rules.read(family)
                for (_, family), rules in watched
            )
            for ((node, family), _), listed in zip(watched, read, strict=True):
                found.update({(shared, node, family, key): rule for key, rule in listed.items()})
        return found


def _packets(rule: ForeignRule | None) -> int:
    return 0 if rule is None else rule.packets or 0
