"""A run as lines of text: the lines at each verbosity, and their order. The caller prints and chooses the colours.

From top to bottom: a line for each scenario as soon as it ends, with ``-v`` one for each of its probes; the traces; the
text of each probe that failed or stayed inconclusive (``report.failure_text`` writes it); skipped scenarios with their
fix, and scenarios that ended in an error; in a large run the slowest scenarios and a table of scenarios and engines;
where the run asks, the rules that no probe met (``report.unmet_rules``); a line for each binary that ran, at each
verbosity; a summary.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from proxylab.binary_identity import identity_lines
from proxylab.errors import HOW_TO_SEE_MORE, ExitCode
from proxylab.evidence.words import amount
from proxylab.report.exit_code import AnyResult
from proxylab.report.failure_text import briefly, explain
from proxylab.report.matrix import Painter, result_table, slowest
from proxylab.report.trace_text import journey
from proxylab.report.unmet_rules import coverage_lines
from proxylab.scenario.words import HOST
from proxylab.text import WIDTH, wrapped
from proxylab.verdict.model import UNRESOLVED, Judgement, ProbeVerdict, ScenarioResult, StepVerdict

_ORDER = (Judgement.FAIL, Judgement.INCONCLUSIVE, Judgement.PASS, Judgement.SKIP)
_PARTICIPLES = {
    Judgement.FAIL: "failed",
    Judgement.INCONCLUSIVE: "inconclusive",
    Judgement.PASS: "passed",
    Judgement.SKIP: "skipped",
}
_LABEL = max(map(len, Judgement))


def run_lines(
    results: Sequence[ScenarioResult],
    *,
    verbosity: int = 0,
    traces: bool = False,
    paint: Painter = lambda word, _: word,
    width: int = WIDTH,
) -> list[str]:
    """The text of a run.

    Args:
        results: one for each scenario and engine, in the order of the run.
        verbosity: 0 by default; 1 (``-v``) names every probe; -1 (``-q``) gives one line for each that did not pass.
        traces: show the path of each traced packet.
        paint: colours the words ``pass``, ``fail``, ``inconclusive`` and ``skip``; by default not at all.
        width: the width of the lines; a longer word is not broken.
    """
    lines = [
        line for result in results for line in scenario_lines(result, verbosity=verbosity, paint=paint, width=width)
    ]
    return [*lines, *closing_lines(results, verbosity=verbosity, traces=traces, paint=paint, width=width)]


def scenario_lines(
    result: ScenarioResult, *, verbosity: int = 0, paint: Painter = lambda word, _: word, width: int = WIDTH
) -> list[str]:
    """The lines for a scenario that has ended. See ``run_lines``."""
    if verbosity < 0:
        return list(_quiet(result, paint))
    return [*_scenario(result, paint, width), *(_probes(result, paint, width) if verbosity > 0 else ())]


def closing_lines(
    results: Sequence[ScenarioResult],
    *,
    verbosity: int = 0,
    traces: bool = False,
    paint: Painter = lambda word, _: word,
    width: int = WIDTH,
    seconds: float | None = None,
) -> list[str]:
    """The lines at the end of a run. See ``run_lines``.

    ``seconds`` is the time of the whole run; by default the sum of its scenarios' times, which may overlap.
    """
    lines: list[str] = []
    if verbosity >= 0:
        for block in (*(_journeys(results, width) if traces else ()), *_blocks(results, paint, width)):
            lines += ["", *block]
        for block in (slowest(results, width), result_table(results, paint, width)):
            lines += ["", *block] if block else []
        lines.append("")
        lines += _kernels(results)
    if found := coverage_lines(results, verbosity=verbosity, width=width):
        lines += [*found, *[""] * (verbosity >= 0)]
    for line in identity_lines((result.engine, result.binary) for result in results):
        lines += wrapped(line, "", "  ", width) if verbosity >= 0 else [line]
    return [*lines, summary_line(results, seconds)]


def _kernels(results: Sequence[ScenarioResult]) -> Iterator[str]:
    """A line for each kernel besides the machine's."""
    releases = {result.kernel: result.release for result in results if result.release}
    return (f"kernel {name}: {release}" for name, release in releases.items() if name != HOST)


def _scenario(result: ScenarioResult, paint: Painter, width: int) -> list[str]:
    """One line if it fits. Names are never truncated, so that users can copy them; counts are left out first."""
    judgement = result.overall
    label = paint(judgement.ljust(_LABEL), judgement) if judgement else "nothing".ljust(_LABEL)
    probes, steps = amount(len(result.probes), "probe"), amount(len(result.steps), "step")
    judged = f"{probes} and {steps}" if result.probes and result.steps else steps if result.steps else probes
    if result.foreseen is not None:
        judged = "fails as expected"
    name, took = named(result), f"{result.seconds:.2f} s"
    room = width - _LABEL - len(f"  {name}")
    whole = f" {judged} in {took}"
    if not result.judged and (result.fault or result.skipped):  # no probe failed, and none was left out
        label, whole = paint("error".ljust(_LABEL), Judgement.FAIL) if result.fault else label, f" {took}"
    done = next((each for each in (whole, f" {took}") if len(each) <= room), "")
    first, *rest = wrapped(f"{name}{done}", " " * (_LABEL + 2), " " * (_LABEL + 4), width)
    return [f"{label}  {first.lstrip()}", *rest]


def _probes(result: ScenarioResult, paint: Painter, width: int) -> Iterator[str]:
    if result.foreseen is not None:
        yield from wrapped(str(result.foreseen), " " * (_LABEL + 4), " " * (_LABEL + 6), width)
    for probe in result.judged:
        label = paint(probe.overall.ljust(_LABEL), probe.overall)
        yield f"  {label}  {probe.written.name}"
        if probe.overall is Judgement.PASS:
            for sentence in briefly(probe):
                yield from wrapped(sentence, " " * (_LABEL + 4), " " * (_LABEL + 6), width)


_QUIET_LINES = 5
"""Of a log in a quiet run: its end."""


def _quiet(result: ScenarioResult, paint: Painter) -> Iterator[str]:
    """One line for each probe that did not pass, and for a scenario's skip or error, with the end of its log."""
    for probe in result.judged:
        if probe.overall in UNRESOLVED:
            first = probe.deciding[0]
            reason = first.reasons[0] if first.reasons else f"{first.expectation} {first.observed}"
            yield f"{first.position}: {paint(probe.overall, probe.overall)}: {probe.written.name}: {reason}"
    if result.fault is not None:
        message, *log = result.fault.message.removesuffix(HOW_TO_SEE_MORE).splitlines()
        yield f"{result.file}: {paint('error', Judgement.FAIL)}: {message}"
        if result.fault.exit_code is ExitCode.FAILED:  # of an engine, a program or a build
            yield from (f"  {line}" for line in log[-_QUIET_LINES:])
    if result.skipped is not None:
        skipped = paint(Judgement.SKIP, Judgement.SKIP)
        yield f"{result.file}: {skipped}: needs {result.skipped.missing}; {result.skipped.cure}"


def _blocks(results: Sequence[ScenarioResult], paint: Painter, width: int) -> Iterator[list[str]]:
    """The explanations of more than one line, the worst last, where the user of a terminal looks first."""
    for result in results:
        if result.skipped is not None:
            cure = f"needs {result.skipped.missing}; {result.skipped.cure}"
            yield [f"{named(result)}: {paint('SKIP', Judgement.SKIP)}", *wrapped(cure, "  ", width=width)]
    for result in results:
        yield from _left_out(result, paint, width)
    for wanted in (Judgement.INCONCLUSIVE, Judgement.FAIL):
        for result in results:
            yield from (_explained(each, paint, width) for each in result.judged if each.overall is wanted)
    for result in results:
        if result.fault is not None:
            message = (f"  {line}" for line in result.fault.message.splitlines())
            yield [f"{named(result)}: {paint('ERROR', Judgement.FAIL)}", *message]


def _left_out(result: ScenarioResult, paint: Painter, width: int) -> Iterator[list[str]]:
    """The probes that the engine's mode cannot show, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for each in result.judged:
        if each.overall is Judgement.SKIP:
            by_reason.setdefault(each.verdicts[0].reasons[0], []).append(each.written.name)
    for reason, names in by_reason.items():
        lines = [line for name in names for line in wrapped(name, "    ", " " * 6, width)]
        yield [f"{named(result)}: {paint('SKIP', Judgement.SKIP)}", *wrapped(f"{reason}:", "  ", width=width), *lines]


def _journeys(results: Sequence[ScenarioResult], width: int) -> Iterator[list[str]]:
    """The traces of all traced packets."""
    for probe in (probe for result in results for probe in result.probes):
        if probe.traced is not None:
            yield [f"{probe.probe.position}: {probe.probe.name}", *journey(probe.resolved, probe.traced, width)]


def named(result: ScenarioResult) -> str:
    """The label of a scenario's run in every list: its file, engine and case."""
    return f"{result.file} [{result.engine_on_kernel}]{result.case and f' {result.case}'}"


def _explained(probe: ProbeVerdict | StepVerdict, paint: Painter, width: int) -> list[str]:
    word = probe.overall.upper()
    first, *others = explain(probe, width)
    return [first.replace(f": {word}:", f": {paint(word, probe.overall)}:", 1), *others]


def summary_line(results: Sequence[AnyResult], seconds: float | None = None) -> str:
    """The counts of a run, and its time: by default the sum of its scenarios' times."""
    counts = Counter(each.overall for result in results for each in result.judged)
    parts = [f"{counts[each]:,} {_PARTICIPLES[each]}" for each in _ORDER if counts[each]]
    skipped = sum(result.skipped is not None for result in results)
    if skipped:
        parts.append(f"{amount(skipped, 'scenario')} skipped")
    foreseen = sum(result.foreseen is not None for result in results)
    if foreseen:
        parts.append(f"{amount(foreseen, 'scenario')} failing as expected")
    faults = sum(result.fault is not None for result in results)
    if faults:
        parts.append(amount(faults, "error"))
    took = sum(result.seconds for result in results) if seconds is None else seconds
    return f"{', '.join(parts) or 'nothing selected'} in {took:.2f} s"
