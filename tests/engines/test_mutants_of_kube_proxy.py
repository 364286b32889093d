"""The lab's API server shows the real kube-proxy an altered cluster, and scenarios notice (``mutate --objects``)."""

import json
import subprocess
import sys

import pytest
from guests import IPSET, OWN
from sandboxed import ROOT

from proxylab.binaries.binary import Binary

pytestmark = pytest.mark.kube_proxy  # a judge that notices nothing is red on the embedded engine, too

SEVERAL_PORTS = "scenarios/clusterip/several-ports.lab.yaml"
MASQUERADE_ALL = "scenarios/masquerade/all.lab.yaml"
TWO_ADDRESSES = "scenarios/affinity/at-each-of-two-addresses.lab.yaml"
SLICE_DELETED = "scenarios/steps/an-endpoint-slice-is-deleted.lab.yaml"
ZONE = "scenarios/steps/node-changes-zone.lab.yaml"


def noticed(mode: str, file: str, field: str, change: str, kube_proxy: Binary, kernel: str = "host") -> str:
    """What the scenario that notices says of a mutation that kube-proxy is shown."""
    proxy = ("--engine", f"kube-proxy/{mode}", "--kube-proxy", str(kube_proxy.path), "--kernel", kernel)
    typed = subprocess.run(
        [sys.executable, "-m", "proxylab", "mutate", file, "--objects", "--field", field, *proxy, "-o", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert typed.returncode in (0, 1), typed.stderr
    (found,) = [each for each in json.loads(typed.stdout) if (each["class"], each["mutation"]) == (field, change)]
    assert found["noticed"] is not None, typed.stderr
    return str(found["noticed"]["judgement"])


@pytest.mark.parametrize(
    ("mode", "file", "field", "change"),
    [
        ("iptables", SEVERAL_PORTS, "EndpointSlice.ports[last].port", "one more"),
        ("nftables", ZONE, "later events of Node", "MODIFIED late"),
        # An object and an event, in each mode: the rows above are one of either.
        pytest.param("nftables", SEVERAL_PORTS, "Service.ports", "without the last", marks=pytest.mark.thorough),
        pytest.param(
            "iptables", MASQUERADE_ALL, "KubeProxyConfiguration.masqueradeAll", "turned off", marks=pytest.mark.thorough
        ),
        pytest.param("iptables", ZONE, "later events of Node", "MODIFIED withheld", marks=pytest.mark.thorough),
        *(
            pytest.param(mode, SLICE_DELETED, "later events of EndpointSlice", change, marks=pytest.mark.thorough)
            for mode in ("iptables", "nftables")
            for change in ("DELETED withheld", "DELETED late")
        ),
        *(
            pytest.param(mode, TWO_ADDRESSES, "Service.loadBalancerIngress", change, marks=pytest.mark.thorough)
            for mode in ("iptables", "nftables")
            for change in ("without the first", "without the last")
        ),
    ],
)
def test_a_scenario_notices_what_kube_proxy_is_wrongly_shown(
    mode: str, file: str, field: str, change: str, kube_proxy: Binary
) -> None:
    assert noticed(mode, file, field, change, kube_proxy) == "fail"


# tests/kernel/test_mutants_of_objects_in_a_guest.py has a row of the embedded engine in every run of its concern.
@OWN
@IPSET
@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("file", "field", "change"),
    [
        (SEVERAL_PORTS, "EndpointSlice.ports[last].port", "one more"),
        (SLICE_DELETED, "later events of EndpointSlice", "DELETED withheld"),
        (TWO_ADDRESSES, "Service.affinityTimeout of the last external IP", "left out"),
    ],
)
def test_a_scenario_notices_in_a_guest_what_kube_proxy_is_wrongly_shown(
    file: str, field: str, change: str, kube_proxy: Binary
) -> None:
    assert noticed("ipvs", file, field, change, kube_proxy, "uml") == "fail"
