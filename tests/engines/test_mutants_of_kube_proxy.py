"""The lab's API server shows the real kube-proxy an altered cluster, and scenarios notice (``mutate --objects``)."""

import json
import subprocess
import sys

import pytest
from sandboxed import ROOT

from proxylab.binaries.binary import Binary

SEVERAL_PORTS = "scenarios/clusterip/several-ports.lab.yaml"
MASQUERADE_ALL = "scenarios/masquerade/all.lab.yaml"
ZONE = "scenarios/steps/node-changes-zone.lab.yaml"


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
    ],
)
def test_a_scenario_notices_what_kube_proxy_is_wrongly_shown(
    mode: str, file: str, field: str, change: str, kube_proxy: Binary
) -> None:
    proxy = ("--engine", f"kube-proxy/{mode}", "--kube-proxy", str(kube_proxy.path))
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
    assert found["noticed"]["judgement"] == "fail"
