"""Verdicts on names: the queries, the answers, and the address they give."""

from ipaddress import ip_address
from typing import Any

from golden_words import Told
from msgspec.structs import replace
from recorded import World

from proxylab.addresses import Family, Transport
from proxylab.encoding import decode, encode
from proxylab.evidence.evidence import Evidence
from proxylab.evidence.lookups import Lookup, NamedRecord
from proxylab.plan.resolved import Query, Question, ResolvedProbe, Sentinel
from proxylab.report.failure_text import explain
from proxylab.scenario.expect import Preserved
from proxylab.scenario.probes import Probe
from proxylab.verdict.dns import address_of, questions
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement, ProbeVerdict, Verdict

PASS, FAIL, INCONCLUSIVE = Judgement.PASS, Judgement.FAIL, Judgement.INCONCLUSIVE
RESOLVER, SERVER = ip_address("10.96.0.10"), ip_address("10.244.0.2")
WORLD = World(backends=("echo-1", "echo-2"), source=Preserved())
PODS = {name: (WORLD.address(name),) for name in ("echo-1", "echo-2", "echo-3")}
NAME, BELOW = "echo.default.svc.cluster.local", "echo.svc.cluster.local"

CLUSTER_IP = Question(
    names=(NAME, BELOW),
    families=(Family.IPV4,),
    resolvers=(RESOLVER,),
    servers=(Sentinel(name="coredns", address=SERVER),),
    service="default/echo",
    port=80,
    protocol=Transport.TCP,
    expected=(WORLD.resolved.destination,),
)
HEADLESS = replace(CLUSTER_IP, expected=(), headless=True, pods=PODS)


def lookup(*addresses: object, **words: Any) -> Lookup:
    records = tuple(NamedRecord(NAME, "A", str(address), 5) for address in addresses)
    given = {"name": NAME, "kind": "A", "server": RESOLVER, "code": "NOERROR", "served_by": "coredns", **words}
    return Lookup(answers=records, **given)


def judged(question: Question, *lookups: Lookup, probe: Probe = WORLD.probe) -> ProbeVerdict:
    resolved = replace(WORLD.resolved, question=question)
    led = address_of(question, lookups) is not None
    evidence = WORLD.evidence(WORLD.round_trip(0, "echo-2")) if led else Evidence(sent=0)
    return judge(probe, resolved, None, replace(evidence, lookups=lookups))


def name_of(verdict: ProbeVerdict) -> Verdict:
    return next(each for each in verdict.verdicts if each.expectation == "name")


def reasons(question: Question, *lookups: Lookup) -> tuple[Judgement, str]:
    found = name_of(judged(question, *lookups))
    return found.judgement, found.reasons[0] if found.reasons else ""


def test_a_name_gives_among_others_the_address_that_the_probe_must_dial() -> None:
    both = [address for name in ("echo-1", "echo-2") for address in PODS[name]]
    dialled = replace(HEADLESS, address=both[-1])
    assert reasons(dialled, lookup(*both)) == (PASS, "")
    assert reasons(dialled, lookup(*both[:1]))[0] is FAIL


def test_a_name_that_gives_the_cluster_ip_passes_with_the_answer_as_its_witness() -> None:
    expected = WORLD.resolved.destination
    verdict = judged(CLUSTER_IP, lookup(expected), probe=replace(WORLD, backends=("echo-2",)).probe)
    assert verdict.overall is PASS
    assert name_of(verdict).observed == str(expected)
    assert name_of(verdict).witnesses == (f"coredns behind {RESOLVER} answered {NAME} A: {expected}",)


def test_a_name_that_gives_another_address_fails(told: Told) -> None:
    assert reasons(CLUSTER_IP, lookup("10.96.7.7")) == (
        FAIL,
        f"the name does not give {WORLD.resolved.destination}",
    )
    both = judged(CLUSTER_IP, lookup(WORLD.resolved.destination, "10.96.7.7"))
    assert name_of(both).reasons == told()


def test_a_headless_name_gives_exactly_the_backends(told: Told) -> None:
    one, two, three = (PODS[name][0] for name in PODS)
    assert judged(HEADLESS, lookup(two, one)).overall is PASS
    assert reasons(HEADLESS, lookup(two)) == (FAIL, f"the name does not give echo-1 ({one})")
    assert reasons(HEADLESS, lookup(one, two, three)) == (
        FAIL,
        told(),
    )


def test_a_client_of_a_headless_name_need_not_hit_all_its_pods() -> None:
    world = replace(WORLD, flows=200)
    flows = [each for flow in range(200) for each in world.round_trip(flow, "echo-2")]
    evidence = replace(world.evidence(flows), lookups=(lookup(*(PODS[name][0] for name in ("echo-2", "echo-1"))),))
    judgements = {
        headless: next(
            each.judgement
            for each in judge(world.probe, replace(world.resolved, question=question), None, evidence).verdicts
            if each.expectation == "backends"
        )
        for headless, question in ((True, HEADLESS), (False, None))
    }
    assert judgements == {True: PASS, False: FAIL}


def test_what_is_not_there_is_told_from_what_is_empty(told: Told) -> None:
    gone = [lookup(code="NXDOMAIN"), lookup(name=BELOW, code="NXDOMAIN")]
    assert reasons(CLUSTER_IP, *gone) == (FAIL, f"{NAME} does not exist: {RESOLVER} answered NXDOMAIN")
    empty = [lookup(), lookup(name=BELOW, code="NXDOMAIN")]
    assert reasons(CLUSTER_IP, *empty) == (
        FAIL,
        told(),
    )
    assert reasons(CLUSTER_IP, lookup(code="SERVFAIL")) == (FAIL, f"{RESOLVER} answered SERVFAIL for {NAME} A")
    assert name_of(judged(CLUSTER_IP, *empty)).observed == "empty answer and NXDOMAIN"


def test_silence_is_a_failure_where_the_server_itself_answers(told: Told) -> None:
    silent, past = lookup(error="timeout", code=""), lookup("10.96.0.77", server=SERVER)
    broken = lookup(error="timeout", code="", server=SERVER)
    assert reasons(CLUSTER_IP, silent, past) == (
        FAIL,
        told(),
    )
    judgement, reason = reasons(CLUSTER_IP, silent, broken)
    assert judgement is INCONCLUSIVE
    assert "coredns, asked past the Service, did not" in reason
    assert reasons(CLUSTER_IP, silent)[0] is INCONCLUSIVE
    assert reasons(CLUSTER_IP)[0] is INCONCLUSIVE


def test_what_a_socket_says_is_a_failure(told: Told) -> None:
    assert reasons(CLUSTER_IP, lookup(error="ECONNREFUSED", code="")) == (
        FAIL,
        told(),
    )
    assert reasons(CLUSTER_IP, lookup(error="malformed", code=""))[1].endswith("the answer is malformed")


def test_where_a_name_leads_nowhere_nothing_else_is_decided() -> None:
    verdict = judged(CLUSTER_IP, lookup(code="NXDOMAIN"))
    others = [each for each in verdict.verdicts if each.expectation != "name"]
    assert {each.expectation for each in others} == {"outcome", "backends", "source"}
    assert {each.judgement for each in others} == {INCONCLUSIVE}
    assert verdict.overall is FAIL
    text = "\n".join(explain(verdict))
    assert "asking 10.96.0.10 for echo.default.svc.cluster.local: nothing dialled" in " ".join(text.split())
    assert f"name: {NAME} does not exist" in " ".join(text.split())


def test_the_address_that_is_wanted_is_dialled_and_another_pod_rather_than_oneself() -> None:
    one, two, three = (PODS[name][0] for name in PODS)
    answers = (lookup(one, two),)
    assert address_of(HEADLESS, answers) == one
    assert address_of(replace(HEADLESS, own=(one,)), answers) == two
    assert address_of(replace(HEADLESS, own=(one, two)), answers) == one
    assert address_of(replace(HEADLESS, address=two), answers) == two
    assert address_of(replace(HEADLESS, address=three), answers) is None
    assert address_of(replace(HEADLESS, families=(Family.IPV6,)), answers) is None


def test_a_question_that_no_rule_translated_has_that_for_its_cause(told: Told) -> None:
    silent, past = lookup(error="timeout", code=""), lookup("10.96.0.77", server=SERVER)
    verdict = judged(CLUSTER_IP, silent, past)
    left = WORLD.evidence([WORLD.leaves(0)])
    text = " ".join(" ".join(explain(replace(verdict, traced=left))).split())
    assert text == told()
    led = WORLD.evidence([WORLD.leaves(0), WORLD.arrives(0, "echo-1")])
    silence = (
        "why: 10.96.0.10 did not answer for echo.default.svc.cluster.local A; coredns, asked past the Service, did."
    )
    assert silence in " ".join(" ".join(explain(replace(verdict, traced=led))).split())
    unknown = explain(replace(judged(CLUSTER_IP, lookup(code="NXDOMAIN")), traced=left))
    nothing = "why: echo.default.svc.cluster.local does not exist: 10.96.0.10 answered NXDOMAIN."
    assert nothing in " ".join(" ".join(unknown).split())


def dialled(verdict: ProbeVerdict) -> str:
    return f"{verdict.resolved.destination}:{verdict.resolved.port} untranslated."


def asked(
    resolved: ResolvedProbe, question: Question, answers: dict[tuple[str, str, str], Lookup]
) -> list[tuple[str, str, str]]:
    """The queries of a client that gets these answers and NXDOMAIN for all others."""
    seen: list[tuple[str, str, str]] = []

    def ask(netns_name: str, query: Query) -> Lookup:
        assert (netns_name, query.source) == (resolved.sender.namespace, resolved.sender.address)
        key = (query.name, query.kind, str(query.server))
        seen.append(key)
        return answers.get(key, Lookup(name=query.name, kind=query.kind, server=query.server, code="NXDOMAIN"))

    list(questions(resolved, question, ask))
    return seen


def test_a_resolver_asks_below_one_domain_after_the_other_until_it_has_an_address() -> None:
    resolved = replace(WORLD.resolved, destination=RESOLVER)
    dual = replace(CLUSTER_IP, families=(Family.IPV4, Family.IPV6))
    first = [(NAME, "A", "10.96.0.10"), (NAME, "AAAA", "10.96.0.10")]
    assert asked(resolved, dual, {}) == [*first, (BELOW, "A", "10.96.0.10"), (BELOW, "AAAA", "10.96.0.10")]
    assert asked(resolved, dual, {first[0]: lookup("10.96.0.77")}) == first


def test_after_silence_the_servers_are_asked_themselves_and_then_no_other() -> None:
    resolved = replace(WORLD.resolved, destination=RESOLVER)
    silent = {(NAME, "A", "10.96.0.10"): lookup(error="timeout", code="")}
    assert asked(resolved, CLUSTER_IP, silent) == [(NAME, "A", "10.96.0.10"), (NAME, "A", "10.244.0.2")]


def test_lookups_survive_being_sent_and_kept() -> None:
    evidence = Evidence(sent=0, lookups=(lookup("10.96.0.77"), lookup(error="timeout", code="")))
    assert decode(encode(evidence), Evidence) == evidence
    resolved = replace(WORLD.resolved, question=HEADLESS)
    assert decode(encode(resolved), ResolvedProbe) == resolved


def test_only_records_with_addresses_give_an_address() -> None:
    alias = NamedRecord("www.default.svc.cluster.local", "CNAME", NAME, 5)
    records = (alias, NamedRecord(NAME, "A", "10.96.0.10", 5), NamedRecord(NAME, "AAAA", "fd00::a", 5))
    told = replace(lookup(), answers=(*records, NamedRecord(NAME, "TXT", "10.0.0.1", 5)))
    assert told.addresses == (ip_address("10.96.0.10"), ip_address("fd00::a"))


READY = replace(HEADLESS, expected=(*PODS["echo-1"], *PODS["echo-2"]))
UNNAMED = replace(WORLD, backends=None).probe


def said(question: Question, *lookups: Lookup) -> tuple[Judgement, tuple[str, ...]]:
    """The verdict on a name of a probe whose author names no backends."""
    found = name_of(judged(question, *lookups, probe=UNNAMED))
    return found.judgement, found.reasons


def test_a_headless_name_gives_exactly_the_ready_endpoints_where_no_backends_are_named() -> None:
    (one,), (two,), (three,) = PODS.values()
    assert said(READY, lookup(two, one)) == (PASS, ())
    assert said(READY, lookup(two)) == (FAIL, (f"the name does not give echo-1 ({one})",))
    foreign = f"the name gives echo-3 ({three}), not an expected backend"
    assert said(READY, lookup(one, two, three)) == (FAIL, (foreign,))
    assert said(replace(HEADLESS, expected=()), lookup(one))[0] is FAIL


def test_a_backend_of_the_host_network_has_the_address_of_its_endpoint() -> None:
    """Its node has further addresses, which the name must not give."""
    address, other = PODS["echo-1"][0], ip_address("172.18.0.33")
    pods = {**PODS, "echo-1": (address, other)}
    question = replace(READY, pods=pods, expected=(address, *PODS["echo-2"]))
    assert reasons(question, lookup(address, *PODS["echo-2"]))[0] is PASS
    assert reasons(question, lookup(other, *PODS["echo-2"]))[0] is FAIL


def test_an_answer_of_another_than_the_services_name_servers_fails() -> None:
    expected, question = WORLD.resolved.destination, replace(CLUSTER_IP, answering=("coredns",))
    assert said(question, lookup(expected)) == (PASS, ())
    stranger = f"evil answered {NAME} A in place of coredns"
    assert said(question, lookup(expected, served_by="evil")) == (FAIL, (stranger,))
    nameless = f"a program without a name (NSID) answered {NAME} A in place of coredns"
    assert said(question, lookup(expected, served_by="")) == (FAIL, (nameless,))


def test_an_authors_server_may_leave_its_name_out_and_a_stranger_that_tells_its_own_still_fails() -> None:
    expected, question = WORLD.resolved.destination, replace(CLUSTER_IP, answering=("coredns",), unnamed=True)
    assert said(question, lookup(expected, served_by="")) == (PASS, ())
    stranger = f"evil answered {NAME} A in place of coredns"
    assert said(question, lookup(expected, served_by="evil")) == (FAIL, (stranger,))


def test_an_error_with_an_address_is_no_answer() -> None:
    expected = WORLD.resolved.destination
    broken = lookup(expected, code="SERVFAIL")
    assert broken.addresses == ()
    clause = f"{RESOLVER} answered {NAME} A with SERVFAIL and {NAME} A {expected}"
    assert said(CLUSTER_IP, broken) == (FAIL, (clause,))


def test_a_record_of_another_name_is_no_answer() -> None:
    expected = WORLD.resolved.destination
    other = replace(lookup(), answers=(NamedRecord("db.default.svc.cluster.local", "A", str(expected), 5),))
    assert other.addresses == ()
    clause = f"{RESOLVER} answered {NAME} A with db.default.svc.cluster.local A {expected}, which is another name"
    assert said(CLUSTER_IP, other) == (FAIL, (clause,))


def test_an_alias_leads_to_its_records() -> None:
    expected = WORLD.resolved.destination
    aliases = (
        NamedRecord(NAME.upper(), "CNAME", "web.example", 5),
        NamedRecord("web.example", "CNAME", "www.example", 5),
        NamedRecord("WWW.example", "A", str(expected), 5),
    )
    assert replace(lookup(), answers=aliases).addresses == (expected,)
    assert said(CLUSTER_IP, replace(lookup(), answers=aliases)) == (PASS, ())
    circle = (aliases[0], NamedRecord("web.example", "CNAME", NAME, 5))
    assert replace(lookup(), answers=circle).addresses == ()


def test_a_question_that_a_traced_packet_shows_translated_has_another_cause() -> None:
    silent, past = lookup(error="timeout", code=""), lookup("10.96.0.77", server=SERVER)
    verdict = judged(CLUSTER_IP, silent, past)
    for traced in (
        WORLD.evidence([WORLD.leaves(0), WORLD.arrives(0, "echo-1")]),
        WORLD.evidence([WORLD.arrives(0, "echo-1")]),
        WORLD.evidence([]),
    ):
        text = " ".join(" ".join(explain(replace(verdict, traced=traced))).split())
        assert "no rule translated the DNS query" not in text
