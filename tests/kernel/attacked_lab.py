"""A lab whose machines an attack alters, a probe that the lab judges meanwhile, and the lab as it was.

``Attack`` is a row of a table: what is altered, the probe, its verdict, and why that verdict is right. One lab serves
all attacks of a module, so each alteration is undone. The scenario is small: a pod on node-a dials Services whose one
endpoint is on node-b; node-c only forwards what others lead there.
"""

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from shared_sessions import shared_session
from thoroughness import sentinels

from proxylab.client.open_lab import OpenLab
from proxylab.engines.protocol import EngineChoice
from proxylab.report.failure_text import explain
from proxylab.scenario.load import parse_with_probes
from proxylab.scenario.words import Position
from proxylab.verdict.model import ProbeVerdict

CLIENT, NEIGHBOUR, ECHO, OTHER = "10.244.0.10", "10.244.0.11", "10.244.1.10", "10.244.1.11"
VIP, EMPTY, LOCAL, TWIN = "10.96.1.1", "10.96.1.2", "10.96.1.3", "10.96.1.4"
NODES = {"node-a": "172.18.0.2", "node-b": "172.18.0.3", "node-c": "172.18.0.4"}
ECHO_6, OTHER_6 = "fd00:10:244:1::a", "fd00:10:244:1::b"
VIP_6, EMPTY_6, LOCAL_6 = "fd00:10:96::101", "fd00:10:96::102", "fd00:10:96::103"
NODES_6 = {"node-a": "fd00:172:18::2", "node-b": "fd00:172:18::3", "node-c": "fd00:172:18::4"}

_SERVICE = """\
---
apiVersion: v1
kind: Service
metadata: {name: NAME}
spec:
  type: NodePort
  ipFamilyPolicy: RequireDualStack
  selector: {app: APP}
  ports:
  - {name: tcp, port: 80, targetPort: 8080}
  - {name: udp, port: 80, targetPort: 8080, protocol: UDP}
  - {name: closed, port: 81, targetPort: 9999}
"""
_LOCAL = "  internalTrafficPolicy: Local\n  externalTrafficPolicy: Local\n"

WORLD = (
    """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: attacked}
spec:
  network: {families: [IPv4, IPv6]}
  nodes: {node-a: {}, node-b: {}, node-c: {}}
  pods:
    echo: {nodes: [node-b], labels: {app: echo}, ports: [8080, {port: 8080, protocol: UDP}, 8081]}
    other: {nodes: [node-b], ports: [8080, {port: 8080, protocol: UDP}]}
    client: {nodes: [node-a]}
    neighbour: {nodes: [node-a], ports: [8080]}
  hosts: {outside: {}}
  probes: []
"""
    + _SERVICE.replace("NAME", "echo").replace("APP", "echo")
    + _SERVICE.replace("NAME", "empty").replace("APP", "nothing")
    + _SERVICE.replace("NAME", "local").replace("APP", "echo")
    + _LOCAL
    + _SERVICE.replace("NAME", "twin").replace("APP", "echo")
)

DELIVERED: Mapping[str, object] = {"outcome": "delivered", "backends": ["echo"], "source": "preserved"}
BY_PROGRAM: Mapping[str, object] = {**DELIVERED, "source": NODES["node-a"]}
_PLAIN = {"embedded/userspace": ({"as": "connect"}, BY_PROGRAM)}
"""What a plain probe sends and must see, by engine. The process of mode userspace never shows the client."""


@dataclass(frozen=True)
class Alteration:
    """Commands of sh(1) in a machine of the lab: what they change, and how that is undone."""

    machine: str
    change: str
    undo: str


def nft(machine: str, hook: str, priority: int, rule: str, kind: str = "filter", family: str = "ip") -> Alteration:
    """A table of nftables with one rule."""
    chain = f"type {kind} hook {hook} priority {priority}; {rule};"
    return Alteration(
        machine, f"nft 'table {family} attack {{ chain x {{ {chain} }}; }}'", f"nft delete table {family} attack"
    )


def iptables(machine: str, table: str, chain: str, rule: str, where: str = "-I", *, ipv6: bool = False) -> Alteration:
    """A rule in a table of iptables, before all others of its chain or with ``-A`` behind them."""
    tool = f"{'ip6tables' if ipv6 else 'iptables'} -w -t {table}"
    return Alteration(machine, f"{tool} {where} {chain} {rule}", f"{tool} -D {chain} {rule}")


def rewritten(service: str) -> tuple[Alteration, ...]:
    """Rules before connection tracking and behind it that put another Service in the place of the dialled one."""
    there = f"type filter hook prerouting priority -350; ip daddr {VIP} counter ip daddr set {service};"
    back = f"type filter hook postrouting priority 350; ip saddr {service} counter ip saddr set {VIP};"
    table = f"table ip attack {{ chain there {{ {there} }}; chain back {{ {back} }}; }}"
    return (Alteration("node-a", f"nft '{table}'", "nft delete table ip attack"),)


def remembered(where: str, port: int) -> tuple[Alteration, ...]:
    """An entry of connection tracking that leads the client's UDP port there, where no rule does any more."""
    leading = nft("node-a", "prerouting", -150, f"ip daddr {VIP} udp dport 80 dnat to {where}", "nat")
    code = "import socket; sock = socket.socket(type=socket.SOCK_DGRAM); "
    code += f"sock.bind(('', {port})); sock.sendto(b'', ('{VIP}', 80))"
    return (
        Alteration("node-a", leading.change, "true"),
        Alteration("client", f'{sys.executable} -c "{code}"', "true"),
        Alteration("node-a", leading.undo, "true"),
    )


def route(machine: str, words: str) -> Alteration:
    """A route, as ip-route(8) writes it."""
    ip = "ip -6" if "::" in words else "ip"
    return Alteration(machine, f"{ip} route add {words}", f"{ip} route del {words}")


def program(machine: str, opens: str, serves: str) -> Alteration:
    """A program in Python: it opens its sockets, and then serves in the background."""
    away = "\nif pid := os.fork():\n open('/run/attack', 'w').write(str(pid)); os._exit(0)\nos.setsid()\n"
    code = f"import contextlib, os, socket, struct\n{opens}{away}{serves}"
    return Alteration(machine, f"{sys.executable} -c {shlex.quote(code)}", "kill $(cat /run/attack)")


@dataclass(frozen=True)
class Dialled:
    """A probe: who sends what to which port of which Service, as YAML writes it."""

    sender: str | Mapping[str, object] = "client"
    service: str = "echo"
    port: str = "tcp"
    send: Mapping[str, object] = field(default_factory=dict)
    to: Mapping[str, object] = field(default_factory=dict)

    def written(self, name: str, expect: Mapping[str, object]) -> dict[str, object]:
        """The probe in YAML's terms."""
        via = {"service": self.service, "via": "clusterIP", "port": self.port}
        protocol = {"protocol": "UDP"} if self.port == "udp" else {}
        return {
            "name": name,
            "from": self.sender,
            "to": dict(self.to) if {"pod", "address"} & self.to.keys() else {**via, **self.to},
            "send": {**protocol, **self.send},
            "expect": dict(expect),
        }


TCP, UDP = Dialled(), Dialled(port="udp")
CLOSED, OF_EMPTY, OF_LOCAL = Dialled(port="closed"), Dialled(service="empty"), Dialled(service="local")
IPV6: Mapping[str, object] = {"family": "IPv6"}
FROM_OUTSIDE = Dialled(sender="outside", to={"via": "nodePort", "node": "node-a"})


@dataclass(frozen=True)
class Attack:
    """An alteration of the lab, and what the lab must make of it.

    Attributes:
        name: what is altered.
        altered: the commands.
        judged: the verdict of the probe, ``pass``, ``fail`` or ``inconclusive``.
        right: why that is the right verdict.
        expect: what the probe's author expects.
        dialled: the probe.
        says: clauses of the verdicts' reasons.
        why: a clause of the sentence behind ``why:``.
        never: a clause that neither may hold.
    """

    name: str
    altered: tuple[Alteration, ...]
    judged: str
    right: str
    expect: Mapping[str, object] = field(default_factory=lambda: DELIVERED)
    dialled: Dialled = Dialled()
    says: tuple[str, ...] = ()
    why: str = ""
    never: str = "please report"


@dataclass(frozen=True)
class Told:
    """What the lab says of a probe."""

    overall: str
    reasons: str
    why: str
    verdict: ProbeVerdict


class AttackedLab:
    """A lab of ``WORLD`` on one engine."""

    def __init__(self, lab: OpenLab) -> None:
        self._lab = lab
        self._probes = 0

    def judged(self, attack: Attack) -> Told:
        """Alter the lab, send the probe, judge it, and undo the alteration."""
        try:
            for each in attack.altered:
                self._run(each.machine, each.change)
            return self.told(attack.dialled, attack.expect)
        finally:
            for each in reversed(attack.altered):
                self._run(each.machine, each.undo)

    def told(self, dialled: Dialled, expect: Mapping[str, object] = DELIVERED) -> Told:
        """Send a probe and judge it."""
        self._probes += 1
        written = dialled.written(f"probe {self._probes}", expect)
        probe = parse_with_probes(WORLD, "attacked.lab.yaml", [written], Position("attacks.py", 1, 1)).probes[0]
        self._lab.add(probe)
        verdict = self._lab.probe(probe)
        why = " ".join("\n".join(explain(verdict, 1000)).partition("why: ")[2].partition("\n\n")[0].split())
        reasons = "; ".join(f"{each.expectation}: {clause}" for each in verdict.verdicts for clause in each.reasons)
        return Told(str(verdict.overall), reasons, why, verdict)

    def _run(self, machine: str, script: str) -> None:
        done = self._lab.execute(machine, "sh", "-c", script)
        assert done.status == 0, f"{machine}: {script}\n{done.stdout}{done.stderr}"


@contextmanager
def attacked(engine: str, kernel: str = "", *, privileged: bool = False) -> Iterator[AttackedLab]:
    """A lab on that engine and kernel. It is whole again at the end: plain probes pass."""
    scenario = parse_with_probes(WORLD, "attacked.lab.yaml", [], Position("attacks.py", 1, 1))
    with shared_session(EngineChoice(engine, privileged=privileged)) as session:
        lab = AttackedLab(session.open(scenario, WORLD, kernel))
        yield lab
        send, expect = _PLAIN.get(engine, ({}, DELIVERED))
        for port in ("tcp", "udp"):
            told = lab.told(Dialled(port=port, send=send), expect)
            assert told.overall == "pass", f"an attack was not undone: {told}"


def check(told: Told, attack: Attack) -> None:
    """Assert that the lab says what the attack's row says."""
    said = f"{attack.name}\n{told.overall}: {told.reasons}\nwhy: {told.why}\n{attack.right}"
    assert told.overall == attack.judged, said
    for clause in attack.says:
        assert clause in told.reasons, said
    assert attack.why in told.why, said
    assert attack.never not in f"{told.reasons} {told.why}", said


def lab_of_module(engine: str, *, privileged: bool = False) -> Any:
    """The fixture ``lab``: one lab for all attacks of a module."""

    @pytest.fixture(scope="module", name="lab")
    def made() -> Iterator[AttackedLab]:
        with attacked(engine, privileged=privileged) as lab:
            yield lab

    return made


def kind_of(attack: Attack) -> tuple[object, ...]:
    """What two attacks of a module have in common that are judged alike for the same reason."""
    reason = attack.says[0].partition(":")[0] if attack.says else ""
    return attack.judged, attack.expect.get("outcome"), reason


def each_of(attacks: Sequence[Attack]) -> Any:
    """A test for each attack, in the module's lab; of those of a kind, every run has the first."""

    @pytest.mark.parametrize("attack", sentinels(attacks, kind_of, lambda attack: attack.name))
    def test(attack: Attack, lab: AttackedLab) -> None:
        check(lab.judged(attack), attack)

    return test
