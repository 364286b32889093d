"""The causes behind ``why:``, in the order in which they are tried. The first that the evidence shows is the sentence.

None guesses: every sentence names what it rests on. Where no cause is known, the expectation says what the taps saw.
"""

import re
from collections.abc import Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Evidence
from proxylab.plan.dialled_service import DialledService
from proxylab.plan.model import Plan
from proxylab.verdict.case import Case
from proxylab.verdict.causes import (
    foreign_rules,
    loss,
    programs,
    reply,
    stream_failures,
    translation,
)
from proxylab.verdict.causes.failure import Failure, remembered
from proxylab.verdict.causes.layout import holder
from proxylab.verdict.causes.node_ports import not_served
from proxylab.verdict.causes.settings import setting_behind
from proxylab.verdict.expectations.table import OF_PROBES, OF_STEPS, OF_STREAMS
from proxylab.verdict.flows import Fate
from proxylab.verdict.model import Judgement, ProbeVerdict, StepVerdict, Verdict
from proxylab.verdict.step_case import StreamCase


class Cause(Struct, frozen=True):
    """One cause.

    Attributes:
        about: the expectations that it may explain.
        sentence: the sentence, ending with a full stop; empty where the evidence does not show this cause.
        fates: of the flow that shows the failure; empty for any.
    """

    about: frozenset[str]
    sentence: Callable[[Failure], str]
    fates: frozenset[Fate] = frozenset()


def _of(about: str, *sentences: Callable[[Failure], str], fate: Fate | None = None) -> list[Cause]:
    fates = frozenset() if fate is None else frozenset({fate})
    return [Cause(frozenset(about.split()), sentence, fates) for sentence in sentences]


_MOST_DOUBTS: Final = 2

_CAUSES: Final = (
    *_of("outcome reply source backends spread", translation.translated_twice),
    *_of("outcome endpoint reply backends", foreign_rules.led_to_service),
    *_of("outcome reply", foreign_rules.header_rewritten),
    *_of(
        "http",
        loss.refused_by_reverse_path,
        loss.dropped_by_stack,
        loss.dropped_by_foreign_rule,
        loss.dropped_by_other_rule,
        loss.dropped_by_policy,
        loss.lost_before_foreign_rules,
        fate=Fate.LOST,
    ),
    *_of("outcome http", foreign_rules.answered_by_foreign_rule, fate=Fate.REFUSED),
    *_of("outcome http", foreign_rules.answered_by_foreign_rule, fate=Fate.UNREACHABLE),
    *_of("source", programs.sent_by_program),
    *_of("backends", programs.chosen_by_program),
    *_of("outcome", programs.closed_by_program, fate=Fate.CLOSED),
    *_of("outcome", programs.kept_on_node, fate=Fate.UNEXPLAINED),
    *_of("name", translation.query_untranslated),
    *_of("outcome", translation.request_copied, fate=Fate.COPIED),
    *_of("outcome", foreign_rules.kept_untracked),
    *_of(
        "outcome",
        loss.dropped_by_rule,
        loss.lost_rejection,
        loss.neighbour_silent,
        loss.refused_by_reverse_path,
        foreign_rules.destination_rewritten,
        loss.dropped_by_stack,
        loss.dropped_by_foreign_rule,
        loss.dropped_by_other_rule,
        loss.dropped_by_policy,
        loss.lost_before_foreign_rules,
        loss.translated_to_no_pod,
        loss.lost_at_hairpin,
        loss.lost_behind_translation,
        loss.lost_past_services,
        loss.lost_to_memory,
        loss.lost_untranslated,
        loss.lost_after_trace,
        fate=Fate.LOST,
    ),
    *_of("outcome", translation.strayed_untranslated, fate=Fate.STRAYED),
    *_of(
        "outcome",
        loss.rejected_by_rule,
        loss.rejected_by_foreign_rule,
        foreign_rules.destination_rewritten,
        not_served,
        fate=Fate.REJECTED,
    ),
    *_of("outcome", loss.rejected_by_stack, fate=Fate.REJECTED),
    *_of(
        "outcome",
        translation.no_listener,
        foreign_rules.destination_rewritten,
        not_served,
        translation.unreachable_untranslated,
        translation.unreachable_behind_translation,
        fate=Fate.UNREACHABLE,
    ),
    *_of(
        "outcome",
        translation.no_listener,
        foreign_rules.destination_rewritten,
        not_served,
        fate=Fate.REFUSED,
    ),
    *_of("outcome", loss.end_lost, translation.delivered_by, remembered, fate=Fate.DELIVERED),
    *_of("endpoint", translation.led_to_wrong_end, remembered),
    *_of(
        "reply",
        reply.reply_strayed,
        reply.reply_copied,
        reply.answered_from_other_address,
        reply.not_translated_back,
        reply.reply_rewritten,
        loss.data_lost,
        foreign_rules.source_rewritten,
        reply.reply_lost,
        reply.not_answered,
    ),
    *_of("source", translation.masqueraded_tunnel, translation.kept_the_source),
    *_of("source", foreign_rules.source_rewritten, translation.masqueraded),
    *_of("backends", translation.led_to_backend, translation.never_chosen, remembered),
    *_of("spread", translation.share_is_wrong),
    *_of("http", programs.health_port_knows, programs.address_not_forwarded),
    *_of("at", loss.dropped_by_rule, loss.rejected_by_rule),
)


_CAUSES_OF_STREAMS: Final = {
    **dict.fromkeys(
        ("backend", "lost"),
        (
            stream_failures.led_to_gone_pod,
            stream_failures.sent_to_earlier_backend,
            stream_failures.pod_was_killed,
            stream_failures.not_answered,
        ),
    ),
    "rejected": (stream_failures.sent_to_earlier_backend, stream_failures.not_answered),
    "resets": (stream_failures.led_to_gone_pod, stream_failures.pod_was_killed, stream_failures.was_reset),
    "delay": (stream_failures.answered_slowly,),
}


def cause(
    case: Case,
    verdict: Verdict,
    plan: Plan | None = None,
    traced: Evidence | None = None,
    service: DialledService | None = None,
) -> str:
    """Why this expectation failed, as a sentence; empty if it did not fail or the evidence shows no cause.

    Where a setting of Kubernetes is behind the cause, a second sentence says so.
    """
    if verdict.judgement is not Judgement.FAIL:
        return ""
    failure = Failure(case, verdict, plan, traced, service)
    sentences = (
        each.sentence(failure)
        for each in _CAUSES
        if verdict.expectation in each.about and (not each.fates or failure.fate in each.fates)
    )
    known, setting = next(filter(None, sentences), ""), "" if service is None else setting_behind(failure, service)
    if known and setting.startswith(("the ", "no ", "mode ")):  # names of keys and pods keep their spelling
        setting = setting[0].upper() + setting[1:]
    return " ".join(filter(None, (known, setting)))


def known_cause(verdict: ProbeVerdict) -> str:
    """The cause of a failure in one sentence; empty if nothing failed or the evidence shows no cause."""
    sentences = (cause(verdict.case, each, verdict.plan, verdict.traced, verdict.service) for each in verdict.verdicts)
    return next(filter(None, sentences), "")


def why(verdict: ProbeVerdict) -> str:
    """The cause of a failure in one sentence, or else what the taps saw; why nothing decides, if that is so.

    It is empty for a pass.
    """
    known = known_cause(verdict)
    failed = next((each for each in verdict.verdicts if each.judgement is Judgement.FAIL), None)
    if known or failed is None:
        return known or _undecided(verdict)
    seen = next((each.as_seen(verdict.case, failed) for each in OF_PROBES if each.key == failed.expectation), "")
    return seen or f"{failed.reasons[0]}."


def _undecided(verdict: ProbeVerdict) -> str:
    """Why nothing decides an expectation, and what the lab saw of a reply that is missing, or a request."""
    doubted = next((each for each in verdict.verdicts if each.judgement is Judgement.INCONCLUSIVE), None)
    if doubted is None:
        return ""
    sentence = f"nothing decides {doubted.expectation}: {'; '.join(doubted.reasons[:_MOST_DOUBTS])}."
    case, missing = verdict.case, replace(doubted, judgement=Judgement.FAIL)
    flow = case.flows[doubted.example or 0]
    seen = ""
    if doubted.expectation == "outcome":
        seen = loss.neighbour_silent(Failure(case, missing, verdict.plan))
    elif doubted.expectation == "reply" and flow.answers and not flow.replies:
        seen = cause(case, missing, verdict.plan, verdict.traced, verdict.service)
    return " ".join(filter(None, (sentence, seen and f"What the lab saw: {seen}")))


def why_step(verdict: StepVerdict) -> str:
    """Why a step failed, as a sentence, or else what was observed; or why nothing decides. Empty for a pass."""
    doubted = [each for each in verdict.verdicts if each.judgement is Judgement.INCONCLUSIVE]
    failed = [each for each in verdict.verdicts if each.judgement is Judgement.FAIL]
    sentences = [_cause_in_step(verdict, each) for each in failed]
    sentences += [_seen_in_step(verdict, each) for each in failed[:1]]
    if not failed:
        sentences += [
            f"nothing decides {each.expectation}: {'; '.join(each.reasons[:_MOST_DOUBTS])}." for each in doubted
        ]
    return next(filter(None, sentences), "")


def _cause_in_step(verdict: StepVerdict, failed: Verdict) -> str:
    stream, key = _stream_of(verdict, failed)
    if stream is None:
        return ""
    failure = stream_failures.StreamFailure(stream, verdict.case.addresses, verdict.step.change)
    return next(filter(None, (sentence(failure) for sentence in _CAUSES_OF_STREAMS.get(key, ()))), "")


def _seen_in_step(verdict: StepVerdict, failed: Verdict) -> str:
    stream, key = _stream_of(verdict, failed)
    if stream is not None:
        seen = next((each.as_seen(stream, failed) for each in OF_STREAMS if each.key == key), "")
    else:
        seen = next((each.as_seen(verdict.case, failed) for each in OF_STEPS if each.key == key), "")
    return seen or f"{failed.reasons[0]} when the step ended."


def with_holder(verdict: ProbeVerdict | StepVerdict, failed: Verdict, clause: str) -> str:
    """A reason of a failed expectation, with the device that has the address seen, where the plan knows one."""
    if failed.judgement is not Judgement.FAIL or verdict.plan is None:
        return clause
    address = _seen_address(verdict, failed)
    name = "" if address is None else holder(verdict.plan, address)
    if address is None or not name:
        return clause
    return re.sub(rf"(\[?{re.escape(str(address))}(\]?:\d+)?)(?=,|$)", rf"\1, which is {name}", clause)


def _seen_address(verdict: ProbeVerdict | StepVerdict, failed: Verdict) -> IPAddress | None:
    if isinstance(verdict, StepVerdict):
        stream, key = _stream_of(verdict, failed)
        of_stream = next((each for each in OF_STREAMS if each.key == key), None)
        return None if stream is None or of_stream is None else of_stream.seen_address(stream, failed)
    row = next((each for each in OF_PROBES if each.key == failed.expectation), None)
    return None if row is None else row.seen_address(verdict.case, failed)


def _stream_of(verdict: StepVerdict, failed: Verdict) -> tuple[StreamCase | None, str]:
    """The stream of a verdict with the name of its expectation; ``None`` for the tables."""
    name, _, key = failed.expectation.rpartition(".")
    if not name:
        return None, key
    return verdict.case.expected_streams[name], key
