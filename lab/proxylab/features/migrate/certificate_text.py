"""A certificate as text for a terminal, and as JSON for programs."""

import json
from collections.abc import Iterator, Sequence
from typing import Final

from proxylab.evidence.words import amount, listed
from proxylab.features.audit.findings import Audit
from proxylab.features.migrate.certificate import Certificate, CertifiedChange
from proxylab.features.migrate.open_connections import ConnectionFate, OpenConnection, Switch
from proxylab.features.migrate.reasons import ReasonOfChange
from proxylab.text import wrapped
from proxylab.verdict.model import Judgement

_MOST_CHANGES: Final = 40
_MOST_UNDECIDED: Final = 10
_MOST_NAMES: Final = 3
_MOST_CONNECTIONS: Final = 10
_FATES: Final = {
    ConnectionFate.SURVIVES: "survive",
    ConnectionFate.DISTURBED: "lose packets, and go on",
    ConnectionFate.ENDS: "end",
    ConnectionFate.UNDECIDED: "undecided",
}
"""A fate, said of several connections."""
LEFT_OUT: Final = "what the lab lacks of the dumped cluster, or has in another way"
TELL_MORE: Final = "`proxylab import` takes the options and files that these lines name; then migrate its scenario"
UNEXPLAINED: Final = "no document explains it: a proxy has a fault, or the oracle"


def headline(found: Certificate) -> str:
    """What was asked on both proxies, and how much of it changes."""
    asked, same = len(found.before.answers), sum(found.same.values())
    changed = sum(len(each.answers) for each in found.changes)
    services = len({each.question.service for each in found.before.answers} - {""})
    told = [
        f"{same:,} with the same answer",
        f"{changed:,} with another for {amount(len(found.services), 'Service')}",
    ]
    if rest := asked - same - changed:
        told.append(f"{rest:,} undecided")
    return (
        f"{found.before.subject}: from {found.before.engine} to {found.after.engine}: "
        f"{amount(services, 'Service')}, {amount(asked, 'question')}: {', '.join(told)}"
    )


def concerns(change: CertifiedChange) -> str:
    """The Services and kinds of senders that a change concerns, by_fate."""
    services = (
        f"{amount(len(change.services), 'Service')} ({_some(change.services)})" if change.services else "no Service"
    )
    senders = listed([f"{kind} {count:,}" for kind, count in change.senders.items()])
    return f"concerns {services}; {amount(len(change.answers), 'question')}: {senders}"


def title(change: CertifiedChange) -> str:
    """What is dialled, and what becomes of it before and after."""
    return f"{dialled(change)}: {change.before}, then {change.after}"


def dialled(change: CertifiedChange) -> str:
    """What is dialled: the first few frontends, and how many there are besides."""
    return _some(change.frontends)


def _some(words: Sequence[str]) -> str:
    """The first few, and how many there are besides."""
    further = len(words) - _MOST_NAMES
    return f"{', '.join(words[:_MOST_NAMES])} and {further:,} more" if further > 1 else listed(list(words))


def kept(audit: Audit) -> str:
    """How far one proxy keeps the promises."""
    counts = audit.counts
    told = f"{counts[Judgement.PASS]:,} of {len(audit.answers):,} answers as promised, in {audit.seconds:.1f} s"
    return f"{audit.engine}: {told}"


def to_lines(found: Certificate, width: int) -> Iterator[str]:
    """The headline; each change with its senders, why, and what to do; then what stays, and what is open."""
    yield from wrapped(headline(found), rest="  ", width=width)
    for audit in (found.before, found.after):
        yield from wrapped(kept(audit), "  ", "    ", width)
    for number, change in enumerate(found.changes[:_MOST_CHANGES], 1):
        yield ""
        yield from wrapped(f"{number}. {title(change)}", rest="   ", width=width)
        yield from wrapped(concerns(change), "   ", "     ", width)
        for line in _why(change.reason):
            yield from wrapped(line, "   ", "     ", width)
        yield from wrapped(f"do: {change.reason.advice}", "   ", "     ", width)
    if len(found.changes) > _MOST_CHANGES:
        yield f"and {len(found.changes) - _MOST_CHANGES:,} more changes; -o json has all"
    yield from _undecided(found, width)
    yield ""
    for line in switch_lines(found.switch):
        yield from wrapped(line, rest="  ", width=width)
    yield ""
    unchanged = [service for service in found.same if service not in found.services]
    if unchanged:
        said = f"nothing changes for {amount(len(unchanged), 'Service')}: {_some(unchanged)}"
        yield from wrapped(said, rest="  ", width=width)
    yield f"the same on both: {amount(sum(found.same.values()), 'answer')}"
    for service, why in found.before.undialled.items():
        yield from wrapped(f"{service}: not asked: {why}", rest="  ", width=width)
    if found.left_out:
        yield from ("", f"{LEFT_OUT}:")
        for each in found.left_out:
            yield from wrapped(each, "  ", "    ", width)
        yield from wrapped(TELL_MORE, rest="  ", width=width)


def _undecided(found: Certificate, width: int) -> Iterator[str]:
    if found.undecided:
        yield from ("", "what the lab could not decide:")
    for each in found.undecided[:_MOST_UNDECIDED]:
        yield from wrapped(f"{each.probe} on {each.engine}: {each.why}", "  ", "    ", width)
    if len(found.undecided) > _MOST_UNDECIDED:
        yield f"  and {len(found.undecided) - _MOST_UNDECIDED:,} more; -o json has all"


def switch_lines(switch: Switch) -> Iterator[str]:
    """What became of open connections: those that survive counted, and each other one named."""
    if switch.untried:
        yield f"connections that are open during the switch: not tried: {switch.untried}"
        return
    by_fate = [(fate, switch.of(fate)) for fate in ConnectionFate]
    told = [f"1 {fate}" if len(found) == 1 else f"{len(found):,} {_FATES[fate]}" for fate, found in by_fate if found]
    yield f"{amount(len(switch.connections), 'connection')} open during the switch: {', '.join(told)}"
    for fate, found in by_fate:
        if fate is not ConnectionFate.SURVIVES:
            shown = found[:_MOST_CONNECTIONS]
            yield from (f"{fate}: {connection_words(each.connection)}: {each.seen}" for each in shown)
            if len(found) > len(shown):
                yield f"{fate}: and {len(found) - len(shown):,} more; -o json has all"
    if switch.left_out:
        yield f"not opened, so that it takes minutes: {amount(switch.left_out, 'connection')}"


def connection_words(connection: OpenConnection) -> str:
    """A connection: what it dials, and who opened it."""
    return f"{connection.service} {connection.frontend} from {connection.stream.source.name} ({connection.kind})"


def _why(reason: ReasonOfChange) -> Iterator[str]:
    for each in reason.statements:
        yield f"why: {each.text} ({each.because})"
    if not reason.is_documented:
        yield f"why: {UNEXPLAINED}"


def to_json(found: Certificate) -> str:
    """The certificate as a document for programs."""
    return json.dumps(
        {
            "apiVersion": "proxylab/v1",
            "kind": "MigrationCertificate",
            "subject": found.before.subject,
            "from": found.before.engine,
            "to": found.after.engine,
            "exitCode": found.exit_code,
            "questions": len(found.before.answers),
            "same": dict(found.same),
            "changes": [_document(each) for each in found.changes],
            "undecided": [
                {"service": each.service, "probe": each.probe, "engine": each.engine, "why": each.why}
                for each in found.undecided
            ],
            "openConnections": {
                "notTried": found.switch.untried or None,
                "notOpened": found.switch.left_out,
                "connections": [
                    {
                        "service": each.connection.service,
                        "frontend": each.connection.frontend,
                        "kind": each.connection.kind,
                        "from": each.connection.stream.source.name,
                        "fate": each.fate,
                        "seen": each.seen,
                    }
                    for each in found.switch.connections
                ],
            },
            "notAsked": dict(found.before.undialled),
            "leftOut": list(found.left_out),
        },
        indent=2,
    )


def _document(change: CertifiedChange) -> dict[str, object]:
    return {
        "services": list(change.services),
        "frontends": list(change.frontends),
        "senders": dict(change.senders),
        "probes": [old.verdict.probe.name for old, _ in change.answers],
        "before": change.before,
        "after": change.after,
        "documented": change.reason.is_documented,
        "why": [{"text": each.text, "because": each.because} for each in change.reason.statements],
        "do": change.reason.advice,
    }
