"""Which of the proxies' rules no probe met, by kind: the records of one scenario, and the union over several.

Rules that differ in names, addresses, ports and numbers only are of one kind, and a kind was met if a packet of a probe
met one of them. A rule that is the same on several nodes counts once.
"""

from collections.abc import Iterable
from typing import NamedTuple

from proxylab.encoding import Record


class KindName(NamedTuple):
    """What tells a kind of rules from others; see ``RuleKind``."""

    mode: str
    where: str
    kind: str


class RuleKind(Record, frozen=True, rename="camel"):
    """The rules of one kind, or the elements of a set or map.

    Attributes:
        mode: of the proxies that have them.
        where: their chain, set or map, without the names of Services and endpoints.
        kind: one of them without names, addresses, ports and numbers.
        rules: how many there were.
        unmet: those that no packet of a probe met, each as its tool prints it; of several scenarios one example.
        without: how many scenarios have such rules and met none; of several scenarios only.
    """

    mode: str
    where: str
    kind: str
    rules: int
    met: int
    unmet: tuple[str, ...]
    without: int = 0

    @property
    def name(self) -> KindName:
        return KindName(self.mode, self.where, self.kind)


class RuleCoverage(Record, frozen=True, rename="camel"):
    """What the probes of a scenario met of the rules, or those of several scenarios together.

    Attributes:
        kinds: by mode, chain and kind.
        uncounted: the probes whose packets some node could not count, since its rules were loaded anew meanwhile, or
            the kernel reported more than was read. What they met is not known.
    """

    kinds: tuple[RuleKind, ...]
    uncounted: tuple[str, ...] = ()

    @property
    def by_chain(self) -> dict[tuple[str, str], list[RuleKind]]:
        """The kinds by mode and chain, set or map."""
        found: dict[tuple[str, str], list[RuleKind]] = {}
        for each in self.kinds:
            found.setdefault((each.mode, each.where), []).append(each)
        return found


def together(coverages: Iterable[RuleCoverage]) -> RuleCoverage:
    """Several scenarios as one: a kind is met if one of them met it."""
    found: dict[KindName, RuleKind] = {}
    uncounted: list[str] = []
    for coverage in coverages:
        uncounted += coverage.uncounted
        for each in coverage.kinds:
            known = found.get(each.name, RuleKind(*each.name, 0, 0, ()))
            found[each.name] = RuleKind(
                *each.name,
                known.rules + each.rules,
                known.met + each.met,
                (known.unmet or each.unmet)[:1],
                known.without + (not each.met),
            )
    return RuleCoverage(tuple(found[key] for key in sorted(found)), tuple(uncounted))
