"""kube-proxies that run on from one scenario to the next, where those have one wire and configure them alike."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lab.binaries.binary import Binary
from lab.engines.protocol import EngineChoice, Upstream
from lab.open_lab import OpenLab
from lab.scenario.load import parse_scenario
from lab.session import Session
from lab.verdict.model import Judgement

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: NAME}
spec:
  nodes:
    node-a: {labels: {topology.kubernetes.io/zone: ZONE}}
    node-b: {labels: {topology.kubernetes.io/zone: zone-b}}
  pods:
    near: {nodes: [node-a], labels: {app: echo}, ports: [8080, {port: 5353, protocol: UDP}]}
    far: {nodes: [node-b], labels: {app: echo}, ports: [8080, {port: 5353, protocol: UDP}]}
    client: {nodes: [node-a]}
  probes: [PROBE]
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {type: NodePort, selector: {app: echo}, SPEC}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
CONFIGURATION
"""

PORT = "ports: [{port: 80, targetPort: 8080, nodePort: 30080}]"
STICKY = (
    "{name: one client has one backend, from: client, to: {service: echo, via: clusterIP}, "
    "send: {as: packet, flows: 100}, "
    "expect: {outcome: delivered, source: preserved, spread: sticky, backends: [near, far]}}"
)
EVEN = (
    "{name: every backend has its share, from: client, to: {service: echo, via: clusterIP}, "
    "send: {as: packet, flows: 1000}, "
    "expect: {outcome: delivered, source: preserved, spread: even, backends: [near, far]}}"
)
DATAGRAM = (
    "{name: a datagram is answered, from: {name: client, port: 12345}, to: {service: echo, via: clusterIP}, "
    "expect: {outcome: delivered, source: preserved}}"
)
IN_ZONE = (
    "{name: those of the zone answer, from: client, to: {service: echo, via: clusterIP}, send: {flows: 20}, "
    "expect: {outcome: delivered, source: preserved, backends: [WHO]}}"
)


def text(
    name: str, probe: str, spec: str = PORT, *, zone: str = "zone-a", configuration: str = "iptables: {syncPeriod: 30s}"
) -> str:
    words = {"NAME": name, "ZONE": zone, "PROBE": probe, "SPEC": spec, "CONFIGURATION": configuration}
    made = SCENARIO
    for word, value in words.items():
        made = made.replace(word, value)
    return made


AFFINITY = f"sessionAffinity: ClientIP, {PORT}"
UDP = "ports: [{port: 53, targetPort: 5353, protocol: UDP}]"
BY_ZONE = f"trafficDistribution: PreferClose, {PORT}"


@pytest.fixture
def session(request: pytest.FixtureRequest, kube_proxy: Binary) -> Iterator[Session]:
    upstream = Upstream(str(kube_proxy.path), kube_proxy.version, flags=(mark(),))
    with Session(EngineChoice(f"kube-proxy/{getattr(request, 'param', 'iptables')}", upstream=upstream)) as opened:
        yield opened


def mark() -> str:
    """A flag that means nothing, by which the processes of this test are known."""
    return f"--vmodule=test-{os.getpid()}=1"


def held(session: Session, written: str) -> tuple[bool, int]:
    """Whether the lab was built on the one before it, and how often its proxies have started; its probe must hold."""
    scenario = parse_scenario(written, "test.lab.yaml")
    with closing(session.open(scenario, written)) as lab:
        (verdict,) = [lab.probe(probe) for probe in scenario.probes]
        assert verdict.overall is Judgement.PASS, [str(each) for each in verdict.verdicts]
        return lab.built.reused, starts(lab)


def starts(lab: OpenLab) -> int:
    return sum("Version info" in line for node in lab._recall().nodes for line in node.log)


@pytest.mark.parametrize("session", ["iptables", "nftables"], indirect=True)
def test_objects_change_under_proxies_that_run_on(session: Session) -> None:
    found = [
        held(session, text("sticky", STICKY, AFFINITY)),
        held(session, text("even", EVEN)),
        held(session, text("sticky-again", STICKY, AFFINITY)),
        held(session, text("datagram", DATAGRAM, UDP)),
        held(session, text("datagram-again", DATAGRAM, UDP)),
        held(session, text("near", IN_ZONE.replace("WHO", "near"), BY_ZONE)),
        # A proxy that still took its node for one of zone-a would find nobody there, and send to all.
        held(session, text("near-elsewhere", IN_ZONE.replace("WHO", "near"), BY_ZONE, zone="zone-c")),
    ]
    assert found[0] == (False, 2)
    assert found[1:] == [(True, 2)] * 6


def test_another_configuration_needs_other_proxies(session: Session) -> None:
    assert held(session, text("one", EVEN)) == (False, 2)
    other = "iptables: {masqueradeAll: true}\nnftables: {masqueradeAll: true}"
    scenario = parse_scenario(text("two", EVEN, configuration=other), "test.lab.yaml")
    with closing(session.open(scenario)) as lab:
        assert not lab.built.reused


def test_what_somebody_did_in_a_lab_is_not_built_upon(session: Session) -> None:
    scenario = parse_scenario(text("one", EVEN), "test.lab.yaml")
    with closing(session.open(scenario)) as lab:
        lab.execute("node-a", "true")
    assert held(session, text("two", EVEN)) == (False, 2)


def test_proxies_that_have_died_are_no_fault_of_the_next_scenario(session: Session) -> None:
    assert held(session, text("one", EVEN)) == (False, 2)
    mine = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit() and is_mine(each)]
    assert len(mine) == 2
    os.kill(mine[0], signal.SIGKILL)
    assert held(session, text("two", EVEN)) == (False, 2)


def is_mine(process: Path) -> bool:
    try:
        return mark().encode() in (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
