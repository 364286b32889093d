"""The stages that path tests judge: DNAT, masquerade, hairpin."""

from ipaddress import ip_address

import probed
import pytest
from golden_words import Told
from msgspec.structs import replace
from oracle_worlds import PROXY

from proxylab.addresses import Family
from proxylab.cluster.objects import Node, Service, ServicePort
from proxylab.engines.programmed import Hook, Programmed
from proxylab.features.diagnose.model import Finding, Standing
from proxylab.features.diagnose.path_test_results import (
    PathTestResult,
    judge_hairpin,
    judge_masquerade,
    judge_translation,
)
from proxylab.features.diagnose.path_tests import Dialler, DiallerKind, PathTest
from proxylab.features.diagnose.rules_stages import Rules
from proxylab.features.diagnose.subject import DiagnosedService, FrontendAddress
from proxylab.scenario.words import Frontend
from proxylab.verdict.model import ProbeVerdict

PORT = ServicePort(port=80, target_port=8080)
SERVICE = Service(name="echo", cluster_ips=(ip_address("10.96.0.10"),), ip_families=(Family.IPV4,), ports=(PORT,))
SUBJECT = DiagnosedService(
    service=SERVICE,
    slices=(),
    pods=(),
    nodes=(Node(name="node-a"),),
    families=(Family.IPV4,),
    setting=PROXY,
)
FRONT = FrontendAddress(
    via=Frontend.CLUSTER_IP, address=SERVICE.cluster_ips[0], port_number=80, port=PORT, family=Family.IPV4
)
PROGRAMMED = Programmed(
    hooked=frozenset({Hook.LEAVING}),
    reaches_addresses=True,
    reaches_node_ports=True,
    entries=(),
    leads={},
    ways={},
    local=frozenset(),
    in_turn=True,
    masquerades=True,
)
RULES: Rules = {("node-a", Family.IPV4): PROGRAMMED}


def walked(verdict: ProbeVerdict, *, hidden: bool | None = None) -> PathTestResult:
    """The verdict as the result of a path test."""
    sender = verdict.resolved.sender
    seen = PathTestResult(path_test=None, verdict=verdict)  # type: ignore[arg-type]  # to have its flows sorted
    arrivals = [flow.arrivals[0] for flow in seen.case.arrived]
    path_test = PathTest(
        dialler=Dialler(name=sender.name, kind=DiallerKind.POD, node="node-a", addresses=(sender.address,)),
        frontend=FRONT,
        node="node-a",
        at=None,
        expected=tuple((each.destination, each.destination_port) for each in arrivals),
        hidden=hidden,
    )
    return replace(seen, path_test=path_test)


def nodes_of(*path_tests: PathTestResult) -> dict[str, tuple[object, ...]]:
    """The addresses that were seen in the place of the sender's, as if they were the node's."""
    flows = [flow for each in path_tests for flow in each.case.arrived]
    own = {each.path_test.dialler.addresses[0] for each in path_tests}
    return {"node-a": tuple(flow.arrivals[0].source for flow in flows if flow.arrivals[0].source not in own)}


def masquerade(one: PathTestResult, rules: Rules = RULES) -> Finding:
    return judge_masquerade(SUBJECT, rules, [one], nodes_of(one))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "made",
    [probed.no_translation, probed.strayed, probed.dead_backend, probed.rejected_instead, probed.refused_instead,
     probed.some_lost],
    ids=lambda made: made.__name__,
)  # fmt: skip
def test_a_dialler_that_is_not_translated_to_an_endpoint_breaks_translation(made: object) -> None:
    found = judge_translation(SUBJECT, [walked(probed.passed()), walked(made())])  # type: ignore[operator]
    assert found.standing is Standing.BREAKS
    assert found.cause.count(" to the cluster IP 10.96.0.10:80/TCP by node-a: ") == 1
    assert found.look_at[0].startswith("trace ")


def test_what_has_no_witness_is_unclear_unless_something_breaks() -> None:
    doubtful = walked(probed.no_witness())
    assert judge_translation(SUBJECT, [doubtful]).standing is Standing.UNCLEAR
    assert judge_translation(SUBJECT, [doubtful, walked(probed.no_translation())]).standing is Standing.BREAKS


def test_what_came_through_holds() -> None:
    found = judge_translation(SUBJECT, [walked(probed.passed())])
    assert found.standing is Standing.HOLDS
    assert judge_translation(SUBJECT, []).standing is Standing.NOTHING


def test_another_node_that_translates_breaks_it() -> None:
    passed = walked(probed.masqueraded())
    elsewhere = replace(passed, path_test=replace(passed.path_test, node="node-z"))
    found = judge_translation(SUBJECT, [elsewhere])
    assert "no rule of node-z translated the packet; node-a did, further on." in found.cause


def test_endpoints_must_see_the_right_source() -> None:
    kept, changed = probed.passed(), probed.masqueraded()
    assert masquerade(walked(kept, hidden=False)).standing is Standing.HOLDS
    assert masquerade(walked(changed, hidden=True)).standing is Standing.HOLDS
    unhidden = masquerade(walked(kept, hidden=True))
    assert unhidden.standing is Standing.BREAKS
    assert "and must see an address of node-a; the packet kept the client's address" in unhidden.cause
    exposed = masquerade(walked(changed, hidden=False))
    assert exposed.standing is Standing.BREAKS
    assert "'s own; node-a masqueraded the packet" in exposed.cause


def test_a_node_that_masquerades_nothing_breaks_it_for_every_dialler(told: Told) -> None:
    rules = {("node-a", Family.IPV4): replace(PROGRAMMED, masquerades=False)}
    found = masquerade(walked(probed.passed(), hidden=False), rules)
    assert found.cause == told()


@pytest.mark.parametrize("made", [probed.reply_untranslated, probed.silent_responder], ids=lambda made: made.__name__)
def test_answers_must_come_back(made: object) -> None:
    assert masquerade(walked(made())).standing is Standing.BREAKS  # type: ignore[operator]


def test_an_endpoint_must_not_get_its_own_address() -> None:
    assert judge_hairpin(SUBJECT, []).standing is Standing.NOTHING
    away = judge_hairpin(SUBJECT, [walked(probed.passed())])
    assert away.seen == ("session affinity led no endpoint to itself",)
    sound = judge_hairpin(SUBJECT, [walked(probed.hairpin_masqueraded())])
    assert sound.standing is Standing.HOLDS
    broken = judge_hairpin(SUBJECT, [walked(probed.not_masqueraded())])
    assert broken.standing is Standing.BREAKS
    assert broken.cause.startswith("debug got its own packet from its own address (10.244.1.2)")
