"""The verdict of a gate in a few lines: what turned red that is green on a release, what did not run, what was not met.

The results of releases come with the catalogue, as a table of conformance. A probe or step turns red if it fails or is
inconclusive here, and does neither on the release. What is red on both is counted, and does not decide.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final

from msgspec import Struct

from proxylab.evidence.words import amount
from proxylab.features.conformance.conformance_table import Conformance, Item, ItemResult, sentence, together
from proxylab.features.gate.touched import Touched
from proxylab.report.unmet_rules import met_words
from proxylab.text import WIDTH, wrapped
from proxylab.verdict.rule_coverage import RuleCoverage

_RED: Final = (ItemResult.FAIL, ItemResult.INCONCLUSIVE)
_JUDGED: Final = (*_RED, ItemResult.PASS, ItemResult.KNOWN)
_OF_NODE: Final = re.compile(r"^engine on \S+: ")
"""What is the same fault on whatever node it comes first."""
_MOST_REASONS: Final = 6
_MOST_NAMED: Final = 3
"""How many reasons the verdict has, and how many items of each; the page has all."""
_MOST_KINDS: Final = 6
"""How many kinds of rules that no probe met the verdict names."""
_DIGITS: Final = 12


class AgainstRelease(Struct, frozen=True):
    """One proxy of the gate beside a release in the same mode.

    Attributes:
        engine: the proxy's engine.
        release: the release, in words; empty where the table has none of this mode.
        result: how many items conform, in words.
        turned: the items that are red here, and not on the release, each with its reason.
        red_on_both: how many are red on both.
        unknown: how many scenarios were judged here that the release never ran.
        is_judged: whether something ran, and could be judged.
    """

    engine: str
    release: str
    result: str
    turned: tuple[tuple[Item, str], ...]
    red_on_both: int
    unknown: int
    is_judged: bool


class Gate(Struct, frozen=True):
    """All that a verdict is made of.

    Attributes:
        ran: which binary ran, in words.
        against: each proxy beside a release.
        touched: what the change can alter; ``None`` where no change is known.
        base: the commit before the change; empty where none is known.
        late: the scenarios of each engine that would have begun after the gate's time.
        minutes: that time.
        ready: after how many seconds the proxy was built, or looked at.
        tested: how many seconds the tests took.
        rules: what the probes met of each engine's rules.
    """

    ran: str
    against: tuple[AgainstRelease, ...]
    touched: Touched | None
    base: str
    late: dict[str, int]
    minutes: float
    ready: float
    tested: float
    rules: Mapping[str, RuleCoverage] = {}

    @property
    def passes(self) -> bool:
        """Whether something was judged on each proxy, and nothing turned red."""
        return all(each.is_judged and not each.turned for each in self.against)


def against_release(found: Conformance, column: int, releases: Conformance) -> AgainstRelease:
    """One proxy of a table beside the release that is most like it."""
    subject, before = found.columns[column], releases.like(found.columns[column])
    here = len(releases.columns) + column
    turned, both = [], 0
    for item in together([releases, found]).having(here, *_RED):
        if before is not None and item.results[before] in _RED:
            both += 1
        else:
            turned.append((item, item.reason(here)))
    judged = {item.scenario for item in found.having(column, *_JUDGED)}
    unknown = 0 if before is None else len(judged - releases.scenarios(before))
    label = "" if before is None else releases.columns[before].label
    counts = found.counts(column)
    is_judged = any(counts[each] for each in _JUDGED)
    return AgainstRelease(subject.engine, label, sentence(counts), tuple(turned), both, unknown, is_judged)


def gate_lines(gate: Gate, width: int = WIDTH) -> list[str]:
    """The verdict, whose last line says whether the change passes."""
    lines = [*wrapped(f"gate: {gate.ran}", "", "  ", width), *wrapped(_touched_words(gate), "  ", width=width)]
    lines += wrapped(f"ready in {gate.ready:.0f} s, tested in {gate.tested / 60:.1f} minutes", "  ", width=width)
    for each in gate.against:
        lines += ["", *_engine_lines(each, gate.late.get(each.engine, 0), gate.minutes, width)]
        if each.engine in gate.rules:
            lines += _rule_lines(gate.rules[each.engine], width)
    red = sum(len(each.turned) for each in gate.against)
    silent = [each.engine for each in gate.against if not each.is_judged]
    late = sum(gate.late.values())
    aside = f" of what ran; {amount(late, 'scenario')} did not run" if late else ""
    verdict = f"does not pass: {amount(red, 'item')} turned red" if red else f"passes: nothing turned red{aside}"
    if silent and not red:
        verdict = f"is not judged: nothing ran on {' and '.join(silent)}"
    return [*lines, "", f"the change {verdict}"]


def _touched_words(gate: Gate) -> str:
    """What the change can alter, in a sentence."""
    if gate.touched is None:
        return "what it changes is not known, so the core of the catalogue ran alone"
    since = f"since {gate.base[:_DIGITS]}" if gate.base else "that are not committed, since no base of them is known"
    if not gate.touched.files:
        return f"no file {since} can alter a proxy, so the core of the catalogue ran alone"
    parts = [
        f"mode {mode} ({', '.join(sorted(themes)) if themes else 'the whole catalogue'})"
        for mode, themes in gate.touched.themes.items()
    ]
    others = set(gate.touched.themes) - {each.engine.rpartition("/")[2] for each in gate.against}
    aside = "".join(f"; the gate does not run mode {each}, `proxylab conformance` does" for each in sorted(others))
    return f"{amount(len(gate.touched.files), 'file')} {since} can alter {' and '.join(parts)}{aside}"


def _engine_lines(found: AgainstRelease, late: int, minutes: float, width: int) -> Iterator[str]:
    compared = f", compared with {found.release}" if found.release else ", with no release to compare with"
    yield from wrapped(f"{found.engine}: {found.result} conform{compared}", "", "  ", width)
    if found.red_on_both:
        yield from wrapped(f"{amount(found.red_on_both, 'item')} red there, too", "  ", width=width)
    if found.unknown:
        yield from wrapped(f"{amount(found.unknown, 'scenario')} without a result there", "  ", width=width)
    if late:
        given = f"{minutes:g} minute{'s' if minutes != 1 else ''}"
        words = f"{amount(late, 'scenario')} did not run within {given}; try --minutes {minutes * 2:g}"
        yield from wrapped(words, "  ", width=width)
    by_reason: dict[str, list[str]] = {}
    for item, reason in found.turned:
        by_reason.setdefault(_OF_NODE.sub("engine: ", reason), []).append(item.title)
    for reason, titles in islice(sorted(by_reason.items(), key=lambda each: -len(each[1])), _MOST_REASONS):
        yield from wrapped(f"red: {reason or 'no reason is known'}", "  ", "    ", width)
        for title in titles[:_MOST_NAMED]:
            yield from wrapped(title, "    ", "      ", width)
        if len(titles) > _MOST_NAMED:
            yield f"    and {len(titles) - _MOST_NAMED:,} more"
    if len(by_reason) > _MOST_REASONS:
        yield f"  and {amount(len(by_reason) - _MOST_REASONS, 'more reason')}, which the page names"


def _rule_lines(found: RuleCoverage, width: int) -> Iterator[str]:
    """The kinds of rules that no probe met: a change of theirs would pass unseen."""
    unmet = [each.kind for each in found.kinds if not each.met]
    yield from wrapped(met_words(found), "  ", "    ", width)
    yield from ["  no probe met"] * bool(unmet)
    for kind in unmet[:_MOST_KINDS]:
        yield from wrapped(kind, "    ", "      ", width)
    if len(unmet) > _MOST_KINDS:
        yield f"    and {len(unmet) - _MOST_KINDS:,} more, which rules.json names"
