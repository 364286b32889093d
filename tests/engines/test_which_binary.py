"""Which kube-proxy ran, as a run and a standing lab name a real one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxylab.binaries.binary import Binary

ROOT = Path(__file__).parents[2]
FILE = str(ROOT / "scenarios/clusterip/from-a-pod.lab.yaml")
ENGINE = ("--engine", "kube-proxy/nftables")


def typed(folder: Path, *words: str) -> str:
    """What a command prints, in a folder with standing labs of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab"), "XDG_RUNTIME_DIR": str(folder), "COLUMNS": "400"}
    command = [sys.executable, "-m", "proxylab", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.mark.thorough  # tests/plugin/test_binaries.py has the words
def test_a_run_names_it_in_one_line_and_in_its_document(folder: Path, kube_proxy: Binary) -> None:
    chosen = (*ENGINE, "--kube-proxy", str(kube_proxy.path))
    here = f"kube-proxy {kube_proxy.version}: the file {kube_proxy.path}; SHA-256 {kube_proxy.identity.digest[:12]}"
    *_, line, _ = typed(folder, "run", FILE, *chosen, "-q").splitlines()
    assert line == f"kube-proxy/nftables: {here}"
    document = json.loads(typed(folder, "run", FILE, *chosen, "-o", "json"))
    assert {each["binary"]["sha256"] for each in document["scenarios"]} == {kube_proxy.identity.digest}


@pytest.mark.thorough  # the words are those of a run, which the test above compares
def test_a_standing_lab_names_it(folder: Path, kube_proxy: Binary) -> None:
    chosen = (*ENGINE, "--kube-proxy", str(kube_proxy.path))
    words = f"kube-proxy {kube_proxy.version}: the file {kube_proxy.path}; SHA-256 {kube_proxy.identity.digest[:12]}"
    begun = typed(folder, "up", FILE, *chosen, "--name", "mine", "--ttl", "10m")
    assert words in begun.replace("\n  ", " ")
    try:
        typed(folder, "up", FILE, "--name", "embedded", "--ttl", "10m")
        assert typed(folder, "ps").replace("\n  ", " ").splitlines()[-1] == f"mine: {words}"
        labs = json.loads(typed(folder, "ps", "-o", "json"))["items"]
        found = {each["name"]: each["binary"] and each["binary"]["sha256"] for each in labs}
        assert found == {"mine": kube_proxy.identity.digest, "embedded": None}
    finally:
        typed(folder, "down", "mine")
        typed(folder, "down", "embedded")
