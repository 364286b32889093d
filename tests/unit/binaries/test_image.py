"""Container images without an engine. With one: ``tests/engines/test_image.py``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxylab.errors import ExitCode

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("host", ["unix:///no/such/socket", "tcp://127.0.0.1:9", "nonsense://"])
def test_an_engine_that_does_not_answer_is_told(host: str, tmp_path: Path) -> None:
    """In a process of its own: the SDK leaves the socket open by which it has asked in vain."""
    asked = ["--engine", "kube-proxy/iptables", "--kube-proxy", "image:registry.k8s.io/kube-proxy:v1.36.3"]
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", "run", *asked, str(ROOT / "scenarios/clusterip/from-a-pod.lab.yaml")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "DOCKER_HOST": host, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "lab")},
    )
    assert done.returncode == ExitCode.CAPABILITY
    assert "a Docker engine that answers" in done.stderr
    assert "set DOCKER_HOST" in done.stderr
    assert "Traceback" not in done.stderr
