"""A table of conformance as text for a terminal, and the differences between two columns."""

from collections.abc import Iterator
from typing import Final

from proxylab.evidence.words import amount
from proxylab.features.conformance.conformance_table import (
    Conformance,
    Item,
    ItemResult,
    ResultChange,
    TestedProxy,
    conforming,
    sentence,
)
from proxylab.text import WIDTH, table, wrapped

_TURNS: Final = ("no longer conforms", "conforms now", "known difference now", "no known difference any more", "other")


def conformance_lines(found: Conformance, *, verbose: bool = False, width: int = WIDTH) -> list[str]:
    """The table of each column, with its known differences and what does not conform.

    With ``verbose`` the lines name the items of each known difference.
    """
    lines: list[str] = []
    for column, subject in enumerate(found.columns):
        lines += ["", *_themes(found, column, width)]
        for title, result in (("known differences", ItemResult.KNOWN), ("not judged", ItemResult.SKIP)):
            lines += _by_reason(title, found, column, result, verbose, width)
        lines += _bad(found, column, subject, width)
        lines += ["", *wrapped(about(subject), width=width), f"{subject.label}: {sentence(found.counts(column))}"]
    return lines[1:]


def about(subject: TestedProxy) -> str:
    """The versions of all that took part, in one line."""
    kernel = f"kernel {subject.release or 'unknown'}{f' ({subject.kernel})' if subject.kernel != 'host' else ''}"
    options = f", {' '.join(subject.options)}" if subject.options else ""
    catalogue = f"{amount(subject.scenarios, 'scenario')} of catalogue {subject.catalogue}"
    binary = f", {subject.binary}" if subject.binary else ""
    return f"{subject.begun}: {subject.label}{options}, {kernel}, {catalogue}, proxylab {subject.proxylab}{binary}"


def _themes(found: Conformance, column: int, width: int) -> list[str]:
    rows = [("theme", "conform", "known differences", "not judged")]
    for theme in (*found.themes, ""):
        counts = found.counts(column, theme)
        if counts:
            known, skipped = (
                f"{counts[each]:,}" if counts[each] else "" for each in (ItemResult.KNOWN, ItemResult.SKIP)
            )
            rows.append((theme or "all", conforming(counts), known, skipped))
    return table(rows, indent="", right=frozenset({1, 2, 3}), width=width)


def _by_reason(
    title: str, found: Conformance, column: int, result: ItemResult, verbose: bool, width: int
) -> Iterator[str]:
    """The reasons for a result, each with how many items have it."""
    reasons: dict[str, list[Item]] = {}
    for item in found.having(column, result):
        reasons.setdefault(item.reason(column), []).append(item)
    if reasons:
        yield from ("", f"{title}:")
    for reason, items in sorted(reasons.items(), key=lambda each: -len(each[1])):
        yield from wrapped(f"{len(items):3,}  {reason}", "  ", " " * 7, width)
        for item in items if verbose else ():
            yield from wrapped(item.title, " " * 7, " " * 9, width)


def _bad(found: Conformance, column: int, subject: TestedProxy, width: int) -> Iterator[str]:
    """The items that do not conform, with their reasons, and how to run each scenario again."""
    options = " ".join(("--engine", subject.engine, *subject.options))
    kernel = f" --kernel {subject.kernel}" if subject.kernel != "host" else ""
    scenarios = dict.fromkeys(each.scenario for each in found.having(column, ItemResult.FAIL, ItemResult.INCONCLUSIVE))
    for scenario in scenarios:
        yield ""
        for item in found.having(column, ItemResult.FAIL, ItemResult.INCONCLUSIVE):
            if item.scenario == scenario:
                yield from wrapped(f"{item.results[column]}: {item.title}", "", "  ", width)
                yield from wrapped(item.reason(column), "  ", "    ", width)
        yield f"  proxylab run --catalogue {scenario} {options}{kernel}"


def change_lines(found: Conformance, before: int, after: int, width: int = WIDTH) -> list[str]:
    """What differs between two columns, the worst first."""
    groups: dict[str, list[ResultChange]] = {title: [] for title in _TURNS}
    for each in found.changes(before, after):
        groups[_turn(each)].append(each)
    lines = [
        line
        for word, column in (("before: ", before), ("after:  ", after))
        for line in wrapped(f"{word}{about(found.columns[column])}", "", "  ", width)
    ]
    for title, changes in groups.items():
        lines += ["", f"{title}: {len(changes):,}"] if changes else []
        for each in changes:
            turn = f" ({each.before or 'absent'}, now {each.after or 'absent'})" if title == _TURNS[-1] else ""
            lines += wrapped(f"{each.title}{turn}", "  ", "    ", width)
            lines += wrapped(each.reason, "    ", width=width) if each.reason else []
    ran = found.scenarios(before), found.scenarios(after)
    same = f", and {amount(len(ran[0] ^ ran[1]), 'scenario')} ran in only one of them" if ran[0] != ran[1] else ""
    judged = amount(sum(each.scenario in ran[0] & ran[1] for each in found.items), "item")
    total = f"{sum(map(len, groups.values())):,} of {judged}"
    return [*lines, "", *wrapped(f"{total} differ{same}", width=width)]


def _turn(change: ResultChange) -> str:
    """The group of a change. What only one of them judged is no turn for better or worse, unless it fails now."""
    if change.is_worse:
        return _TURNS[0]
    match change.before, change.after:
        case (ItemResult.FAIL | ItemResult.INCONCLUSIVE, ItemResult.PASS | ItemResult.KNOWN):
            return _TURNS[1]
        case (ItemResult.PASS, ItemResult.KNOWN):
            return _TURNS[2]
        case (ItemResult.KNOWN, ItemResult.PASS):
            return _TURNS[3]
        case _:
            return _TURNS[4]
