"""Over random crowds of flows, no spread passes that the definition forbids, sticky or by shares.

This file defines the forbidden cases a second time, from the packets at the pods alone; the statistics are scipy's.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from ipaddress import ip_address

import scipy  # its modules load on their first use: each worker collects this file, and one runs it
from forbidden import POD_ADDRESS, untrustworthy
from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace
from recorded import World
from thoroughness import examples

from proxylab.evidence.evidence import Direction, Evidence, Observation, Packet, TapLoss
from proxylab.scenario.expect import Shares
from proxylab.scenario.words import Spread
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement

PODS = ("echo-1", "echo-2", "echo-3")
BACKENDS = PODS[:2]
NAMED = {"echo-1": 0.4, "echo-2": 0.6}
ENOUGH = 1411
"""Flows over these shares that show a change of the smaller by 0.3 of itself with power 0.999 (see ``shown_by``)."""
ADDRESSES = {**POD_ADDRESS, "echo-3": ip_address("10.244.2.5")}


class Crowd(Struct, frozen=True):
    """The number of flows and clients, and the pod that each flow reaches, if any."""

    spread: Spread | Shares
    netns_names: tuple[str, ...]
    clients: int = 1
    named: bool = True

    @property
    def world(self) -> World:
        first = ADDRESSES["debug"]
        return World(
            pods=PODS,
            flows=len(self.netns_names),
            backends=BACKENDS if self.named else None,
            spread=self.spread,
            others=tuple(first + 100 + number for number in range(1, self.clients)),
        )

    def evidence(self) -> Evidence:
        trips = (trip(flow, self.clients, netns_name) for flow, netns_name in enumerate(self.netns_names))
        return self.world.evidence([each for one in trips for each in one])


@cache
def trip(flow: int, clients: int, netns_name: str) -> tuple[Observation, ...]:
    """The observations of one flow. ``both`` is a flow at two pods."""
    world = replace(Crowd(Spread.STICKY, ("",), clients).world, flows=flow + 1)
    if not netns_name:
        return (world.leaves(flow),)
    if netns_name == "both":
        return (*world.round_trip(flow, "echo-1"), world.arrives(flow, "echo-2"))
    return world.round_trip(flow, netns_name)


def arrived(evidence: Evidence, flows: int) -> list[set[str]]:
    """The pods that each flow reached under their own address."""
    found: list[set[str]] = [set() for _ in range(flows)]
    for each in evidence.observations:
        if each.packet is Packet.REQUEST and each.direction is Direction.IN and each.flow < flows:
            found[each.flow] |= {each.netns_name} if ADDRESSES.get(each.netns_name) == each.destination else set()
    return found


def forbidden(crowd: Crowd, evidence: Evidence) -> Iterator[str]:
    """Why a pass of the spread is a lie."""
    netns_names = arrived(evidence, len(crowd.netns_names))
    if any(not each for each in netns_names):
        yield "a flow that no pod saw"
    if crowd.named and set().union(*netns_names) - set(BACKENDS):
        yield "a pod that is no backend"
    if crowd.spread is Spread.STICKY:
        of_clients = [set().union(*netns_names[client :: crowd.clients]) for client in range(crowd.clients)]
        if any(len(each) > 1 for each in of_clients):
            yield "a client at two pods"
        if not crowd.named or 0.5 ** (len(netns_names) - crowd.clients) >= 1e-9:
            yield "chance does that"
    elif isinstance(crowd.spread, Shares):
        hits = Counter(netns_name for each in netns_names for netns_name in each)
        if set(hits) - set(NAMED):
            yield "a pod without a share"
        if not shown_by(sum(hits[name] for name in NAMED)):
            yield "too few to show it"
        due = [sum(hits.values()) * share for share in NAMED.values()]
        if (
            sum(hits.values())
            and scipy.stats.chisquare([hits[name] for name in NAMED], due, sum_check=False).pvalue < 1e-9
        ):
            yield "chance does not do that"


@cache
def shown_by(flows: int) -> bool:
    """Whether so many flows show that the smaller share is 0.3 of itself less, with power 0.999, at p < 1e-9."""
    distance = (0.3 * 0.4) ** 2 * (1 / 0.4 + 1 / 0.6)
    return bool(scipy.stats.ncx2.sf(scipy.stats.chi2.isf(1e-9, 1), 1, flows * distance) >= 0.999)


@st.composite
def sticking(draw: st.DrawFn) -> Crowd:
    """Each client has its pod; sometimes there are too few flows, or one goes elsewhere."""
    clients = draw(st.sampled_from([1, 1, 2, 10]))
    flows = draw(st.sampled_from([2, 30, 31, 40, 60]))
    own = draw(st.lists(st.sampled_from((*BACKENDS * 4, "echo-3")), min_size=clients, max_size=clients))
    netns_names = [own[flow % clients] for flow in range(flows)]
    return Crowd(Spread.STICKY, draw(strayed(netns_names)), clients, draw(st.integers(0, 4)) < 4)


@st.composite
def sharing(draw: st.DrawFn) -> Crowd:
    """The first backend has its share, or somewhat less or more."""
    flows = draw(st.sampled_from([ENOUGH - 1, ENOUGH, ENOUGH]))
    share = draw(st.sampled_from([0.4, 0.4, 0.4, 0.6, 0.28, 0.52, 0.0]))
    first = round(flows * share)
    netns_names = ["echo-1"] * first + ["echo-2"] * (flows - first)
    return Crowd(Shares(of=NAMED), draw(strayed(netns_names)), named=draw(st.booleans()))


def strayed(netns_names: list[str]) -> st.SearchStrategy[tuple[str, ...]]:
    """The crowd itself; or one flow elsewhere, nowhere or at two pods."""
    elsewhere = st.tuples(st.integers(0, len(netns_names) - 1), st.sampled_from(["", "both", "echo-1", "echo-3"]))
    changed = elsewhere.map(lambda one: (*netns_names[: one[0]], one[1], *netns_names[one[0] + 1 :]))
    return st.one_of(st.just(tuple(netns_names)), changed, changed)


def nearly(netns_name: str) -> Crowd:
    """Flows with the right shares, except the last."""
    first = round(ENOUGH * NAMED["echo-1"])
    return Crowd(Shares(of=NAMED), ("echo-1",) * first + ("echo-2",) * (ENOUGH - first) + (netns_name,))


SPOILT = st.sampled_from([{}, {}, {}, {"losses": (TapLoss("echo-1", "eth0", 1),)}, {"unfinished": "too late"}])


@settings(max_examples=examples(80), deadline=None)
@given(sticking(), SPOILT)
def test_no_sticking_passes_that_is_forbidden(crowd: Crowd, spoilt: dict[str, object]) -> None:
    hold(crowd, spoilt)


@settings(max_examples=examples(20), deadline=None)
@given(sharing(), SPOILT)
@example(nearly("echo-3"), {})
@example(nearly(""), {})
@example(nearly("both"), {})
def test_no_shares_pass_that_are_forbidden(crowd: Crowd, spoilt: dict[str, object]) -> None:
    hold(crowd, spoilt)


def hold(crowd: Crowd, spoilt: dict[str, object]) -> None:
    """A forbidden spread does not pass, and any other does."""
    evidence = replace(crowd.evidence(), **spoilt)  # type: ignore[arg-type]
    world = crowd.world
    verdicts = judge(world.probe, world.resolved, None, evidence).verdicts
    (verdict,) = (each for each in verdicts if each.expectation == "spread")
    event(f"{verdict.judgement}")
    lies = [*untrustworthy(world, evidence), *forbidden(crowd, evidence)]
    assert verdict.judgement is not Judgement.PASS or not lies, f"passed, but: {lies}"
    assert verdict.judgement is Judgement.PASS or lies, f"nothing forbids it, but: {verdict.reasons}"
