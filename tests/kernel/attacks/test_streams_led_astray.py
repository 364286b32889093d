"""Streams that rules copy, change, or lead to what is no endpoint: what fails for a probe fails for a stream."""

import pytest
from attacked_lab import CLIENT, ECHO, OTHER, Alteration, nft
from attacked_streams import SCENARIO, said, streaming

from proxylab.engines.protocol import EngineChoice

SERVED = "{backend: echo, lost: 0}"
WHEREVER = "{lost: 0}"
ENGINE = EngineChoice("embedded/iptables", iptables="nft")
WORLD = SCENARIO.replace(
    "    client: {nodes: [node-a]}\n",
    "    other: {nodes: [node-b], ports: [8080, {port: 8080, protocol: UDP}]}\n    client: {nodes: [node-a]}\n",
).replace("ports: [8080, {port", "ports: [8080, 8081, {port: 8081, protocol: UDP}, {port", 1)


def led(where: str) -> Alteration:
    """The engine's own rule on node-a, edited with sed(1)."""
    edit = f"iptables-save -t nat | sed 's/{ECHO}:8080/{where}/' | iptables-restore -T nat"
    return Alteration("node-a", edit, "")


def behind(rule: str) -> Alteration:
    return nft("node-b", "postrouting", 300, rule)


def ahead(rule: str) -> Alteration:
    return nft("node-b", "prerouting", -350, rule)


ASTRAY = {
    "another port of the pod": (
        led(f"{ECHO}:8081"), SERVED, "endpoint",
        "it arrived at port 8081 of echo, not at port 8080, the target port of default/echo:",
    ),
    "a pod outside the Service": (
        led(f"{OTHER}:8080"), WHEREVER, "endpoint",
        f"it arrived at other, at {OTHER}:8080, which was at no time an endpoint of",
    ),
}  # fmt: skip
COPIED = {
    "each request arrives twice": (
        behind(f'ip daddr {ECHO} udp dport 8080 dup to {ECHO} device "echo"'), "udp", "the request was sent once",
    ),
    "a copy of each request comes to another pod": (
        behind(f'ip daddr {ECHO} udp dport 8080 dup to {OTHER} device "other"'), "udp",
        "the request was sent once, and came in at echo once and other once",
    ),
    "each answer arrives twice": (
        nft("node-a", "postrouting", 300, f'ip daddr {CLIENT} udp sport 80 dup to {CLIENT} device "client"'), "udp",
        "the reply was sent once, and came in at client twice",
    ),
    "each segment with a request arrives twice": (
        behind(f'ip daddr {ECHO} tcp dport 8080 tcp flags & psh == psh dup to {ECHO} device "echo"'), "tcp",
        "the request was sent once, and came in at echo twice",
    ),
    "a copy of each segment with a request comes to another pod": (
        behind(f'ip daddr {ECHO} tcp dport 8080 tcp flags & psh == psh dup to {OTHER} device "other"'), "tcp",
        "the request was sent once, and came in at echo once and other once",
    ),
    "each segment with an answer arrives twice": (
        nft(
            "node-a", "postrouting", 300,
            f'ip daddr {CLIENT} tcp sport 80 tcp flags & psh == psh dup to {CLIENT} device "client"',
        ),
        "tcp", "the reply was sent once, and came in at client twice",
    ),
    "a copy of each SYN comes to another pod": (
        behind(f'ip daddr {ECHO} tcp dport 8080 tcp flags syn dup to {OTHER} device "other"'), "tcp",
        "the packet that begins its connection was sent once, and came in at echo once and other once",
    ),
}  # fmt: skip
CHANGED = {
    "a request over UDP": (
        behind("oifname echo udp dport 8080 @th,640,16 set 0x4142 udp checksum set 0"), "udp", "request",
    ),
    "a request over TCP": (
        behind("oifname echo tcp dport 8080 tcp flags & psh == psh @th,800,16 set 0x4142"), "tcp", "request",
    ),
    "an answer over UDP, in the name of the pod": (
        ahead(f"ip saddr {ECHO} udp sport 8080 @th,528,8 set 0x58 udp checksum set 0"), "udp", "reply",
    ),
    "an answer over UDP, so that it cannot be read": (
        ahead(f"ip saddr {ECHO} udp sport 8080 @th,456,8 set 0x20 udp checksum set 0"), "udp", "reply",
    ),
}  # fmt: skip

WORLD_6 = WORLD.replace("  nodes:", "  network: {families: [IPv6]}\n  nodes:", 1)
ECHO_6, OTHER_6, CLIENT_6 = "fd00:10:244:1::a", "fd00:10:244:1::b", "fd00:10:244::a"
ASTRAY_6 = {
    "another port of the pod": (
        ("tcp", "udp"),
        Alteration(
            "node-a",
            rf"ip6tables-save -t nat | sed 's/\[{ECHO_6}\]:8080/[{ECHO_6}]:8081/' | ip6tables-restore -T nat", "",
        ),
        SERVED, "it arrived at port 8081 of echo, not at port 8080, the target port of default/echo:",
    ),
    "a pod outside the Service": (
        ("tcp", "udp"),
        Alteration(
            "node-a", rf"ip6tables-save -t nat | sed 's/\[{ECHO_6}\]/[{OTHER_6}]/' | ip6tables-restore -T nat", ""
        ),
        WHEREVER, f"it arrived at other, at [{OTHER_6}]:8080, which was at no time an endpoint of",
    ),
    "a copy of each request comes to another pod": (
        ("udp",),
        nft(
            "node-b", "postrouting", 300, f'ip6 daddr {ECHO_6} udp dport 8080 dup to {OTHER_6} device "other"',
            family="ip6",
        ),
        SERVED, "the request was sent once, and came in at echo once and other once",
    ),
    "each answer arrives twice": (
        ("udp",),
        nft(
            "node-a", "postrouting", 300, f'ip6 daddr {CLIENT_6} udp sport 80 dup to {CLIENT_6} device "client"',
            family="ip6",
        ),
        SERVED, "the reply was sent once, and came in at client twice",
    ),
}  # fmt: skip

LEFT, TAKEN = 40_000, 51_234
FROM_PORT = WORLD.replace("{from: client,", f"{{from: {{name: client, port: {LEFT}}},")


@pytest.mark.parametrize("port", ["tcp", "udp"])
@pytest.mark.parametrize("astray", ASTRAY)
def test_a_stream_that_reaches_no_endpoint_fails(astray: str, port: str) -> None:
    alteration, expect, key, clause = ASTRAY[astray]
    with streaming(ENGINE, port, expect, alteration, text=WORLD) as verdicts:
        for verdict in verdicts:
            assert str(verdict.overall) == "fail", said(verdict)
            assert f"stream.{key}: fail" in said(verdict)
            assert clause in said(verdict)


@pytest.mark.parametrize(
    ("astray", "port"), [(astray, port) for astray, (ports, *_) in ASTRAY_6.items() for port in ports]
)
def test_a_stream_over_ipv6_that_is_led_astray_or_copied_fails(astray: str, port: str) -> None:
    _, alteration, expect, clause = ASTRAY_6[astray]
    with streaming(ENGINE, port, expect, alteration, text=WORLD_6) as verdicts:
        for verdict in verdicts:
            assert str(verdict.overall) == "fail", said(verdict)
            assert clause in said(verdict)


@pytest.mark.parametrize("copied", COPIED)
def test_a_stream_whose_packets_are_copied_fails(copied: str) -> None:
    alteration, port, clause = COPIED[copied]
    with streaming(ENGINE, port, SERVED, alteration, text=WORLD) as verdicts:
        verdict = next(iter(verdicts))  # a connection begins in the first step alone
        assert str(verdict.overall) == "fail", said(verdict)
        assert "stream.whole: fail" in said(verdict)
        assert clause in said(verdict)


@pytest.mark.parametrize("changed", CHANGED)
def test_a_stream_whose_data_changes_fails(changed: str) -> None:
    alteration, port, what = CHANGED[changed]
    text = WORLD.replace("send: {every: 5ms}", "send: {every: 5ms, payload: 100}")
    with streaming(ENGINE, port, "{lost: {atMost: 1000}}", alteration, text=text) as verdicts:
        for verdict in verdicts:
            assert f"the data of the {what} had changed on the way" in said(verdict)
            assert str(verdict.overall) == "fail", said(verdict)


# What becomes of packets behind the proxy is judged alike; the rows above show it of mode iptables.
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("engine", "done"),
    [
        *((f"embedded/{mode}", done) for mode in ("nftables", "userspace") for done in ("copied", "changed")),
        # The kernel for guests has no dup.
        pytest.param("embedded/ipvs", "changed", marks=pytest.mark.needs_kernel(built=None)),
    ],
)
def test_what_a_rule_does_to_the_packets_of_a_stream_fails_in_each_mode(engine: str, done: str) -> None:
    alteration, port, clause = COPIED["a copy of each request comes to another pod"]
    text, choice = WORLD, EngineChoice(engine, kernel="uml" if engine.endswith("ipvs") else "host")
    if done == "changed":
        alteration, port, what = CHANGED["a request over UDP"]
        text, clause = text.replace("every: 5ms}", "every: 5ms, payload: 100}"), f"the data of the {what} had changed"
    with streaming(choice, port, "{lost: {atMost: 1000}}", alteration, text=text) as verdicts:
        for verdict in verdicts:
            assert str(verdict.overall) == "fail", said(verdict)
            assert clause in said(verdict)


@pytest.mark.parametrize("port", ["tcp", "udp"])
def test_a_stream_whose_port_alone_a_rule_changes_keeps_no_source(port: str) -> None:
    rule = nft("node-a", "postrouting", 50, f"ip daddr {ECHO} meta l4proto {port} snat to {CLIENT}:{TAKEN}", "nat")
    with streaming(ENGINE, port, "{source: preserved, lost: 0}", rule, text=WORLD) as verdicts:
        for verdict in verdicts:
            assert str(verdict.overall) == "fail", said(verdict)
            assert f"echo saw it come from port {TAKEN}, not from port " in said(verdict)


@pytest.mark.parametrize("port", ["tcp", "udp"])
@pytest.mark.parametrize(("holder", "noted"), [(f"{ECHO}:8080", True), (f"{OTHER}:8080", False)])
def test_a_port_that_another_connection_to_the_endpoint_holds_is_noted(port: str, holder: str, *, noted: bool) -> None:
    known = (
        f"conntrack: [{{protocol: {port.upper()}, from: '{CLIENT}:{LEFT}', to: '10.96.1.9:80', replyFrom: '{holder}'}}]"
    )
    text = FROM_PORT.replace("node-a: {}", f"node-a: {{{known}}}")
    with streaming(ENGINE, port, "{source: preserved, lost: 0}", text=text) as verdicts:
        for verdict in verdicts:
            assert str(verdict.overall) == "pass", said(verdict)
            notes = [note for each in verdict.verdicts for note in each.witnesses]
            assert (
                any(f"not from port {LEFT}: another connection on node-a holds that one" in note for note in notes)
                is noted
            )


def test_an_unaltered_lab_passes() -> None:
    for port in ("tcp", "udp"):
        with streaming(ENGINE, port, SERVED, text=WORLD) as verdicts:
            assert {str(verdict.overall) for verdict in verdicts} == {"pass"}
