"""Streams that a rule of others leads or ends in place of the engine's: neither the right answer nor a loss is a pass.

An attack that leads first takes the engine's rule of the Service away, so that only the other rule leads there.
"""

import pytest
from attacked_lab import ECHO, VIP, Alteration, iptables, nft, program
from attacked_streams import SCENARIO, altered, concluded, said, streaming
from shared_sessions import shared_session

from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.load import parse_scenario

ENGINES = {
    "embedded/iptables by legacy": EngineChoice("embedded/iptables", iptables="legacy"),
    "embedded/iptables by nft": EngineChoice("embedded/iptables", iptables="nft"),
    "embedded/nftables": EngineChoice("embedded/nftables"),
}
EACH = [  # every run has the two that share no code
    pytest.param(name, marks=[pytest.mark.thorough] if name.endswith("by nft") else []) for name in ENGINES
]
BARE = {
    "embedded/iptables": Alteration("node-a", "iptables -w -t nat -F KUBE-SERVICES", ""),
    "embedded/nftables": Alteration("node-a", "nft flush chain ip kube-proxy services", ""),
}
SERVED = "{backend: echo, backends: [echo], source: preserved, lost: 0}"


def led(port: str, dialled: int = 80) -> dict[str, Alteration]:
    """Rules that lead to the pod, by what wrote them."""
    there = f"dnat to {ECHO}:8080"
    by_iptables = f"-d {VIP} -p {port} --dport {dialled} -j DNAT --to-destination {ECHO}:8080"
    by_nft = f"ip daddr {VIP} {port} dport {dialled}"
    return {
        "iptables": iptables("node-a", "nat", "PREROUTING", by_iptables),
        "nftables": nft("node-a", "prerouting", -110, f"{by_nft} counter {there}", "nat"),
        "nftables without a counter": nft("node-a", "prerouting", -110, f"{by_nft} {there}", "nat"),
    }


@pytest.mark.parametrize("rule", list(led("udp")))
@pytest.mark.parametrize("port", ["udp", pytest.param("tcp", marks=pytest.mark.thorough)])  # other ways lead both
@pytest.mark.parametrize("engine", EACH)
def test_a_stream_that_a_rule_of_others_leads_does_not_pass(engine: str, port: str, rule: str) -> None:
    choice = ENGINES[engine]
    with streaming(choice, port, SERVED, BARE[choice.name], led(port)[rule]) as verdicts:
        for verdict in verdicts:  # the second one by the entry that the rule has made in the first
            assert {str(each.judgement) for each in verdict.verdicts} == {"inconclusive"}, said(verdict)
            for each in verdict.verdicts:
                assert f"{ECHO}:8080" in each.reasons[0], said(verdict)
                assert "belongs to no engine, and may have led packets in place of the" in each.reasons[0]


@pytest.mark.parametrize("engine", EACH)
def test_without_the_other_rule_such_a_stream_is_lost(engine: str) -> None:
    choice = ENGINES[engine]
    with streaming(choice, "udp", SERVED, BARE[choice.name]) as verdicts:
        assert {str(verdict.overall) for verdict in verdicts} == {"fail"}


@pytest.mark.parametrize("rule", ["iptables", "nftables"])
@pytest.mark.parametrize("engine", EACH)
def test_a_rule_of_others_that_counts_nothing_changes_no_verdict_of_a_stream(engine: str, rule: str) -> None:
    with streaming(ENGINES[engine], "udp", SERVED, led("udp", dialled=81)[rule]) as verdicts:
        for verdict in verdicts:
            assert str(verdict.overall) == "pass", said(verdict)


def test_a_stream_to_a_pod_asks_nothing_of_the_engine() -> None:
    masked = iptables("node-a", "nat", "POSTROUTING", f"-d {ECHO} -j MASQUERADE", "-A")
    to_pod = SCENARIO.replace("service: echo, via: clusterIP, port: PORT", "pod: echo, port: 8080").replace(
        "every", "protocol: UDP, every"
    )
    with streaming(ENGINES["embedded/nftables"], "udp", "{backend: echo, lost: 0}", masked, text=to_pod) as verdicts:
        assert {str(verdict.overall) for verdict in verdicts} == {"pass"}


def test_what_a_probe_sends_during_a_step_is_none_of_its_streams() -> None:
    of_probe = iptables("node-a", "nat", "PREROUTING", f"-d {ECHO} -p udp -j DNAT --to-destination {ECHO}:8080")
    probe = "{name: a pod dials a pod, from: client, to: {pod: echo, port: 8080}, send: {protocol: UDP}, expect: DUE}"
    with_probe = SCENARIO.replace("expect: {stream: EXPECT}}", f"expect: {{stream: EXPECT}}, probes: [{probe}]}}", 1)
    text = with_probe.replace("DUE", "{outcome: delivered, backends: [echo], source: preserved}")
    with streaming(ENGINES["embedded/iptables by legacy"], "tcp", SERVED, of_probe, text=text) as verdicts:
        for verdict in verdicts:
            assert str(verdict.overall) == "pass", said(verdict)


LOSING = {
    "iptables in filter": iptables("node-a", "filter", "FORWARD", f"-d {ECHO} -p udp -j DROP"),
    "iptables in mangle": iptables("node-a", "mangle", "POSTROUTING", f"-d {ECHO} -p udp -j DROP"),
    "iptables in raw": iptables("node-b", "raw", "PREROUTING", f"-d {ECHO} -p udp -j DROP"),
    "a policy of iptables": Alteration("node-a", "iptables -w -P FORWARD DROP", "iptables -w -P FORWARD ACCEPT"),
    "nftables": nft("node-a", "prerouting", -350, f"ip daddr {VIP} counter drop"),
    "nftables without a counter": nft("node-b", "postrouting", 350, f"ip saddr {ECHO} udp sport 8080 drop"),
    "nftables to nowhere": nft("node-a", "prerouting", -150, f"ip daddr {VIP} counter dnat to 10.244.0.99", "nat"),
}
LOST_IN_EVERY_RUN = {"iptables in filter", "a policy of iptables", "nftables", "nftables without a counter"}
CUT = SCENARIO.replace("on, expect", "on, change: {links: {echo: cut}}, expect")


# A rule and a policy, with a counter and without.
EACH_LOSING = [pytest.param(rule, marks=[] if rule in LOST_IN_EVERY_RUN else [pytest.mark.thorough]) for rule in LOSING]


@pytest.mark.parametrize("rule", EACH_LOSING)
@pytest.mark.parametrize("engine", EACH)
def test_a_stream_that_a_rule_of_others_loses_does_not_pass(engine: str, rule: str) -> None:
    with streaming(ENGINES[engine], "udp", "{lost: {atLeast: 1}}", LOSING[rule]) as verdicts:
        for verdict in verdicts:
            (lost,) = verdict.verdicts
            assert str(lost.judgement) == "inconclusive", said(verdict)
            assert "to no engine, and may have ended packets in place of" in said(verdict), said(verdict)


@pytest.mark.parametrize("rule", ["iptables in filter", "nftables", "nftables without a counter"])
def test_a_rule_of_others_that_lost_packets_in_an_earlier_step_changes_no_later_verdict(rule: str) -> None:
    choice, other = ENGINES["embedded/iptables by legacy"], LOSING[rule]
    text = CUT.replace("PORT", "udp").replace("EXPECT", "{lost: {atLeast: 5}}")
    scenario = parse_scenario(text, "lost-to-others.lab.yaml")
    with shared_session(choice) as session:
        lab = session.open(scenario, text)
        altered(lab, other.machine, other.change)
        assert str(concluded(lab, scenario.steps[0]).overall) == "inconclusive"
        altered(lab, other.machine, other.undo)
        later = concluded(lab, scenario.steps[1])
        assert str(later.overall) == "pass", said(later)


def test_a_rule_of_others_that_hides_a_stream_from_the_engine_does_not_pass() -> None:
    hidden = nft("node-a", "prerouting", -350, f"ip daddr {VIP} counter notrack")
    with streaming(ENGINES["embedded/iptables by nft"], "udp", "{lost: {atLeast: 1}}", hidden) as verdicts:
        for verdict in verdicts:
            assert str(verdict.overall) == "inconclusive", said(verdict)
            assert 'counter notrack" in chain x' in said(verdict)


def test_a_rule_of_others_that_resets_a_stream_does_not_pass_for_the_engines() -> None:
    reset = iptables("node-b", "filter", "FORWARD", f"-d {ECHO} -p tcp --dport 8080 -j REJECT --reject-with tcp-reset")
    with streaming(ENGINES["embedded/nftables"], "tcp", "{resets: {atLeast: 1}}", reset) as verdicts:
        for verdict in verdicts:
            assert str(verdict.overall) == "inconclusive", said(verdict)


MARK = f"-d {VIP} -m conntrack --ctstate STATES -j MARK --set-mark 0x4000"
MASQUERADED = "{backend: echo, source: masqueraded, lost: 0}"


@pytest.mark.parametrize(
    ("engine", "states"),
    [
        ("embedded/iptables by legacy", "NEW,ESTABLISHED"),
        ("embedded/iptables by nft", "NEW,ESTABLISHED"),
        ("embedded/nftables", "NEW"),  # the entry of the first step masquerades in the second, too
    ],
)
def test_a_stream_that_a_rule_of_others_marks_is_not_masqueraded_by_the_engine(engine: str, states: str) -> None:
    mark = iptables("node-a", "mangle", "PREROUTING", MARK.replace("STATES", states))
    with streaming(ENGINES[engine], "udp", MASQUERADED, mark) as verdicts:
        for verdict in verdicts:
            judged = {each.expectation: str(each.judgement) for each in verdict.verdicts}
            assert judged == {"stream.backend": "pass", "stream.source": "inconclusive", "stream.lost": "pass"}, said(
                verdict
            )
            assert "belongs to no engine, and may have marked packets in place of" in said(verdict)


def test_a_rule_of_others_that_marks_changes_no_verdict_of_a_preserved_source() -> None:
    mark = iptables("node-a", "mangle", "PREROUTING", f"-d {VIP} -j MARK --set-mark 0x10000")
    with streaming(ENGINES["embedded/nftables"], "udp", SERVED, mark) as verdicts:
        assert {str(verdict.overall) for verdict in verdicts} == {"pass"}


OWN_NAT = nft("client", "output", -100, f"ip daddr {VIP} udp dport 80 dnat to {ECHO}:8080", "nat")
RELAY = program(
    "node-a",
    f"listener = socket.create_server(('{VIP}', 80))",
    f"""import threading
def pipe(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
while True:
    came, _ = listener.accept()
    onward = socket.create_connection(('{ECHO}', 8080))
    threading.Thread(target=pipe, args=(came, onward), daemon=True).start()
    threading.Thread(target=pipe, args=(onward, came), daemon=True).start()
""",
)
HELD = Alteration("node-a", f"ip address add {VIP}/32 dev lo", "")
UNLED = {
    "rules of its own namespace": ("udp", SERVED, (OWN_NAT,)),
    "a program of others that holds the address": ("tcp", "{backend: echo, lost: 0, resets: 0}", (HELD, RELAY)),
}


@pytest.mark.parametrize("others", UNLED)
@pytest.mark.parametrize("engine", EACH)
def test_a_stream_that_no_node_translates_does_not_pass(engine: str, others: str) -> None:
    choice, (port, expect, alterations) = ENGINES[engine], UNLED[others]
    with streaming(choice, port, expect, BARE[choice.name], *alterations) as verdicts:
        for verdict in verdicts:
            assert {str(each.judgement) for each in verdict.verdicts} == {"inconclusive"}, said(verdict)
            assert f"no node's conntrack translates {VIP}:80 at the step's end" in said(verdict)
