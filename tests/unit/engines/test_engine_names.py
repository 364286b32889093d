"""What a user may ask for is what there is."""

import pytest
from kube_proxies import identity

from proxylab.engines.engine_names import ENGINES, version_of, where_of
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import EngineChoice, Upstream


def test_every_name_says_what_it_stands_for() -> None:
    about = [name for mode in MODES.values() for name in mode.about]
    assert sorted(about) == sorted(ENGINES)


def test_the_first_is_the_default() -> None:
    assert EngineChoice().name == ENGINES[0]


@pytest.mark.parametrize(
    ("engine", "version"),
    [
        ("embedded/iptables", (1, 38)),
        ("embedded@v1.23/iptables", (1, 23)),
        ("embedded@v1.34/iptables", (1, 34)),
        ("kube-proxy@v1.29.3/nftables", (1, 29, 3)),
        ("kube-proxy/nftables", (1, 38)),
    ],
)
def test_every_engine_behaves_like_some_version(engine: str, version: tuple[int, ...]) -> None:
    assert version_of(engine) == version


@pytest.mark.parametrize(
    ("engine", "found", "version"),
    [
        ("kube-proxy/iptables", "v1.35.4", (1, 35, 4)),
        ("kube-proxy/iptables", "v1.38.0-alpha.1", (1, 38)),
        ("kube-proxy@v1.34/iptables", "v1.34.4", (1, 34, 4)),
        ("kube-proxy/iptables", "v1.37+0123456789abcd-dirty", (1, 37)),
        ("embedded@v1.34/iptables", "", (1, 34)),
    ],
)
def test_without_a_version_in_its_name_it_is_the_one_that_was_found(
    engine: str, found: str, version: tuple[int, ...]
) -> None:
    upstream = Upstream("/kube-proxy", identity(found)) if found else None
    assert EngineChoice(engine, upstream=upstream).version == version


@pytest.mark.parametrize(
    ("engines", "found"),
    [
        (("kube-proxy/nftables",), ("mine",)),
        (("kube-proxy@v1.34/nftables",), ("mine",)),
        (("kube-proxy@v1.34/nftables", "kube-proxy/nftables"), ("", "mine")),
        (("kube-proxy@v1.34/nftables", "kube-proxy@v1.34.2/iptables"), ("mine", "mine")),
        (("embedded@v1.34/iptables", "kube-proxy/iptables"), ("", "mine")),
    ],
)
def test_a_build_of_ones_own_is_for_engines_that_leave_the_version_open(
    engines: tuple[str, ...], found: tuple[str, ...]
) -> None:
    assert tuple(where_of(each, engines, "mine") for each in engines) == found
