"""``proxylab run --ray`` on a cluster: a node dies, the caller is interrupted, the head does not answer."""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sandboxed import ROOT

from proxylab.binaries.choose import Sources
from proxylab.errors import ExitCode
from proxylab.guest.kernels import known_kernels

# tests/unit/client/test_ray_workers.py shows the same without Ray, with the nodes' part in this process.
pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs Ray: pip install 'proxylab[ray]'"),
]

FILES = 6
FAILING = 3
SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {{name: file-{number}}}
spec:
  nodes: {{node-a: {{}}}}
  pods:
    echo: {{nodes: [node-a], labels: {{app: echo}}, ports: [8080]}}
    client: {{nodes: [node-a]}}
  manifests: [echo.yaml]
  steps:
  - name: time passes
    until: {{elapsed: 4s}}
    probes:
    - name: a pod reaches a Service
      from: client
      to: {{service: echo, via: clusterIP}}
      expect: {{outcome: delivered, source: {source}}}
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
"""


def scenarios(folder: Path) -> None:
    """Files that take long enough for a node to die meanwhile. Their Service is in a manifest; one of them fails."""
    folder.mkdir()
    (folder / "echo.yaml").write_text(SERVICE)
    for number in range(FILES):
        source = "192.0.2.1" if number == FAILING else "preserved"
        (folder / f"{number}.lab.yaml").write_text(SCENARIO.format(number=number, source=source))


def played(story: str, folder: Path, *arguments: str) -> Any:
    """What a story of ``ray_cluster.py`` saw, in network and pid namespaces of its own."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    alone = ("unshare", *user, "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc")
    support = (ROOT / "lab", ROOT / "tests/support", ROOT / "tests/kernel")
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as short:
        done = subprocess.run(
            [*alone, sys.executable, str(ROOT / "tests/kernel/ray_cluster.py"), story, str(folder), short, *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, support))},
            capture_output=True,
            text=True,
            timeout=550,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_a_run_on_a_cluster_survives_the_death_of_a_node_and_ends_on_an_interrupt(tmp_path: Path) -> None:
    scenarios(tmp_path / "several")
    found = played("die_and_interrupt", tmp_path)

    killed = found["killed"]
    assert killed["code"] == ExitCode.FAILED, killed["errors"]
    results = json.loads(killed["output"])["scenarios"]
    assert [each["file"] for each in results] == [f"several/{number}.lab.yaml" for number in range(FILES)]
    assert [each["judgement"] for each in results].count("pass") == FILES - 1
    assert "(two) died; another worker runs it" in killed["errors"]
    bundle = tmp_path / results[FAILING]["probes"][0]["bundle"]
    assert "192.0.2.1" in (bundle / "scenario.lab.yaml").read_text()
    assert (bundle / "explanation.txt").is_file()

    for case in ("interrupted", "interrupted without an answer"):
        interrupted = found[case]
        assert interrupted["code"] == 130, interrupted["errors"]
        assert interrupted["seconds"] < 20
        assert "Traceback" not in interrupted["errors"]


@pytest.mark.engine_kube_proxy
@pytest.mark.needs_kernel(built=None)
def test_a_node_runs_the_callers_kube_proxy_on_a_kernel_of_its_own_and_traces(tmp_path: Path) -> None:
    cached = Sources.of_user().obtained()
    kernel = next(known_kernels())
    if not cached:
        pytest.skip("needs a kube-proxy in the cache; 'proxylab engines --obtain' puts one there")
    scenarios(tmp_path / "several")
    chosen = ("--engine", "kube-proxy/iptables", "--kube-proxy", str(cached[-1].path), "--kernel", kernel.binary)
    found = played("run", tmp_path, "several/0.lab.yaml", *chosen, "--trace", "-v")
    assert found["code"] == ExitCode.OK, found["errors"]
    assert "KUBE-SEP-" in found["output"], "a rule of the trace"
    assert kernel.binary in found["output"]
    (sent,) = (tmp_path / "cache/proxylab").glob("**/sent/**/kube-proxy")
    assert sent.read_bytes() == cached[-1].path.read_bytes()
