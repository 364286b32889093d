"""Causes that need more than the counters of one probe, from recorded evidence."""

from ipaddress import ip_address

import pytest
from golden_words import Told
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import IPAddress
from proxylab.evidence.evidence import Evidence, HttpReport, KernelCount, Packet, RuleCount, TrackedFlow
from proxylab.plan.model import Plan
from proxylab.scenario.expect import HttpExpect, Preserved
from proxylab.verdict.case import Case
from proxylab.verdict.causes import loss, reply
from proxylab.verdict.causes.layout import RefusedEntry
from proxylab.verdict.causes.table import cause
from proxylab.verdict.causes.table import why as first_cause
from proxylab.verdict.counted_rules import read, why_masqueraded
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement

WORLD = World(backends=("echo-2",), source=Preserved())
NODE_A = ip_address("172.18.0.2")


def why(
    world: World,
    evidence: Evidence,
    expectation: str,
    source: IPAddress | None = None,
    plan: Plan | None = None,
) -> str:
    verdict = judge(world.probe, world.resolved, source, evidence)
    case = Case(world.probe, world.resolved, evidence)
    (wanted,) = [each for each in verdict.verdicts if each.expectation == expectation]
    return cause(case, wanted, plan)


def test_conntrack_is_the_cause_where_it_sends_what_no_rule_does(told: Told) -> None:
    tracked = TrackedFlow(0, "node-a", WORLD.address("echo-1"), 8080, *WORLD.client(0))
    evidence = WORLD.evidence(WORLD.round_trip(0, "echo-1"), tracked=(tracked,), metered_nodes=("node-a",))
    assert why(WORLD, evidence, "backends") == told()


def test_a_rule_is_the_cause_where_it_counted_what_conntrack_holds() -> None:
    tracked = TrackedFlow(0, "node-a", WORLD.address("echo-1"), 8080, *WORLD.client(0))
    counts = (WORLD.translated("echo-1"),)
    evidence = WORLD.evidence(
        WORLD.round_trip(0, "echo-1"), tracked=(tracked,), metered_nodes=("node-a",), counts=counts
    )
    assert why(WORLD, evidence, "backends").startswith("node-a sent the packet to echo-1 by ")


def test_a_mark_that_stays_masquerades_twice(told: Told) -> None:
    world = replace(WORLD, backends=None)
    counts = (world.marked(), world.translated("echo-1"), world.masqueraded(2))
    evidence = world.evidence(world.round_trip(0, "echo-1", NODE_A), counts=counts)
    assert why(world, evidence, "source") == told()


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("! -s 10.99.0.0/16", " because the client is not in 10.99.0.0/16, though it is a pod:"),
        ("! -i cali+", " because it did not come in by cali+, though it is a pod:"),
        ("-s 10.244.1.2/32", " because the client is the endpoint:"),
        ("! -s 10.244.0.0/16", ""),
    ],
)
def test_why_a_pod_is_masqueraded(test: str, words: str) -> None:
    rule = read(RuleCount("node-a", "nat", "KUBE-SVC-X", f"-A KUBE-SVC-X {test} -j KUBE-MARK-MASQ", 1))
    assert rule is not None
    assert why_masqueraded(rule, WORLD.resolved) == words


def test_a_client_outside_is_no_pod() -> None:
    outside = replace(WORLD, addresses={"debug": ip_address("203.0.113.10")})
    rule = read(RuleCount("node-a", "nat", "KUBE-SVC-X", "-A KUBE-SVC-X ! -s 10.244.0.0/16 -j KUBE-MARK-MASQ", 1))
    assert rule is not None
    assert why_masqueraded(rule, outside.resolved) == " because the client is not in 10.244.0.0/16:"


REFUSED = RefusedEntry("node-b", "eth1", "eth0")
FILTERED = (KernelCount("node-b", "TcpExtIPReversePathFilter", 1),)


@pytest.mark.parametrize(("read_at", "kernel", "is_blamed"), [(5000, FILTERED, True), (5000, (), False), (0, (), True)])
def test_a_plan_blames_no_reverse_path_filter_whose_counter_stood_still(
    read_at: int, kernel: tuple[KernelCount, ...], is_blamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (loss, reply):
        monkeypatch.setattr(module, "rp_filter_refusal", lambda *_: REFUSED)
    plan = Plan(namespaces=(), links=())
    counts = (WORLD.translated("echo-2"), replace(WORLD.translated("echo-2"), node="node-b"))
    told = {"counts": counts, "kernel": kernel, "counters_read_at": read_at}
    lost = WORLD.evidence([WORLD.leaves(0)], **told)
    said = why(WORLD, lost, "outcome", plan=plan)
    assert said.startswith("node-b refused the packet after its PREROUTING rules: rp_filter is 1") is is_blamed
    answered = WORLD.evidence([*WORLD.round_trip(0, "echo-2")[:-1]], **told)
    assert ("node-b refused the reply: rp_filter is 1 there" in why(WORLD, answered, "reply", plan=plan)) is is_blamed


def test_a_rule_whose_target_cannot_be_read_is_passed_over_for_the_one_that_names_the_pod(told: Told) -> None:
    whole = WORLD.translated("echo-1")
    for text in ("10.244.2.3", "random", "10.244.2.4:8080"):
        unreadable = replace(whole, text=whole.text.replace("10.244.2.3:8080", text), chain="KUBE-SEP-OTHER")
        counts = (unreadable, whole)
        evidence = WORLD.evidence(WORLD.round_trip(0, "echo-1"), counts=counts)
        assert why(WORLD, evidence, "backends") == told()


@pytest.mark.parametrize(
    ("report", "sentence"),
    [
        (HttpReport(0, 200, 1), "the proxy that serves 10.96.0.10:80 knows of 1 local endpoint, so it answers 200."),
        (HttpReport(0, 200), ""),
        (HttpReport(0, 0, 1, error="ECONNREFUSED"), ""),
        (None, ""),
    ],
)
def test_an_answer_without_a_number_of_endpoints_says_nothing_of_what_the_proxy_knows(
    report: HttpReport | None, sentence: str
) -> None:
    world = World(http=HttpExpect(status=503, local_endpoints=0))
    other = HttpReport(1, 200, 7)
    http = (other, report) if report else (other,)
    evidence = world.evidence(world.round_trip(0, "echo-1"), http=http)
    verdict = judge(world.probe, world.resolved, None, evidence)
    (wanted,) = [each for each in verdict.verdicts if each.expectation == "http"]
    failed = replace(wanted, judgement=Judgement.FAIL)
    assert cause(Case(world.probe, world.resolved, evidence), failed, None) == sentence


def test_a_reply_past_the_node_that_translated_the_request_is_explained_by_the_nodes_it_passed() -> None:
    """It comes from the pod to node-b, and from there straight to the client."""
    world = World()
    way = [each for each in world.crossing(0, "echo-1") if (each.netns_name, each.packet) != ("node-a", Packet.REPLY)]
    heard = replace(way[-1], source=way[-2].source, source_port=way[-2].source_port)
    evidence = world.evidence([*way[:-1], heard], counts=(world.translated("echo-1"),))
    said = "the reply did not pass node-a, which alone could translate it back: node-b sent it straight to debug."
    assert why(world, evidence, "reply") == said


def test_where_nothing_decides_and_nothing_more_was_seen_the_reasons_stand_alone() -> None:
    world = World()
    silent = tuple(replace(each, answered=False) for each in world.sentinels)
    evidence = world.evidence([world.leaves(0)], sentinels=silent)
    sentence = first_cause(judge(world.probe, world.resolved, None, evidence))
    assert sentence.startswith("nothing decides outcome: ")
    assert "What the lab saw" not in sentence
