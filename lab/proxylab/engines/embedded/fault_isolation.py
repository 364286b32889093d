"""Fault isolation: one Service whose rules the kernel refuses does not stop the others.

Owns ``FaultIsolation``, which loads rulesets and, where the mode's tool refuses one, finds the Services at fault and
loads the rest without their changes.

A tool takes a whole text (or a table of it) or nothing, so one bad rule would stop all others. Mostly it names the
line, which belongs to one Service. Where it does not (iptables-legacy hands a whole table to the kernel, which only
refuses it), ``FaultIsolation`` halves the changed Services until one is left: some ten loads for a thousand Services.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby
from operator import attrgetter
from typing import Any, Generic, Protocol, Self, TypeVar

from msgspec import Struct

from proxylab.cluster.objects import Key
from proxylab.engines.embedded.proxier import RulesRefusedError, SyncFailedError

__all__ = ["Block", "FaultIsolation", "Loaded", "lines_of"]

MOST_LOADS = 64
"""After so many loads the fault is not in a few objects."""

Block = tuple[str, Key | None]
"""Lines of a text, and their Service if they have one."""


class _PortRules(Protocol):
    """The rules of one service port, in any mode; two are equal where they have the same rules."""

    @property
    def service(self) -> Key:
        """Its Service."""


class _Ruleset(Protocol):
    """All rules of one proxy in one family, in any mode."""

    @property
    def ports(self) -> Sequence[_PortRules]:
        """The rules of each service port; those of one Service follow each other."""

    def with_ports(self, ports: Sequence[Any]) -> Self:
        """The same ruleset with other rules of service ports."""


R = TypeVar("R", bound=_Ruleset)


class _LoadText(Protocol):
    """The text of one load, in any mode."""

    @property
    def text(self) -> str:
        """The whole text."""

    def suspects(self, output: str) -> frozenset[Key]:
        """The Services that may have caused the tool's ``output``; none where no Service did."""

    def explain(self, output: str) -> str:
        """The refused line and its Service, by the tool's ``output``."""


T = TypeVar("T", bound=_LoadText)


def lines_of(blocks: Iterable[Block]) -> tuple[tuple[str, Key | None], ...]:
    """Each line of a text with its Service."""
    return tuple([(line, service) for text, service in blocks for line in text.split("\n")])


class Loaded(Struct, Generic[R, T], frozen=True):
    """The kernel's rules after the loads.

    Attributes:
        ruleset: the wanted rules, but with the old rules of refused Services.
        texts: the loaded texts, in their order.
    """

    ruleset: R
    texts: tuple[T, ...] = ()


class FaultIsolation(Generic[R, T]):
    """Loads the rulesets of one proxier, without the changes to Services that its tool refuses.

    It remembers refused rules and the reason, so that no sync tries the same rules again.

    Args:
        owner: begins each line about a refused Service: the family.
        load: hands a text to the tool; raises ``RulesRefusedError``.

    Attributes:
        ruleset: the one loaded last.
    """

    def __init__(self, owner: str, load: Callable[[str], Awaitable[None]]) -> None:
        self._owner = owner
        self._load = load
        self._refused: dict[Key, tuple[Any, ...]] = {}
        self._why: dict[Key, str] = {}
        self.ruleset: R | None = None

    @property
    def refused(self) -> tuple[str, ...]:
        """A line for each Service whose rules the tool refused."""
        return tuple(self._why.values())

    def forget(self) -> None:
        """Try all refused Services again."""
        self._refused, self._why = {}, {}

    async def load(self, wanted: R, before: object, write: Callable[[R, Any], T]) -> Loaded[R, T]:
        """Load ``wanted`` without the changes to refused Services.

        ``before`` is the state read back from the kernel, or the ruleset loaded last; ``write`` makes the text that
        changes the kernel from its second argument to its first.

        Raises:
            SyncFailedError: the refused line belongs to no Service.
        """
        self._forget_changed(wanted)
        old = _by_service(self.ruleset)
        groups: list[frozenset[Key]] = []
        refused: dict[Key, str] = {}
        texts: list[T] = []
        for _ in range(MOST_LOADS):
            back = frozenset(self._refused).union(refused, *groups)
            ruleset = _with_old(wanted, back, old)
            if ruleset != before:
                text = write(ruleset, before)
                try:
                    await self._load(text.text)
                except RulesRefusedError as error:
                    suspects = text.suspects(error.output) - back
                    if not suspects:
                        raise SyncFailedError(f"{self._owner}: {text.explain(error.output)}", error.output) from error
                    if len(suspects) == 1:
                        refused |= dict.fromkeys(suspects, text.explain(error.output))
                    else:
                        groups += _halves(suspects)
                    continue
                texts.append(text)
                before = ruleset
            if not groups:
                self.ruleset = ruleset
                if refused:
                    self._remember(wanted, ruleset, refused)
                return Loaded(ruleset, tuple(texts))
            groups.pop()
        named = ", ".join(map(str, refused))
        why = "the kernel refused the rules, and went on refusing without the Services that its tool named"
        raise SyncFailedError(f"{self._owner}: {why}: {named}", "")

    def _forget_changed(self, wanted: R) -> None:
        """Try refused Services again once their rules have changed."""
        if self._refused:
            now = _by_service(wanted)
            for service in [service for service, rules in self._refused.items() if now.get(service) != rules]:
                del self._refused[service], self._why[service]

    def _remember(self, wanted: R, loaded: R, refused: Mapping[Key, str]) -> None:
        tried, served = _by_service(wanted), _by_service(loaded)
        for service, why in refused.items():
            left = "keeps the rules it had" if service in served else "is left out"
            self._refused[service] = tried[service]
            self._why[service] = f"{self._owner}: {service} {left}: {why}"


def _by_service(ruleset: _Ruleset | None) -> dict[Key, tuple[Any, ...]]:
    """The rules of each Service."""
    ports = ruleset.ports if ruleset else ()
    return {service: tuple(own) for service, own in groupby(ports, attrgetter("service"))}


def _halves(suspects: AbstractSet[Key]) -> tuple[frozenset[Key], frozenset[Key]]:
    ordered = sorted(suspects)
    middle = len(ordered) // 2
    return frozenset(ordered[:middle]), frozenset(ordered[middle:])


def _with_old(wanted: R, back: AbstractSet[Key], old: Mapping[Key, tuple[Any, ...]]) -> R:
    """``wanted`` with the old rules of the Services in ``back``, if they had any."""
    if not back:
        return wanted
    ports: list[Any] = []
    for service, own in groupby(wanted.ports, attrgetter("service")):
        ports += old.get(service, ()) if service in back else own
    return wanted.with_ports(ports)
