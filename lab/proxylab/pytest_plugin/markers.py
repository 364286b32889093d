"""Markers for ``pytest -m``: engine, mode, IP families, needed capabilities, and the author's tags.

Titles and matrix cases are in the id, for ``-k``. A Python test that uses a lab has the markers of its engine only: it
may build labs of any scenario.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from proxylab.addresses import Family, Protocol
from proxylab.engines.engine_names import mode_of
from proxylab.scenario.dns import NameServer
from proxylab.scenario.model import Scenario

MARKERS: Final[Mapping[str, str]] = {
    "lab(scenario, case='')": "the scenario of the fixture lab: a file beside the test, or text",
    "engine_embedded": "a probe or a Python test on proxylab's own engine",
    "engine_kube_proxy": "a probe or a Python test on upstream's kube-proxy",
    "mode_iptables": "a probe or a Python test on a proxy in mode iptables",
    "mode_nftables": "a probe or a Python test on a proxy in mode nftables",
    "mode_userspace": "a probe or a Python test on a proxy in mode userspace",
    "mode_ipvs": "a probe or a Python test on a proxy in mode ipvs",
    "ipv4": "a probe in a lab that has IPv4",
    "ipv6": "a probe in a lab that has IPv6",
    "dual_stack": "a probe in a lab that has both families",
    "needs_sctp": "a probe in a lab that needs the kernel's SCTP",
    "needs_vxlan": "a probe in a lab that needs the kernel's VXLAN",
    "needs_coredns": "a probe in a lab whose name server is a real CoreDNS",
}


def register(config: pytest.Config) -> None:
    """Register the markers, so that ``--strict-markers`` accepts them and ``--markers`` lists them."""
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def markers_of(config: pytest.Config, scenario: Scenario, engine: str) -> tuple[str, ...]:
    """The markers of every probe of a scenario; registers the author's tags on first use."""
    known = {line.partition(":")[0].strip() for line in config.getini("markers")}
    for tag in scenario.tags:
        if tag not in known:
            config.addinivalue_line("markers", f"{tag}: a tag of scenarios")
    return (*markers_of_engine(engine), *_of_content(scenario), *scenario.tags)


def markers_of_engine(engine: str) -> tuple[str, str]:
    """The markers of whatever runs on an engine: its name, without a version, and its mode."""
    return "engine_" + engine.partition("/")[0].partition("@")[0].replace("-", "_"), f"mode_{mode_of(engine)}"


def _of_content(scenario: Scenario) -> Iterator[str]:
    families = scenario.network.families
    yield from (str(family).lower() for family in families)
    if set(families) == set(Family):
        yield "dual_stack"
    if any(port.protocol is Protocol.SCTP for pods in scenario.pods for port in pods.ports):
        yield "needs_sctp"
    if scenario.network.inter_node == "vxlan":
        yield "needs_vxlan"
    if scenario.name_server.server is NameServer.COREDNS:
        yield "needs_coredns"
