"""Which engine runs in each node, at the beginning and after each step, and which are refused."""

from pathlib import Path

import pytest

from proxylab.binaries.cache import Cache
from proxylab.binaries.choose import Sources
from proxylab.binary_identity import BinaryIdentity
from proxylab.client.node_engines import engines_by_step
from proxylab.engines.engine_names import EngineName
from proxylab.engines.protocol import EngineChoice, Upstream
from proxylab.errors import CapabilityError, EngineError
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario

TEXT = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: engines}
spec:
  nodes: {node-a: {}, node-b: {}}
  ENGINES
  steps:
  - {name: one, change: {engines: ONE}}
  - {name: two, change: {engines: TWO}}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
iptables: {masqueradeAll: true, syncPeriod: 20s}
"""


def scenario(engines: str = "", one: str = "restart", two: str = "restart") -> Scenario:
    text = TEXT.replace("ENGINES", engines and f"engines: {engines}").replace("ONE", one).replace("TWO", two)
    return parse_scenario(text, "engines.lab.yaml")


def binary(version: str, **other: object) -> Upstream:
    return Upstream(f"/{version}", BinaryIdentity(version=version, origin="a test", digest=""), **other)


def find(name: EngineName) -> Upstream:
    return binary(f"{name.version or 'v1.37'}.9")


def names(chosen: EngineChoice, found: Scenario, node: str = "node-a") -> list[str]:
    return [engines[node].name for engines in engines_by_step(chosen, found, find)]


EMBEDDED = EngineChoice("embedded/iptables")
UPSTREAM = EngineChoice("kube-proxy/iptables", upstream=binary("v1.37.2", flags=("--v=4",), where="./kube-proxy"))


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (EMBEDDED, ["embedded@v1.34/iptables", "embedded/nftables", "embedded/iptables"]),
        (UPSTREAM, ["kube-proxy@v1.34/iptables", "kube-proxy@v1.37/nftables", "kube-proxy@v1.37/iptables"]),
    ],
)
def test_a_version_is_of_the_proxy_that_runs_and_a_mode_of_its_version(
    chosen: EngineChoice, expected: list[str]
) -> None:
    found = scenario("{node-a: v1.34/iptables}", "{node-a: v1.37/nftables}", "{node-a: iptables}")
    assert names(chosen, found) == expected
    assert names(chosen, found, "node-b") == [chosen.name] * 3


def test_nodes_keep_what_the_user_says_of_every_kube_proxy() -> None:
    begun, changed, _ = engines_by_step(
        UPSTREAM, scenario("{node-a: v1.34/iptables}", "{node-a: v1.37/nftables}"), find
    )
    older, newer = begun["node-a"].upstream, changed["node-a"].upstream
    assert older == binary("v1.34.9", flags=("--v=4",))
    assert newer is not None
    assert (newer.binary, newer.flags) == ("/v1.37.9", ("--v=4",))
    assert begun["node-b"].upstream == UPSTREAM.upstream


def test_a_node_keeps_the_users_own_binary_where_it_is_of_the_version() -> None:
    (begun, *_) = engines_by_step(UPSTREAM, scenario("{node-a: v1.37/nftables}"), find)
    assert begun["node-a"].upstream == UPSTREAM.upstream


def test_a_proxy_without_a_version_is_the_newest() -> None:
    chosen = EngineChoice("kube-proxy@v1.34/iptables", upstream=binary("v1.34.2"))
    (begun, *_) = engines_by_step(chosen, scenario("{node-a: kube-proxy/nftables}"), find)
    assert begun["node-a"].name == "kube-proxy/nftables"
    assert begun["node-a"].version == (1, 37, 9)


def test_a_real_kube_proxy_runs_beside_embedded_engines() -> None:
    found = scenario("{node-a: kube-proxy@v1.37/nftables}", "{node-a: embedded/iptables}")
    assert names(EMBEDDED, found) == ["kube-proxy@v1.37/nftables", "embedded/iptables", "embedded/iptables"]


def test_patches_of_a_configuration_add_up() -> None:
    found = scenario(
        "{node-a: {configuration: {iptables: {masqueradeAll: false}}}}",
        "{node-a: {configuration: {iptables: {syncPeriod: 5s}}}, node-b: restart}",
        "{node-b: {configuration: {iptables: {masqueradeAll: null}}}}",
    )
    said = [
        [(each[node].configuration.masquerade_all, each[node].configuration.sync_period) for node in each]
        for each in engines_by_step(EMBEDDED, found, find)
    ]
    assert said == [
        [(False, 20.0), (True, 20.0)],
        [(False, 5.0), (True, 20.0)],
        [(False, 5.0), (False, 20.0)],
    ]


def test_no_kube_proxy_runs_in_a_mode_that_its_version_lacks() -> None:
    with pytest.raises(EngineError, match=r"node-a: cannot begin in mode nftables\n.*has mode nftables since 1\.29"):
        engines_by_step(UPSTREAM, scenario("{node-a: v1.28/nftables}"), find)
    with pytest.raises(EngineError, match=r"cannot make step 'two', which changes it to mode nftables"):
        engines_by_step(UPSTREAM, scenario(two="{node-a: v1.28/nftables}"), find)


def test_an_embedded_engine_stands_for_few_versions() -> None:
    with pytest.raises(CapabilityError, match=r"behaves like v1\.30 in mode iptables"):
        engines_by_step(EMBEDDED, scenario("{node-a: v1.30/iptables}"), find)


def test_a_missing_kube_proxy_is_named_with_the_command_that_obtains_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxylab.client.node_engines.Sources.of_user", lambda: Sources(Cache(Path("/nowhere"))))
    with pytest.raises(CapabilityError, match=r"kube-proxy@v1\.34, .*\n?.*`proxylab engines --obtain v1\.34`, once"):
        engines_by_step(UPSTREAM, scenario("{node-a: v1.34/iptables}"))
