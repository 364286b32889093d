"""What ``import`` says that objects promise, upstream's proxy keeps: on a cluster with zones, policies and ranges."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from growing_cluster import Cluster
from kubectl_clusters import cloud, kind
from sandboxed import ROOT

from proxylab.binaries.binary import Binary
from proxylab.features.import_.importing import import_cluster
from proxylab.features.import_.reading import read_kubectl_output

CASES = [(cloud, "kube-proxy/nftables"), (kind, "kube-proxy/iptables")]


@pytest.mark.parametrize(("make", "engine"), CASES, ids=["cloud-nftables", "kind-iptables"])
def test_every_promise_is_kept(make: Callable[[], Cluster], engine: str, kube_proxy: Binary, tmp_path: Path) -> None:
    file = tmp_path / "mine.lab.yaml"
    file.write_text(import_cluster(read_kubectl_output([("printout", make().json())]), "mine").text)
    command = ["run", "--no-bundles", "-o", "json", "--engine", engine, "--kube-proxy", str(kube_proxy.path), str(file)]
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", *command],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lab")},
    )
    assert done.stdout, done.stderr
    (case,) = json.loads(done.stdout)["scenarios"]
    assert case["fault"] is None
    assert [probe["name"] for probe in case["probes"] if probe["judgement"] != "pass"] == []
    assert len(case["probes"]) > 20
