"""The text of a failed probe or step, as plain lines of 80 columns or the terminal's width, without colour.

``explain`` writes the whole text of a ``View``, which terminal, pytest, HTML page and bundle show alike. The order
serves a reader who must fix something: the position in the file, what the probe sent, expected against observed, the
reasons, the path of one packet that shows it, the shares of flows, what the rules did, the cause in one sentence, the
command that shows it again. Long rules and commands keep their words whole.
"""

import shlex
from collections import Counter
from collections.abc import Iterator

from proxylab.evidence.stream_records import StreamPacketFate, StreamRecord
from proxylab.evidence.words import amount
from proxylab.oracle.rows import rows
from proxylab.report.hop_table import brief, frame_table, hop_table, rule_table
from proxylab.report.step_timeline import expected_streams, memory_of_streams, stream_head, timeline
from proxylab.report.view import ProbeView, RerunCommand, StepView, view_of
from proxylab.scenario.words import Spread
from proxylab.text import WIDTH, table, wrapped
from proxylab.verdict.expectations.table import OF_PROBES
from proxylab.verdict.model import Judgement, ProbeVerdict, StepVerdict

_INDENT = "  "
_MOST_PODS = 12


def explain(verdict: ProbeVerdict | StepVerdict, width: int = WIDTH) -> tuple[str, ...]:
    """The explanation of a probe or step that did not pass; of a pass, its witnesses.

    The lines have no colour. The first begins with ``file:line:column``.
    """
    view = view_of(verdict)
    lines = _of_step(view, width) if isinstance(view, StepView) else _of_probe(view, width)
    if view.judgement is not Judgement.PASS:
        lines += ["", *_reproduce(view.command, width)]
        if verdict.bundle and isinstance(view, StepView):
            lines.append(f"{_INDENT}evidence:  {verdict.bundle}")
        elif verdict.bundle:
            lines += wrapped(verdict.bundle, f"{_INDENT}evidence:  ", _INDENT * 3, width)
    return tuple(lines)


def _of_probe(view: ProbeView, width: int) -> list[str]:
    lines = [*_title(view, width), *wrapped(view.sent, _INDENT, width=width)]
    lines += ["", *_verdicts(view, width), *_reasons(view, width), *_promises(view, width)]
    for section in (frame_table(view, width), hop_table(view, width), _shares(view, width), rule_table(view, width)):
        if section:
            lines += ["", *section]
    return [*lines, *_cause(view.cause, width)]


def _of_step(view: StepView, width: int) -> list[str]:
    lines, verdict = _title(view, width), view.verdict
    for resolved in expected_streams(verdict):
        lines += wrapped(stream_head(resolved, verdict.evidence), _INDENT, width=width)
    lines += ["", *_verdicts(view, width), *_reasons(view, width, _INDENT * 2)]
    if verdict.evidence.streams:
        lines += ["", *timeline(verdict, width)]
        lines += memory_of_streams(verdict, width)
    return [*lines, *_cause(view.cause, width)]


def briefly(verdict: ProbeVerdict | StepVerdict) -> tuple[str, ...]:
    """A pass in a few lines: the observation, and where the packet was with what rules did to it, or the streams."""
    view = view_of(verdict)
    if isinstance(view, StepView):
        return tuple(filter(None, (view.summary, *map(_sent, view.verdict.evidence.streams))))
    return (view.summary, *brief(view))


def _sent(record: StreamRecord) -> str:
    """What a stream sent in a step, and what became of it: ``queries sent 12 packets: old answered 7, new 5``."""
    fates = Counter(each.fate for each in record.packets)
    by_backend = Counter(each.backend for each in record.packets if each.backend)
    parts = [f"{name} answered {count}" for name, count in by_backend.items()]
    parts += [f"{fates[fate]} {fate}" for fate in (StreamPacketFate.REJECTED, StreamPacketFate.LOST) if fates[fate]]
    return f"{record.stream} sent {amount(len(record.packets), 'packet')}: {', '.join(parts) or 'none was answered'}"


def _reproduce(command: RerunCommand, width: int) -> list[str]:
    """The command in one line, or in several that a shell reads as one."""
    line = f"{_INDENT}reproduce: {command}"
    if len(line) <= width:
        return [line]
    lines = [f"{_INDENT}reproduce:"]
    for word in [*_words(command.run), *filter(None, [command.option])]:
        if len(f"{lines[-1]} {word} \\") <= width:
            lines[-1] += f" {word}"
        else:
            lines[-1] += " \\"
            lines.append(f"{_INDENT * 3}{word}")
    return lines


def _words(run: str) -> list[str]:
    """The words of a command as a shell reads them; an option and its value are one."""
    words: list[str] = []
    for word in map(shlex.quote, shlex.split(run)):
        if words and words[-1].startswith("--") and " " not in words[-1]:
            words[-1] += f" {word}"
        else:
            words.append(word)
    return words


def _title(view: ProbeView | StepView, width: int) -> list[str]:
    where, name = view.deciding[0].position, view.verdict.written.name
    return [*wrapped(f"{where}: {view.judgement.upper()}: {name}", rest=_INDENT, width=width)]


def _verdicts(view: ProbeView | StepView, width: int) -> list[str]:
    rows = [("", "", "expected", "observed")]
    rows += [(each.judgement.value, each.expectation, each.expected, each.observed) for each in view.verdict.verdicts]
    return table(rows, _INDENT, width=width)


def _reasons(view: ProbeView | StepView, width: int, rest: str | None = None) -> Iterator[str]:
    """The reasons, with an empty line before them.

    ``rest`` is the indent of all lines of a clause but its first; by default blanks below its first word.
    """
    if view.reasons:
        yield ""
    for each in view.reasons:
        yield from wrapped(each.clause, f"{_INDENT}{each.expectation}: ", rest, width)


def _promises(view: ProbeView, width: int) -> Iterator[str]:
    """What Kubernetes promises, where the oracle gave the expectations: of the deciding ones, each fact once."""
    by_row: dict[str, list[str]] = {}
    for each in view.deciding:
        for row in each.follows:
            by_row.setdefault(row, []).append(each.expectation)
    if by_row:
        yield ""
        yield f"{_INDENT}promised:"
    for row, keys in by_row.items():
        known = rows()[row]
        yield from wrapped(f"{', '.join(keys)}: {known.text}", _INDENT * 2, _INDENT * 3, width)
        yield f"{_INDENT * 3}{known.because}"


def _shares(view: ProbeView, width: int) -> list[str]:
    """The shares of flows, where those failed: the furthest from its expected share first, the rest only counted."""
    case, shown = view.verdict.case, view.shares
    about = {each.key for each in OF_PROBES if each.shows_in_shares}
    decisive = about.intersection(each.expectation for each in view.deciding)
    if len(case.flows) == 1 or view.judgement is Judgement.PASS or not decisive or not shown:
        return []
    if len(shown) > _MOST_PODS:
        shown = sorted(shown, key=lambda share: -share.distance)[:_MOST_PODS]
    rows: list[tuple[str, ...]] = [("backend", "flows", "share", "expected")]
    rows += [(each.backend, f"{each.flows:,}", f"{each.share:.1%}", f"{each.expected:.1%}") for each in shown]
    if case.expect.spread is Spread.STICKY:
        rows = [row[:3] for row in rows]  # one of them is expected to get all, and the author does not say which
    lines = table(rows, _INDENT, right=frozenset({1, 2, 3}), width=width)
    if len(view.shares) > len(shown):
        lines.append(f"{_INDENT}and {len(view.shares) - len(shown):,} more, closer to the expected share")
    return lines


def _cause(sentence: str, width: int) -> list[str]:
    return ["", *wrapped(sentence, f"{_INDENT}why: ", width=width)] if sentence else []
