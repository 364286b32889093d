"""The text of a failed probe or step, as plain lines of 80 columns or the terminal's width, without colour.

``explain`` writes the whole text, which terminal, pytest, HTML page and bundle show alike. The judgements and their
reasons come from ``verdict.expectations``, the sentence behind ``why:`` from ``verdict.causes``. The order serves a
reader who must fix something: the position in the file, what the probe sent, expected against observed, the reasons,
the path of one packet that shows it, the shares of flows, what the rules did, the cause in one sentence, the command
that shows it again. Long rules and commands keep their words whole.
"""

import shlex
from collections import Counter
from collections.abc import Iterator

from proxylab.evidence.stream_records import StreamPacketFate, StreamRecord
from proxylab.evidence.words import amount, endpoint
from proxylab.oracle.rows import rows
from proxylab.report.hop_table import brief, hop_table, rule_table
from proxylab.report.step_timeline import expected_streams, memory_of_streams, stream_head, timeline
from proxylab.scenario.probes import AddressTarget, HostTarget, PodTarget, ServiceTarget, Target
from proxylab.scenario.words import Spread
from proxylab.text import WIDTH, table, wrapped
from proxylab.verdict.case import Case
from proxylab.verdict.causes.table import why, why_step, with_holder
from proxylab.verdict.dns import has_no_address
from proxylab.verdict.expectations.table import OF_PROBES
from proxylab.verdict.model import Judgement, ProbeVerdict, StepVerdict, Verdict

_INDENT = "  "
_MOST_PODS = 12
_EXPANDED = frozenset('"$`\\!')
"""What a shell reads in double quotes."""


def explain(verdict: ProbeVerdict | StepVerdict, width: int = WIDTH) -> tuple[str, ...]:
    """The explanation of a probe or step that did not pass; of a pass, its witnesses.

    The lines have no colour. The first begins with ``file:line:column``.
    """
    is_step = isinstance(verdict, StepVerdict)
    lines = _of_step(verdict, width) if isinstance(verdict, StepVerdict) else _of_probe(verdict, width)
    if verdict.overall is not Judgement.PASS:
        lines += ["", *_reproduce(verdict, width)]
        if verdict.bundle and is_step:
            lines.append(f"{_INDENT}evidence:  {verdict.bundle}")
        elif verdict.bundle:
            lines += wrapped(verdict.bundle, f"{_INDENT}evidence:  ", _INDENT * 3, width)
    return tuple(lines)


def _of_probe(verdict: ProbeVerdict, width: int) -> list[str]:
    case = verdict.case
    lines = [*_title(verdict, verdict.probe.name, width), *wrapped(sent_line(verdict), _INDENT, width=width)]
    lines += ["", *_verdicts(verdict, width), *_reasons(verdict, width), *_promises(verdict, width)]
    for section in (
        hop_table(case, verdict.traced, _main(verdict).example, width),
        _shares(case, verdict, width),
        rule_table(case, verdict.traced, width),
    ):
        if section:
            lines += ["", *section]
    return [*lines, *_cause(why(verdict), width)]


def _of_step(verdict: StepVerdict, width: int) -> list[str]:
    lines = _title(verdict, verdict.step.name, width)
    for resolved in expected_streams(verdict):
        lines += wrapped(stream_head(resolved, verdict.evidence), _INDENT, width=width)
    lines += ["", *_verdicts(verdict, width), *_reasons(verdict, width, _INDENT * 2)]
    if verdict.evidence.streams:
        lines += ["", *timeline(verdict, width)]
        lines += memory_of_streams(verdict, width)
    return [*lines, *_cause(why_step(verdict), width)]


def summary(verdict: ProbeVerdict | StepVerdict) -> str:
    """What the lab observed, in one line: ``delivered; reply from 10.96.0.10:80; …``."""
    return "; ".join(
        each.observed if each.expectation == "outcome" else f"{each.expectation} {each.observed}"
        for each in verdict.verdicts
        if each.observed
    )


def briefly(verdict: ProbeVerdict | StepVerdict) -> tuple[str, ...]:
    """A pass in a few lines: the observation, and where the packet was with what rules did to it, or the streams."""
    if isinstance(verdict, StepVerdict):
        return tuple(filter(None, (summary(verdict), *map(_sent, verdict.evidence.streams))))
    return (summary(verdict), *brief(verdict.case, verdict.traced))


def _sent(record: StreamRecord) -> str:
    """What a stream sent in a step, and what became of it: ``queries sent 12 packets: old answered 7, new 5``."""
    fates = Counter(each.fate for each in record.packets)
    by_backend = Counter(each.backend for each in record.packets if each.backend)
    parts = [f"{name} answered {count}" for name, count in by_backend.items()]
    parts += [f"{fates[fate]} {fate}" for fate in (StreamPacketFate.REJECTED, StreamPacketFate.LOST) if fates[fate]]
    return f"{record.stream} sent {amount(len(record.packets), 'packet')}: {', '.join(parts) or 'none was answered'}"


def command(verdict: ProbeVerdict | StepVerdict) -> tuple[str, str]:
    """The command that runs this probe, or step, alone, quoted for a shell: the run, and the option that names it.

    A Python test runs its own probes, so there is no option.
    """
    if verdict.rerun_command:
        return verdict.rerun_command, ""
    judged = verdict.step if isinstance(verdict, StepVerdict) else verdict.probe
    options = "".join(f" {shlex.quote(option)}" for option in verdict.options)
    return f"proxylab run {shlex.quote(judged.position.file)}{options}", f"--probe {_quoted(judged.name)}"


def _reproduce(verdict: ProbeVerdict | StepVerdict, width: int) -> list[str]:
    """The command in one line, or in several that a shell reads as one."""
    run, option = command(verdict)
    line = f"{_INDENT}reproduce: {run} {option}".rstrip()
    if len(line) <= width:
        return [line]
    lines = [f"{_INDENT}reproduce:"]
    for word in [*_words(run), *filter(None, [option])]:
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


def _quoted(name: str) -> str:
    """The name in single quotes, or in double ones if it has an apostrophe, as in "a node's port"."""
    if "'" not in name:
        return f"'{name}'"
    return f'"{name}"' if _EXPANDED.isdisjoint(name) else shlex.quote(name)


def _main(verdict: ProbeVerdict | StepVerdict) -> Verdict:
    """The verdict that decides: the first of the worst."""
    return next(each for each in verdict.verdicts if each.judgement is verdict.overall)


def _title(verdict: ProbeVerdict | StepVerdict, name: str, width: int) -> list[str]:
    return [*wrapped(f"{_main(verdict).position}: {verdict.overall.upper()}: {name}", rest=_INDENT, width=width)]


def sent_line(verdict: ProbeVerdict) -> str:
    """What the probe sent: sender, target, the address dialled, and the number of flows."""
    resolved = verdict.resolved
    sent = f"{amount(resolved.flows, 'flow')} of {resolved.protocol} by {resolved.manner}"
    if resolved.concurrency and resolved.flows > 1:
        sent += ", one after another" if resolved.concurrency == 1 else f", {resolved.concurrency} at once"
    if resolved.sender.frame_mac:
        sent += f", in frames to {verdict.probe.send.frame_to}"
    more = f" and {len(resolved.sender.others):,} more" if resolved.sender.others else ""
    way = f"{resolved.sender.name} ({resolved.sender.address}{more}) to {_target(verdict.probe.target)}"
    question = resolved.question
    if question is not None and has_no_address(resolved, verdict.evidence.lookups):
        return f"{way}, asking {resolved.destination} for {question.names[0]}: nothing dialled"
    return f"{way}, dialling {endpoint(resolved.destination, resolved.port)}: {sent}"


def _target(target: Target) -> str:
    match target:
        case ServiceTarget():
            node = f" at {target.node}" if target.node else ""
            return f"Service {target.namespace}/{target.service} by its {target.via}{node}"
        case PodTarget():
            return f"pod {target.pod}"
        case HostTarget():
            return f"host {target.host}"
        case AddressTarget():
            return f"{target.address}{target.path and f' at {target.path}'}"


def _verdicts(verdict: ProbeVerdict | StepVerdict, width: int) -> list[str]:
    rows = [("", "", "expected", "observed")]
    rows += [(each.judgement.value, each.expectation, each.expected, each.observed) for each in verdict.verdicts]
    return table(rows, _INDENT, width=width)


def _reasons(verdict: ProbeVerdict | StepVerdict, width: int, rest: str | None = None) -> Iterator[str]:
    """Only those of the deciding verdicts, since the others often follow from them; with an empty line before them.

    ``rest`` is the indent of all lines of a clause but its first; by default blanks below its first word.
    """
    passes = verdict.overall is Judgement.PASS
    clauses = [
        (f"{_INDENT}{each.expectation}: ", with_holder(verdict, each, clause))
        for each in verdict.verdicts
        if each.judgement is verdict.overall
        for clause in (each.witnesses if passes else each.reasons)
    ]
    if clauses:
        yield ""
    for expectation, clause in clauses:
        yield from wrapped(clause, expectation, rest, width)


def _promises(verdict: ProbeVerdict, width: int) -> Iterator[str]:
    """What Kubernetes promises, where the oracle gave the expectations: of the deciding ones, each fact once."""
    deciding = (each for each in verdict.verdicts if each.judgement is verdict.overall)
    by_row: dict[str, list[str]] = {}
    for each in deciding:
        for row in each.follows:
            by_row.setdefault(row, []).append(each.expectation)
    if by_row:
        yield ""
        yield f"{_INDENT}promised:"
    for row, keys in by_row.items():
        known = rows()[row]
        yield from wrapped(f"{', '.join(keys)}: {known.text}", _INDENT * 2, _INDENT * 3, width)
        yield f"{_INDENT * 3}{known.because}"


def _shares(case: Case, verdict: ProbeVerdict, width: int) -> list[str]:
    """The shares of flows, where those failed: the furthest from its expected share first, the rest only counted."""
    decisive = {each.expectation for each in verdict.verdicts if each.judgement is verdict.overall}
    about = {each.key for each in OF_PROBES if each.shows_in_shares}
    found, expected = case.arrivals_by_pod, case.expected_shares
    names = list(dict.fromkeys([*expected, *found]))
    total = found.total()
    if len(case.flows) == 1 or verdict.overall is Judgement.PASS or decisive.isdisjoint(about) or not total:
        return []
    shown = names
    if len(names) > _MOST_PODS:
        shown = sorted(names, key=lambda name: -abs(found[name] - total * expected.get(name, 0.0)))[:_MOST_PODS]
    rows: list[tuple[str, ...]] = [("backend", "flows", "share", "due")]
    rows += [
        (name, f"{found[name]:,}", f"{found[name] / total:.1%}", f"{expected.get(name, 0.0):.1%}") for name in shown
    ]
    if case.probe.expect.spread is Spread.STICKY:
        rows = [row[:3] for row in rows]  # one of them is expected to get all, and the author does not say which
    lines = table(rows, _INDENT, right=frozenset({1, 2, 3}), width=width)
    if len(names) > len(shown):
        lines.append(f"{_INDENT}and {len(names) - len(shown):,} more, closer to their due")
    return lines


def _cause(sentence: str, width: int) -> list[str]:
    return ["", *wrapped(sentence, f"{_INDENT}why: ", width=width)] if sentence else []
