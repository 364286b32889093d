"""What a change of kubernetes can alter, by its files."""

from pathlib import Path

import pytest

from proxylab.features.gate.touched import AREAS, BOTH, touched

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize(
    ("files", "modes"),
    [
        (["pkg/proxy/nftables/proxier.go"], {"nftables": frozenset[str]()}),
        (["pkg/proxy/iptables/proxier.go", "pkg/util/iptables/iptables.go"], {"iptables": frozenset[str]()}),
        (["vendor/sigs.k8s.io/knftables/nftables.go"], {"nftables": frozenset[str]()}),
        (["vendor/sigs.k8s.io/iptables-wrappers/pkg/iptables/iptables.go"], {"iptables": frozenset[str]()}),
        (
            ["pkg/proxy/nodemanager/nodemanager.go"],  # pkg/proxy/node.go before 1.38
            dict.fromkeys(BOTH, frozenset({"nodeport", "steps", "topology"})),
        ),
        (["pkg/proxy/ipvs/proxier.go"], {"ipvs": frozenset[str]()}),
        (
            ["pkg/proxy/healthcheck/service_health.go"],
            dict.fromkeys(BOTH, frozenset({"health", "loadbalancer", "steps"})),
        ),
        (["pkg/proxy/types.go"], dict.fromkeys(BOTH, frozenset[str]())),
        (["pkg/features/kube_features.go"], dict.fromkeys(BOTH, frozenset[str]())),  # a gate becomes a default
        (
            ["staging/src/k8s.io/client-go/tools/cache/shared_informer.go"],
            dict.fromkeys(BOTH, frozenset({"steps"})),
        ),
        (["pkg/proxy/winkernel/proxier.go", "pkg/kubelet/kubelet.go", "README.md"], {}),
        (
            ["pkg/proxy/nftables/proxier_test.go", "pkg/proxy/nftables/README.md", "pkg/util/iptables/testing/fake.go"],
            {},
        ),
        ([], {}),
    ],
)
def test_folders_say_modes_and_themes(files: list[str], modes: dict[str, frozenset[str]]) -> None:
    assert touched(files).themes == modes


def test_two_files_of_a_mode_concern_the_themes_of_both_and_a_whole_mode_stays_whole() -> None:
    found = touched(["pkg/proxy/conntrack/cleanup.go", "pkg/proxy/topology.go", "pkg/proxy/nftables/proxier.go"])
    assert found.concerns("iptables", "conntrack")
    assert found.concerns("iptables", "topology")
    assert not found.concerns("iptables", "affinity")
    assert found.concerns("nftables", "affinity")
    assert not found.concerns("ipvs", "conntrack")
    assert touched(["pkg/proxy/nftables/proxier.go", "pkg/proxy/topology.go"]).concerns("nftables", "affinity")


def test_each_theme_of_the_table_is_one_of_the_catalogue() -> None:
    themes = {each.name for each in (ROOT / "scenarios").iterdir() if each.is_dir()}
    assert {theme for area in AREAS for theme in area.themes} - themes == set()
