"""A fifth mode needs its package and a line: nothing else names the modes one by one."""

import asyncio
from typing import Any

import pytest
from golden_words import Told
from no_rules.mode import MODE
from rule_cases import Addresses, case, echo, facts, here_and_there

from proxylab.addresses import Family
from proxylab.client.rendered_rules import rendered_rules
from proxylab.client.session import needed_capabilities
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.embedded.metrics import SyncMetrics
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.proxier import SyncFailedError
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.kubeproxy.configuration import configuration
from proxylab.engines.lacking import ignored_settings, lacking
from proxylab.engines.modes import MODES
from proxylab.engines.node_mode import node_mode
from proxylab.engines.protocol import EngineChoice
from proxylab.plan.assembly import assemble
from proxylab.scenario.load import parse_scenario

A = Addresses(Family.IPV4)
ENGINE = "embedded@v1.37/no-rules"
TEXT = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: another-mode}
spec:
  nodes: {node-a: {}}
  pods:
    echo: {nodes: [node-a], labels: {app: echo}, ports: [8080]}
    client: {nodes: [node-a]}
  probes:
  - name: it
    from: client
    to: {service: echo, via: clusterIP}
    expect: {outcome: delivered, backends: [echo], source: preserved}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
"""


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODES, MODE.word, MODE)  # type: ignore[arg-type]


def test_its_rules_are_printed(told: Told) -> None:
    assembly = assemble(parse_scenario(TEXT, "another-mode.lab.yaml"))
    (printed,) = rendered_rules(assembly.scenario, assembly.plan, assembly.timeline[0].objects, ENGINE)
    assert printed.text == told()


def test_what_it_lacks_skips_a_probe() -> None:
    scenario = parse_scenario(TEXT, "another-mode.lab.yaml")
    assert lacking(MODE.word, assemble(scenario), scenario.probes[0]) == "mode no-rules cannot show it"


def test_what_it_needs_of_the_machine_is_asked_for() -> None:
    assert needed_capabilities(EngineChoice(ENGINE), parse_scenario(TEXT, "another-mode.lab.yaml")) == (
        "dummy devices",
    )


def test_settings_that_it_does_not_read_are_named() -> None:
    masquerading = ProxyConfiguration(masquerade_all=True, localhost_node_ports=False)
    assert list(ignored_settings(MODE.word, masquerading)) == [
        "iptables.localhostNodePorts",
        "iptables.masqueradeAll",
    ]


def test_the_real_kube_proxy_would_be_told_of_it() -> None:
    text = configuration(MODE, "node-a", ProxyConfiguration(), cluster_cidrs=(), feature_gates={})
    assert '"mode": "no-rules"' in text


def test_its_engine_exports_metrics() -> None:
    metrics = SyncMetrics(MODE.word)
    metrics.failed(Family.IPV4)
    assert "kubeproxy_sync_proxy_rules_sync_failures_total" in metrics.text({}).decode()


def test_the_proxier_of_all_modes_syncs_it_in_full_in_part_and_after_a_refusal(told: Told) -> None:
    nothing: Any = None
    node = node_mode(MODE.word, nothing)
    proxier = node.proxiers((Family.IPV4,), ProxySettings(), ProxyConfiguration(), (1, 37))[Family.IPV4]
    (writer,) = node.writers.values()  # type: ignore[attr-defined]
    one, none = case(A, (echo(A), here_and_there(A))).cluster, ClusterView()

    def sync(cluster: ClusterView, *, full: bool = False) -> str:
        return asyncio.run(proxier.sync(cluster, facts(A), full=full)).what

    assert sync(none) == told()
    assert sync(none) == "IPv4: nothing to change"
    assert sync(one) == told()
    assert sync(one, full=True) == told()
    assert sync(none) == told(), "which a partial one cannot reach"
    assert asyncio.run(proxier.is_intact())
    writer.refuse = True
    with pytest.raises(SyncFailedError, match="IPv4: the kernel says no"):
        sync(one)
    assert not asyncio.run(proxier.is_intact())
    assert sync(one) == told(), "the proxier trusts no memory after a refusal"
    writer.refuse = writer.lost = True
    writer.is_base = lambda _loaded, _wanted: True
    assert sync(none) == told(), "another program has deleted rules"
    assert writer.writes == [(0, None), (1, 0), (1, None), (0, None), (1, 0), (1, None), (0, 1), (0, None)]
