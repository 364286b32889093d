"""The spelling of endpoints, amounts, lists of names, and clauses that many flows share."""

from collections import Counter
from collections.abc import Iterable, Sequence

from proxylab.addresses import IPAddress, with_port

_MOST_KINDS = 4
"""How many different clauses about flows ``tally`` spells out; it only counts the rest."""

_MOST_NAMES = 8
"""How many names a clause lists."""

_MOST_SHARES = 6
"""How many names a clause lists with their flows; a table of an explanation shows more."""


def endpoint(address: IPAddress, port: int) -> str:
    """An address and port as RFC 3986 and every tool write them; the address alone for port 0 (ICMP).

    Example:
        >>> from ipaddress import ip_address
        >>> endpoint(ip_address("fd00::1"), 80), endpoint(ip_address("10.0.0.1"), 0)
        ('[fd00::1]:80', '10.0.0.1')
    """
    return with_port(address, port) if port else str(address)


def amount(number: int, thing: str) -> str:
    """A number of things.

    Example:
        >>> amount(1, "flow"), amount(2000, "flow"), amount(2, "entry"), amount(2, "way")
        ('1 flow', '2,000 flows', '2 entries', '2 ways')
    """
    several = f"{thing[:-1]}ies" if thing.endswith("y") and not thing.endswith("ay") else f"{thing}s"
    return f"{number:,} {thing if number == 1 else several}"


def times(number: int) -> str:
    """How often something happened.

    Example:
        >>> times(0), times(1), times(2), times(3)
        ('never', 'once', 'twice', '3 times')
    """
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number:,} times")


def listed(names: Sequence[str], last: str = "and") -> str:
    """Names as a sentence lists them, the first few if there are many.

    Example:
        >>> listed(["a"]), listed(["a", "b", "c"]), listed([])
        ('a', 'a, b and c', 'none')
    """
    if not names:
        return "none"
    if len(names) > _MOST_NAMES:
        return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES:,} more"
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def numbers(found: Counter[str]) -> str:
    """Names with their numbers of flows, the most frequent ones if there are many; the name alone for one flow.

    Example:
        >>> numbers(Counter({"web-1": 2, "web-2": 1})), numbers(Counter(["web-1"]))
        ('web-1 2, web-2 1', 'web-1')
    """
    if found.total() <= 1:
        return listed(list(found))
    shown = [f"{name} {count:,}" for name, count in found.most_common(_MOST_SHARES)]
    more = len(found) - len(shown)
    return ", ".join(shown) + (f", {more:,} more" if more else "")


def tally(clauses: Iterable[str], flows: int, thing: str = "flow") -> list[str]:
    """Each different clause once, most frequent first, with its number of flows if there are several.

    Of other things than flows, ``thing`` is their name.

    Example:
        >>> tally(["it was lost", "it was lost", "it was late"], 3)
        ['2 of 3 flows: it was lost', '1 of 3 flows: it was late']
    """
    counts: dict[str, int] = {}
    for clause in clauses:
        counts[clause] = counts.get(clause, 0) + 1
    ranked = sorted(counts, key=lambda clause: -counts[clause])
    if flows == 1:
        return ranked
    lines = [f"{counts[clause]:,} of {amount(flows, thing)}: {clause}" for clause in ranked[:_MOST_KINDS]]
    rest = sum(counts[clause] for clause in ranked[_MOST_KINDS:])
    return [*lines, f"{amount(rest, thing)} in {len(ranked) - _MOST_KINDS:,} further ways"] if rest else lines
