"""An audit of a large cluster: a minute for 100 Services on three nodes, and a question costs no more with 300.

The floor of a certificate is the time of a probe in a lab of one Service: an engine that looks at each Service for each
packet would leave it behind.
"""

import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

import pytest
from fake_lab import verdict_on
from msgspec.structs import replace

from proxylab.client import open_lab
from proxylab.client.open_lab import OpenLab
from proxylab.client.session import Session
from proxylab.client.together import NumberedProbe, batches
from proxylab.engines.protocol import EngineChoice
from proxylab.features.audit.findings import Audit
from proxylab.features.audit.manifests import scenario_of_manifests
from proxylab.features.audit.runs import audit
from proxylab.features.audit.senders import with_senders
from proxylab.features.migrate.open_connections import ConnectionFate, connections_of
from proxylab.features.migrate.runs import switch
from proxylab.scenario.cases import cases
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.verdict.model import ProbeVerdict

MOST_SECONDS_OF_100 = 60.0
MOST_SECONDS_OF_300 = 600.0
MOST_SECONDS_OF_A_SWITCH = 120.0
MOST_TIMES_THE_FLOOR = 4.0
OF_SENDING_ALONE = 0.85
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web-NUMBER}
spec: {type: TYPE, selector: {app: web-APP}, ports: [{port: 80, targetPort: 8080}]}
---
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web-NUMBER}
spec:
  replicas: 3
  selector: {matchLabels: {app: web-NUMBER}}
  template:
    metadata: {labels: {app: web-NUMBER}}
    spec: {containers: [{name: web, image: web, ports: [{containerPort: 8080}]}]}
---
"""
DEPLOYMENTS = 5


def audited(services: int, engine: str = "embedded/iptables") -> Audit:
    """The audit of that many Services."""
    with Session(EngineChoice(engine)) as session:
        return audited_in(session, many(services, engine))


def audited_in(session: Session, scenario: Scenario) -> Audit:
    with closing(session.open(scenario)) as lab:
        assert len(lab.scenario.nodes) == 3
        return audit(lab, "proxylab audit many.yaml", lambda done, of: None)


def many(services: int, engine: str) -> Scenario:
    """A cluster with that many Services, and the senders of an audit; every third one has a node port."""
    text = "".join(
        SERVICE.replace("NUMBER", str(each))
        .replace("APP", str(each % DEPLOYMENTS))
        .replace("TYPE", "ClusterIP" if each % 3 else "NodePort")
        for each in range(services)
    )
    text += "".join(DEPLOYMENT.replace("NUMBER", str(each)) for each in range(min(DEPLOYMENTS, services)))
    (case,) = cases(scenario_of_manifests(text, "many.yaml"), engine.rpartition("/")[2], (1, 37))
    return with_senders(replace(case, probes=(), steps=(), streams=()))


@pytest.mark.budget
@pytest.mark.timeout(600)
def test_an_audit_of_100_services_on_three_nodes_takes_a_minute() -> None:
    began = time.monotonic()
    found = audited(100)
    seconds = time.monotonic() - began
    print(f"{len(found.answers)} questions about 100 Services: {seconds:.1f} s")  # noqa: T201
    assert len(found.answers) > 1_000
    assert seconds < MOST_SECONDS_OF_100


@pytest.mark.budget
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("engine", ["embedded/iptables", "embedded/nftables"])
def test_each_half_of_a_certificate_for_300_services_takes_ten_minutes(engine: str) -> None:
    floor, found = audited(1, engine), audited(300, engine)
    of_one, of_many = (each.seconds / len(each.answers) for each in (floor, found))
    what = f"{engine}: {len(found.answers)} questions about 300 Services in {found.seconds:.1f} s"
    print(f"{what}; a question takes {1000 * of_many:.1f} ms, and {1000 * of_one:.1f} ms of 1 Service")  # noqa: T201
    assert found.seconds < MOST_SECONDS_OF_300
    assert of_many < of_one * MOST_TIMES_THE_FLOOR


def as_promised(_lab: OpenLab, probes: Sequence[Probe]) -> Iterator[tuple[int, ProbeVerdict]]:
    return enumerate(map(verdict_on, probes))


@pytest.mark.budget
@pytest.mark.timeout(600)
def test_the_switch_of_300_services_under_open_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them survive the change from mode iptables to mode nftables. The audit before it sends nothing here."""
    engine = "embedded/iptables"
    with Session(EngineChoice(engine)) as session:
        scenario = many(300, engine)
        with monkeypatch.context() as patch:
            patch.setattr(OpenLab, "judged_together", as_promised)
            found = audited_in(session, scenario)
        began, used = time.monotonic(), processor_seconds()
        switched = switch(session, scenario, found, "nftables")
    seconds = time.monotonic() - began
    fates = {fate: len(switched.of(fate)) for fate in ConnectionFate}
    opened, possible = len(switched.connections), len(connections_of(found.answers))
    took = f"{seconds:.1f} s, {processor_seconds() - used:.1f} s of processors"
    print(f"{opened} of {possible} connections open during the switch: {took}: {fates}")  # noqa: T201
    assert switched.untried == ""
    assert fates[ConnectionFate.SURVIVES] == opened
    assert seconds < MOST_SECONDS_OF_A_SWITCH


def processor_seconds() -> float:
    """What this process and its ended children have used."""
    used = (resource.getrusage(each) for each in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def alone(asked: Iterable[NumberedProbe], *, counts_divide: bool) -> Iterator[list[NumberedProbe]]:
    return batches(asked, counts_divide=False)


@pytest.mark.budget
@pytest.mark.timeout(600)
def test_questions_that_are_sent_together_take_less_processor_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both in one run, since the machine may be busy."""
    taken = []
    audited(1)  # compiles what is imported
    for together in (True, False):
        if not together:
            monkeypatch.setattr(open_lab, "batches", alone)
        before = processor_seconds()
        found = audited(60)
        taken.append(processor_seconds() - before)
        print(f"together: {together}: {taken[-1]:.1f} s of processors for {len(found.answers)} questions")  # noqa: T201
    assert taken[0] < taken[1] * OF_SENDING_ALONE
