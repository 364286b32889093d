"""What ``import`` says that objects promise, upstream's proxy keeps: on a cluster with zones, policies and ranges."""

from collections.abc import Callable
from pathlib import Path

import pytest
from growing_cluster import Cluster
from judged_runs import judged_cases
from kubectl_clusters import cloud, kind

from proxylab.binaries.binary import Binary
from proxylab.features.import_.importing import import_cluster
from proxylab.features.import_.reading import read_kubectl_output

CASES = [
    pytest.param(cloud, "kube-proxy/nftables", id="cloud-nftables"),
    pytest.param(kind, "kube-proxy/iptables", id="kind-iptables", marks=pytest.mark.thorough),  # a smaller cluster
]


@pytest.mark.parametrize(("make", "engine"), CASES)
def test_every_promise_is_kept(make: Callable[[], Cluster], engine: str, kube_proxy: Binary, tmp_path: Path) -> None:
    file = tmp_path / "mine.lab.yaml"
    file.write_text(import_cluster(read_kubectl_output([("printout", make().json())]), "mine").text)
    (case,) = judged_cases(file, engine, kube_proxy)
    assert [probe["name"] for probe in case["probes"] if probe["judgement"] != "pass"] == []
    assert len(case["probes"]) > 20
