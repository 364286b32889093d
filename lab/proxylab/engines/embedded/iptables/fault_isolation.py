"""Loading what the kernel takes, Service by Service where it must be.

Owns: ``load_sound``: loads a ruleset and, where it is refused, finds the Services that are at fault and goes on without
the change to them.
Must not: render, or know what is wrong with a rule.

iptables-restore takes a table as a whole or not at all, so one rule that the kernel does not like would stop all
others. Mostly it names the line, and the line is of one Service. Where it does not (iptables-legacy hands a whole table
to the kernel, which only says no), the changed Services are halved until one is left: some ten loads in a thousand.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from itertools import groupby
from operator import attrgetter

from proxylab.cluster.objects import Key
from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.restore import RestoreText
from proxylab.engines.embedded.iptables.rules import PortRules, Ruleset
from proxylab.engines.embedded.loader import RulesRefusedError
from proxylab.engines.embedded.proxier import SyncFailedError
from proxylab.frozen import dataclass

__all__ = ["Loaded", "by_service", "load_sound"]

MOST_LOADS = 64
"""After as many, something else must be wrong than a few objects."""

OfServices = Mapping[Key, tuple[PortRules, ...]]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the kernel holds in the end.

    Attributes:
        ruleset: what was wanted, but for the Services that are refused: those keep the rules they had.
        texts: those that were loaded, in their order.
        refused: what is said of each Service whose rules were not taken.
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
    """Load ``wanted``, but for the rules of Services that are refused.

    Args:
        wanted: the rules for the cluster as it is.
        before: what was read back from the kernel, or the ruleset that it holds.
        old: the rules that Services have now; a Service that is refused keeps them.
        known: Services whose rules have been refused already, and are not tried again.
        write: the text that leads from the second to the first.
        load: hands a text to iptables-restore; raises ``RulesRefusedError``.

    Raises:
        SyncFailedError: what is refused is no Service's.
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
    """``wanted`` with the old rules of those Services, if they had any."""
    if not back:
        return wanted
    ports: list[PortRules] = []
    for service, own in groupby(wanted.ports, attrgetter("service")):
        ports += old.get(service, ()) if service in back else own
    return replace(wanted, ports=tuple(ports))
