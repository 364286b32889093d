"""Fault isolation: one Service whose rules the kernel refuses does not stop the others.

Owns ``load_sound``, which loads a ruleset and, where iptables-restore refuses it, finds the Services at fault and loads
the rest without their changes.

iptables-restore takes a whole table or nothing, so one bad rule would stop all others. Mostly it names the line, which
belongs to one Service. Where it does not (iptables-legacy hands a whole table to the kernel, which only refuses it),
``load_sound`` halves the changed Services until one is left: some ten loads for a thousand Services.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from itertools import groupby
from operator import attrgetter

from msgspec import Struct, field
from msgspec.structs import replace

from proxylab.cluster.objects import Key
from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.restore import RestoreText
from proxylab.engines.embedded.iptables.rules import PortRules, Ruleset
from proxylab.engines.embedded.loader import RulesRefusedError
from proxylab.engines.embedded.proxier import SyncFailedError

__all__ = ["Loaded", "by_service", "load_sound"]

MOST_LOADS = 64
"""After so many loads the fault is not in a few objects."""

OfServices = Mapping[Key, tuple[PortRules, ...]]


class Loaded(Struct, frozen=True):
    """The kernel's rules after the loads.

    Attributes:
        ruleset: the wanted rules, but with the old rules of refused Services.
        texts: the loaded texts, in their order.
        refused: the reason for each Service whose rules iptables-restore refused.
    """

    ruleset: Ruleset
    texts: tuple[RestoreText, ...] = ()
    refused: Mapping[Key, str] = field(default_factory=dict)


def by_service(ruleset: Ruleset | None) -> dict[Key, tuple[PortRules, ...]]:
    """The rules of each Service."""
    ports = ruleset.ports if ruleset else ()
    return {service: tuple(own) for service, own in groupby(ports, attrgetter("service"))}


async def load_sound(
    wanted: Ruleset,
    before: KernelState | Ruleset,
    old: OfServices,
    *,
    known: Collection[Key],
    write: Callable[[Ruleset, KernelState | Ruleset], RestoreText],
    load: Callable[[str], Awaitable[None]],
) -> Loaded:
    """Load ``wanted`` without the changes to refused Services.

    Args:
        wanted: the rules for the cluster as it is.
        before: the state read back from the kernel, or the ruleset loaded last.
        old: the current rules of Services; a refused Service keeps them.
        known: Services refused earlier, which are not tried again.
        write: makes the text that changes the kernel from its second argument to its first.
        load: hands a text to iptables-restore; raises ``RulesRefusedError``.

    Raises:
        SyncFailedError: the refused line belongs to no Service.
    """
    groups: list[frozenset[Key]] = []
    refused: dict[Key, str] = {}
    texts: list[RestoreText] = []
    why = "iptables-restore refused the rules, and went on refusing without the Services it named"
    for _ in range(MOST_LOADS):
        back = frozenset(known).union(refused, *groups)
        ruleset = _with_old(wanted, back, old)
        if ruleset != before:
            text = write(ruleset, before)
            try:
                await load(text.text)
            except RulesRefusedError as error:
                suspects = text.suspects(error.output) - back
                if not suspects:
                    raise SyncFailedError(text.explain(error.output), error.output) from error
                if len(suspects) == 1:
                    refused |= dict.fromkeys(suspects, text.explain(error.output))
                else:
                    groups += _halves(suspects)
                continue
            texts.append(text)
            before = ruleset
        if not groups:
            return Loaded(ruleset, tuple(texts), refused)
        groups.pop()
    raise SyncFailedError(f"{why}: {', '.join(map(str, refused))}", "")


def _halves(suspects: AbstractSet[Key]) -> tuple[frozenset[Key], frozenset[Key]]:
    ordered = sorted(suspects)
    middle = len(ordered) // 2
    return frozenset(ordered[:middle]), frozenset(ordered[middle:])


def _with_old(wanted: Ruleset, back: AbstractSet[Key], old: OfServices) -> Ruleset:
    """``wanted`` with the old rules of the Services in ``back``, if they had any."""
    if not back:
        return wanted
    ports: list[PortRules] = []
    for service, own in groupby(wanted.ports, attrgetter("service")):
        ports += old.get(service, ()) if service in back else own
    return replace(wanted, ports=tuple(ports))
