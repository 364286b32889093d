"""Imported clusters run, and every probe that the import wrote passes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from growing_cluster import Cluster
from kubectl_clusters import cloud, k3s, kind, vpc
from sandboxed import ROOT


def proxylab(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "proxylab", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lab"), "NO_COLOR": "1"},
    )


# tests/engines/test_imported_promises.py runs the clusters of kind and of a cloud on the real kube-proxy.
@pytest.mark.parametrize(
    ("make", "as_yaml"),
    [
        pytest.param(kind, True, id="kind", marks=pytest.mark.thorough),
        pytest.param(k3s, False, id="k3s"),
        pytest.param(cloud, False, id="cloud", marks=pytest.mark.thorough),
        pytest.param(vpc, False, id="vpc"),
    ],
)
def test_a_cluster_at_the_desk(make: Callable[[], Cluster], as_yaml: bool, tmp_path: Path) -> None:
    cluster, file = make(), tmp_path / "mine.lab.yaml"
    written = proxylab("import", "-o", str(file), text=cluster.yaml() if as_yaml else cluster.json())
    assert written.returncode == 0, written.stderr
    assert written.stdout == ""
    assert "left out:" in written.stderr

    checked = proxylab("check", str(file))
    assert checked.returncode == 0, checked.stdout + checked.stderr

    ran = proxylab("run", str(file), "-o", "json")
    (scenario,) = json.loads(ran.stdout)["scenarios"]
    judged = {each["name"]: each["judgement"] for each in scenario["probes"]}
    assert ran.returncode == 0, ran.stderr
    assert set(judged.values()) == {"pass"}
    for service in cluster.services:
        head, spec = service["metadata"], service["spec"]
        probed = [name for name in judged if name.startswith(f"{head['namespace']} {head['name']}")]
        assert probed or spec["type"] == "ExternalName"


def test_a_probe_fails_where_the_cluster_does_not_keep_its_promise(tmp_path: Path) -> None:
    """Changed rules of a Service turn imported probes red, which name no expectation: they do not accept any answer."""
    file = tmp_path / "mine.lab.yaml"
    assert proxylab("import", "-o", str(file), text=k3s().json()).returncode == 0
    *_, count = proxylab("mutate", str(file), "--rule", "KUBE-SVC").stdout.splitlines()
    found = re.search(r"(\d+) noticed", count)
    assert found is not None, count
    assert int(found[1]) >= 5, count
