"""The rules that no probe met, as text and as JSON: what ``proxylab run --rule-coverage`` adds to a report.

A run of one scenario lists its kinds of rules. One of several has a line for each, and then the kinds that no probe of
any of them met, engine by engine.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from proxylab.evidence.words import amount
from proxylab.text import WIDTH, wrapped
from proxylab.verdict.model import ScenarioResult
from proxylab.verdict.rule_coverage import RuleCoverage, RuleKind, together


class Covering(Protocol):
    """A scenario's result, or what a document says of one."""

    @property
    def engine_on_kernel(self) -> str:
        """Its engine, and the kernel if it is not the machine's."""

    @property
    def rules(self) -> RuleCoverage | None:
        """What its probes met; ``None`` where the run did not ask."""


def by_engine(results: Sequence[Covering]) -> dict[str, RuleCoverage]:
    """What all scenarios of each engine met together; nothing where no result says what it met."""
    found: dict[str, list[RuleCoverage]] = {}
    for each in results:
        if each.rules is not None:
            found.setdefault(each.engine_on_kernel, []).append(each.rules)
    return {engine: together(coverages) for engine, coverages in found.items()}


def coverage_lines(results: Sequence[ScenarioResult], *, verbosity: int = 0, width: int = WIDTH) -> list[str]:
    """The text; nothing where no result says what it met. See ``report.run_text.run_lines``."""
    engines = by_engine(results)
    if verbosity < 0:
        return [f"{engine}: {met_words(found)}" for engine, found in engines.items()]
    lines: list[str] = []
    several = sum(each.rules is not None for each in results) > len(engines)
    for each in results:
        if each.rules is not None:
            name = f"{each.file} [{each.engine_on_kernel}]{each.case and f' {each.case}'}"
            lines += wrapped(f"{name}: {met_words(each.rules)}", "", "  ", width)
            if not several or verbosity > 0:
                lines += _kinds(each.rules, verbosity, width)
    for engine, found in engines.items() if several else ():
        lines += ["", *wrapped(f"{engine}, all scenarios: {met_words(found)}", "", "  ", width)]
        for kind in found.kinds:
            if not kind.met:
                lines += wrapped(f"{kind.kind} (in {amount(kind.without, 'scenario')})", "  ", "      ", width)
                lines += wrapped(kind.unmet[0], "    ", "      ", width)
    return lines


def met_words(found: RuleCoverage) -> str:
    """How much the probes met; and what could not be counted."""
    met, kinds = sum(each.met > 0 for each in found.kinds), len(found.kinds)
    rules, of_rules = sum(each.met for each in found.kinds), sum(each.rules for each in found.kinds)
    unknown = f"; not counted everywhere: {amount(len(found.uncounted), 'probe')}" if found.uncounted else ""
    return f"probes met {met:,} of {kinds:,} kinds of rules, {rules:,} of {of_rules:,} rules{unknown}"


def _kinds(found: RuleCoverage, verbosity: int, width: int) -> Iterator[str]:
    """What was not met, chain by chain, with ``-v`` rule by rule."""
    for (_mode, where), kinds in found.by_chain.items():
        if not any(each.met for each in kinds) and len(kinds) > 1:
            number = sum(each.rules for each in kinds)
            yield from wrapped(f"{where}: no packet met any of its {amount(number, 'rule')}", "  ", "      ", width)
            if verbosity <= 0:
                continue
        for each in kinds:
            if each.unmet:
                yield from wrapped(f"{each.kind} ({len(each.unmet):,} of {each.rules:,})", "  ", "      ", width)
            for text in each.unmet if verbosity > 0 else ():
                yield from wrapped(text, "    ", "      ", width)


def coverage_document(found: RuleCoverage | None) -> dict[str, object] | None:
    """What a run's JSON document says of a scenario, or of all scenarios of an engine."""
    if found is None:
        return None
    return {"kinds": [_kind(each) for each in found.kinds], "uncounted": list(found.uncounted)}


def _kind(each: RuleKind) -> dict[str, object]:
    return {
        "mode": each.mode,
        "where": each.where,
        "kind": each.kind,
        "rules": each.rules,
        "met": each.met,
        "unmet": list(each.unmet),
        "without": each.without,
    }
