"""Connections that are open during the switch: which are opened, and what becomes of each."""

import json
from ipaddress import ip_address, ip_network

import pytest
from audits import RIGHT, answer, audit_of, wrong
from made_steps import ZERO, answered, judged, lost, record, step
from msgspec.structs import replace

from proxylab.addresses import Transport
from proxylab.binary_identity import BinaryIdentity
from proxylab.engines.protocol import EngineChoice, Upstream
from proxylab.errors import ExitCode
from proxylab.features.audit.findings import AuditAnswer
from proxylab.features.audit.manifests import scenario_of_manifests
from proxylab.features.audit.senders import SenderKind
from proxylab.features.migrate.certificate import certificate_of
from proxylab.features.migrate.certificate_page import page
from proxylab.features.migrate.certificate_text import to_json, to_lines
from proxylab.features.migrate.open_connections import (
    ConnectionFate,
    OpenConnection,
    Switch,
    connections_of,
    rounds,
    switched,
    with_switch,
)
from proxylab.features.migrate.runs import words_of
from proxylab.scenario.pods import LoadBalancer
from proxylab.scenario.probes import ServiceTarget, Stream
from proxylab.scenario.words import Frontend, Position
from proxylab.verdict.model import ProbeVerdict, StepVerdict

WEB = "{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}\n"
EXPECTED = step(lost=ZERO, rejected=ZERO, resets=ZERO)
WELL = [answered(number, 5 * number, "old") for number in range(10)]


def sent(
    via: Frontend,
    kind: SenderKind,
    protocol: Transport = Transport.TCP,
    service: str = "shop/web",
    verdict: ProbeVerdict = RIGHT,
) -> AuditAnswer:
    """An answer to a question that dialled such a frontend."""
    target = ServiceTarget(service="web", namespace="shop", port=80, via=via)
    probe = verdict.case.probe
    probe = replace(probe, target=target, send=replace(probe.send, protocol=protocol))
    return answer(replace(verdict, case=replace(verdict.case, probe=probe)), kind, service)


def connection() -> OpenConnection:
    probe = RIGHT.case.probe
    target = ServiceTarget(service="web", via=Frontend.NODE_PORT, node="node-a")
    stream = Stream(name="queries", source=probe.source, target=target, position=probe.position)
    return OpenConnection("shop/web", "nodePort 30080/TCP", SenderKind.OUTSIDE, stream)


def fate_of(after: StepVerdict, before: StepVerdict | None = None) -> Switch:
    return switched([connection()], before or judged(EXPECTED, record(*WELL)), after)


def test_each_service_gets_one_connection_from_a_pod_and_one_from_outside_by_each_kind_of_frontend() -> None:
    found = connections_of(
        [
            sent(Frontend.CLUSTER_IP, SenderKind.NEAR),
            sent(Frontend.CLUSTER_IP, SenderKind.FAR),  # the same frontend again
            sent(Frontend.CLUSTER_IP, SenderKind.NODE, service="shop/other"),
            sent(Frontend.NODE_PORT, SenderKind.NEAR),
            sent(Frontend.NODE_PORT, SenderKind.OUTSIDE),
            sent(Frontend.LOAD_BALANCER_IP, SenderKind.OUTSIDE, Transport.UDP),
            sent(Frontend.EXTERNAL_IP, SenderKind.OUTSIDE, Transport.SCTP),
            sent(Frontend.HEALTH_CHECK_NODE_PORT, SenderKind.OUTSIDE),
        ]
    )
    dialled = [(each.stream.target.via, each.kind) for each in found if isinstance(each.stream.target, ServiceTarget)]
    assert dialled == [
        (Frontend.CLUSTER_IP, SenderKind.NEAR),
        (Frontend.NODE_PORT, SenderKind.OUTSIDE),
        (Frontend.LOAD_BALANCER_IP, SenderKind.OUTSIDE),
    ]
    assert [each.stream.name for each in found] == ["open-1", "open-2", "open-3"]
    assert len({each.stream.send.protocol for each in found}) == 2


def test_what_the_old_proxy_does_not_deliver_is_not_opened() -> None:
    assert connections_of([sent(Frontend.CLUSTER_IP, SenderKind.NEAR, verdict=wrong())]) == []


@pytest.mark.parametrize(
    ("services", "sizes", "last"), [(1, [1], 0), (250, [100, 100, 50], 249), (2_500, [100] * 10, 2_497)]
)
def test_a_lab_keeps_a_hundred_open_and_a_thousand_are_spread_over_all_services(
    services: int, sizes: list[int], last: int
) -> None:
    answers = [sent(Frontend.CLUSTER_IP, SenderKind.NEAR, service=f"shop/s{number}") for number in range(services)]
    found = rounds(connections_of(answers))
    assert [len(each) for each in found] == sizes
    opened = [each.service for one in found for each in one]
    assert len(set(opened)) == sum(sizes)
    assert opened[-1] == f"shop/s{last}"


def test_the_router_leads_to_addresses_that_no_node_has_but_for_those_of_a_balancer() -> None:
    def dialling(number: int, via: Frontend, address: str, node: str) -> OpenConnection:
        target = ServiceTarget(service="web", via=via, address=ip_address(address), node=node)
        one = connection()
        return replace(one, stream=replace(one.stream, name=f"open-{number}", target=target))

    position = Position("a", 1, 1)
    pool = LoadBalancer(name="lb", pool=(ip_network("192.0.2.0/28"),), position=position)
    scenario = replace(scenario_of_manifests(WEB, "web.yaml"), load_balancers=(pool,))
    opened = [
        dialling(1, Frontend.EXTERNAL_IP, "198.51.100.7", "node-b"),
        dialling(2, Frontend.EXTERNAL_IP, "198.51.100.7", "node-c"),
        dialling(3, Frontend.LOAD_BALANCER_IP, "192.0.2.1", "node-b"),
        dialling(4, Frontend.LOAD_BALANCER_IP, "192.0.2.70", "node-a"),
        dialling(5, Frontend.NODE_PORT, "172.18.0.2", "node-a"),
    ]
    routed = with_switch(scenario, opened, "nftables").network.routed
    assert [(str(each.network), each.nodes) for each in routed] == [
        ("198.51.100.7/32", ("node-b",)),
        ("192.0.2.70/32", ("node-a",)),
    ]


def test_a_connection_of_which_every_packet_is_answered_survives() -> None:
    (one,) = fate_of(judged(EXPECTED, record(*WELL))).connections
    assert (one.fate, one.seen) == (ConnectionFate.SURVIVES, "")


def test_a_connection_that_loses_packets_and_is_answered_in_the_end_goes_on() -> None:
    (one,) = fate_of(judged(EXPECTED, record(WELL[0], lost(1, 5), *WELL[2:]))).connections
    assert (one.fate, one.seen) == (ConnectionFate.DISTURBED, "lost 1, of 10 packets")


@pytest.mark.parametrize(
    "after",
    [
        judged(EXPECTED, record(*WELL[:9], lost(9, 45))),
        judged(EXPECTED, record(*WELL, resets=1)),
        judged(EXPECTED, record(*WELL, closed=25)),
    ],
    ids=["without an answer in the end", "reset", "closed, and another one is open"],
)
def test_a_connection_that_is_reset_or_silent_in_the_end_has_ended(after: StepVerdict) -> None:
    (one,) = fate_of(after).connections
    assert one.fate is ConnectionFate.ENDS
    assert one.seen


def test_what_fails_before_the_change_says_nothing_of_it() -> None:
    before = judged(EXPECTED, record(WELL[0], lost(1, 5), *WELL[2:]))
    (one,) = fate_of(judged(EXPECTED, record(*WELL, resets=1)), before).connections
    assert one.fate is ConnectionFate.UNDECIDED
    assert one.seen.startswith("before the change: lost 1")


def test_the_certificate_names_each_connection_that_does_not_survive() -> None:
    same = audit_of(answer(RIGHT))
    whole = replace(certificate_of(same, same), switch=fate_of(judged(EXPECTED, record(*WELL, resets=1))))
    assert whole.exit_code is ExitCode.FAILED
    text = " ".join(" ".join(to_lines(whole, 200)).split())
    assert "1 connection open during the switch: 1 ends" in text
    assert "ends: shop/web nodePort 30080/TCP from " in text
    assert "(outside): resets 1" in text
    assert "ends: shop/web nodePort 30080/TCP" in page(whole)
    (written,) = json.loads(to_json(whole))["openConnections"]["connections"]
    assert (written["service"], written["fate"]) == ("shop/web", "ends")


def choice(engine: str, version: str = "", binary: str = "") -> EngineChoice:
    identity = BinaryIdentity(version=version, origin="a test", digest="")
    return EngineChoice(engine, upstream=Upstream(binary or version, identity) if version else None)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (choice("embedded/ipvs"), choice("embedded/nftables"), "embedded/nftables"),
        (choice("embedded/ipvs"), choice("kube-proxy/nftables", "v1.37.2"), "kube-proxy@v1.37.2/nftables"),
        (
            choice("kube-proxy@v1.34/ipvs", "v1.34.9"),
            choice("kube-proxy/nftables", "v1.37.2"),
            "kube-proxy@v1.37.2/nftables",
        ),
        # A binary of the user's own may call itself by any version: nodes keep it.
        (
            choice("kube-proxy/ipvs", "v1.38.0-alpha.1", "own"),
            choice("kube-proxy/nftables", "v1.38.0-alpha.1", "own"),
            "nftables",
        ),
    ],
)
def test_nodes_change_to_the_very_binary_of_the_new_proxy(old: EngineChoice, new: EngineChoice, words: str) -> None:
    assert words_of(old, new) == words


def test_the_certificate_says_why_connections_were_not_tried() -> None:
    same = audit_of(answer(RIGHT))
    found = replace(certificate_of(same, same), switch=Switch(untried="kube-proxy@v1.34 is not here"))
    assert found.exit_code is ExitCode.OK
    assert "not tried: kube-proxy@v1.34 is not here" in " ".join(to_lines(found, 200))
