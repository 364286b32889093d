"""Over random streams and tables, no verdict on a step passes a forbidden case, or fails without proof.

``forbidden_in_steps`` defines the forbidden cases a second time.
"""

from itertools import combinations, product

import pytest
from forbidden_in_steps import FORBIDDEN, badly_recorded, other_tables, silent
from hypothesis import event, given, settings
from hypothesis import strategies as st
from made_steps import ADDRESSES, CLIENT, NEW, OLD, answered, entry, judged, lost, record, rejected, step
from msgspec.structs import replace
from thoroughness import examples

from proxylab.addresses import Transport
from proxylab.evidence.stream_records import StreamPacket, StreamRecord
from proxylab.scenario.expect import ConntrackExpect, Entries
from proxylab.scenario.steps import Count, StreamExpect
from proxylab.verdict.causes.table import why_step
from proxylab.verdict.conntrack_tables import is_met
from proxylab.verdict.model import Judgement, StepVerdict

SORTS = ("old", "new", "new", "slow", "astray", "lost", "torn", "rejected")
SLOW = st.sampled_from([1.0, 1.5, 100.0, 101.0])
counts = st.sampled_from([Count(at_most=0), Count(at_most=1), Count(at_least=1), Count(at_least=2, at_most=2)])
KEYS = {
    "backend": st.sampled_from(["old", "new"]),
    "backends": st.sampled_from([("old",), ("new",), ("old", "new"), ("new", "old")]),
    "source": st.just(CLIENT),
    "lost": counts,
    "rejected": counts,
    "resets": counts,
    "delay": st.sampled_from([1, 100]),
}


@st.composite
def packets(draw: st.DrawFn, sorts: tuple[str, ...]) -> list[StreamPacket]:
    """Up to eight packets, one every 5 ms."""
    found: list[StreamPacket] = []
    for number, sort in enumerate(sorts):
        at = 5.0 * number
        match sort:
            case "lost" | "torn":
                found.append(lost(number, at, "ECONNRESET" if sort == "torn" else ""))
            case "rejected":
                found.append(rejected(number, at))
            case _:
                backend = "old" if sort == "old" else "new"
                delay, peer = draw(SLOW) if sort == "slow" else 0.2, NEW if sort == "astray" else CLIENT
                found.append(answered(number, at, backend, delay, peer))
    return found


@st.composite
def records(draw: st.DrawFn) -> StreamRecord:
    """Mostly in good order, and often as expected."""
    sorts = draw(st.one_of(st.lists(st.just("new"), max_size=8), st.lists(st.sampled_from(SORTS), max_size=8)))
    found = draw(packets(tuple(sorts)))
    if found and draw(st.integers(0, 9)) == 0:
        found.insert(draw(st.integers(0, len(found))), found[-1])
    return replace(record(*found, resets=draw(st.integers(0, 3))), silent=draw(st.sampled_from([(), (), ("node-b",)])))


@st.composite
def unproven(draw: st.DrawFn) -> StreamRecord:
    """Some packet has no answer, and some sentinel packet did not come back."""
    sorts = draw(st.lists(st.sampled_from(SORTS), max_size=7))
    sorts.insert(draw(st.integers(0, len(sorts))), "lost")
    return replace(record(*draw(packets(tuple(sorts)))), silent=("node-b",))


def hold(verdict: StepVerdict, expect: StreamExpect, seen: StreamRecord) -> None:
    """No pass is forbidden, every other verdict has a reason, and every failure and doubt has its sentence."""
    for each in verdict.verdicts:
        key = each.expectation.rpartition(".")[2]
        if each.judgement is not Judgement.PASS:
            assert each.reasons, f"{each.expectation} is {each.judgement} without a reason"
            continue
        lies = [*badly_recorded(seen), *FORBIDDEN[key](expect, seen)]
        assert not lies, f"{each.expectation} passed, but: {lies}"
    sentence = why_step(verdict)
    unproven = {Judgement.FAIL, Judgement.INCONCLUSIVE} & {each.judgement for each in verdict.verdicts}
    assert sentence.endswith(".") if unproven else not sentence


@pytest.mark.parametrize("key", KEYS)
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data(), seen=records())
def test_no_stream_passes_what_the_definition_forbids(key: str, data: st.DataObject, seen: StreamRecord) -> None:
    whole = step(**{key: data.draw(KEYS[key])})
    verdict = judged(whole, seen)
    event(f"{verdict.overall}")
    hold(verdict, whole.expect.streams["queries"], seen)


@pytest.mark.parametrize("key", KEYS)
@settings(max_examples=examples(25), deadline=None)
@given(data=st.data(), seen=unproven())
def test_a_loss_that_nothing_proves_fails_nothing(key: str, data: st.DataObject, seen: StreamRecord) -> None:
    """What fails without a sentinel packet also fails if late answers come after all."""
    whole = step(**{key: data.draw(KEYS[key])})
    failed = {each.expectation for each in judged(whole, seen).verdicts if each.judgement is Judgement.FAIL}
    event(f"something fails: {bool(failed)}")
    for backend in ("old", "new"):
        healed = tuple(
            answered(each.number, each.at / 1_000_000, backend) if silent(each) else each for each in seen.packets
        )
        after = judged(whole, replace(seen, packets=healed, silent=()))
        passed = {each.expectation for each in after.verdicts if each.judgement is Judgement.PASS}
        assert not failed & passed, f"{failed & passed} failed for want of an answer that may only be late"


def test_no_table_passes_what_the_definition_forbids() -> None:
    """The test tries all of the few cases; a step's wait agrees with its expectation."""
    own, kinds = entry(NEW), [Entries(reply_from="old"), Entries(original_from="client", port=53)]
    kinds += [Entries(protocol=each) for each in Transport] + [Entries(reply_from=str(NEW), masqueraded=True)]
    there = [
        own,
        entry(OLD),
        entry(OLD, "node-b"),
        replace(own, protocol=Transport.TCP),
        replace(entry(OLD), protocol=Transport.ICMP),
        replace(own, destination_port=54),
        replace(own, reply_destination=OLD),
    ]
    tables = [None, (), *((each,) for each in there), *combinations(there, 2)]
    passes = 0
    for node, some, none, entries in product((None, "node-a"), (None, *kinds), (None, *kinds), tables):
        if some is None and none is None:
            continue
        wanted = ConntrackExpect(node=node, some=some, none=none)
        whole = step(conntrack=True)
        whole = replace(whole, expect=replace(whole.expect, conntrack=wanted))
        (each,) = judged(whole, entries=entries).verdicts
        lies = [*other_tables(wanted, entries)]
        passes += each.judgement is Judgement.PASS
        assert not lies or each.judgement is not Judgement.PASS, f"{wanted} passed, but: {lies}"
        assert entries is None or is_met(wanted, entries, ADDRESSES) is not bool(lies), f"{wanted} over {entries}"
    assert passes > 100
