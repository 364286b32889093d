"""One's own patch of kube-proxy: a work tree is built as it lies there, and what was changed is seen in a lab."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kubernetes_checkout import NoSourcesError, make_checkout

from lab.binaries.binary import Binary
from lab.errors import ExitCode

ROOT = Path(__file__).parents[2]
PATCHED = "pkg/proxy/iptables/proxier.go"
COMMENT = '"kubernetes service portals"'

needs = pytest.mark.skipif(
    any(shutil.which(each) is None for each in ("git", "go")), reason="needs git and Go, to build kube-proxy"
)


def built_and_traced(folder: Path, version: str, staged: str, cache: Path) -> str:
    """The way of a packet, through a kube-proxy whose rules have another comment than upstream's."""
    try:
        make_checkout(folder, version, staged)
    except NoSourcesError as error:
        pytest.skip(str(error))
    source = folder / PATCHED
    text = source.read_text()
    assert COMMENT in text
    source.write_text(text.replace(COMMENT, '"a patch that nobody has seen"'))
    scenario = str(ROOT / "scenarios/clusterip/from-a-pod.lab.yaml")
    choice = ["--engine", "kube-proxy/iptables", "--kube-proxy", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "lab", "trace", scenario, "client", "echo", *choice],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "XDG_CACHE_HOME": str(cache),
            "PYTHONPATH": str(ROOT),
            "GOCACHE": go_cache(),
            "COLUMNS": "200",
        },
    )
    assert done.returncode == ExitCode.OK, done.stderr
    assert f"building kube-proxy in {folder}" in done.stderr
    (built,) = (cache / "proxylab/kube-proxy").glob(f"{version}-dirty/*/kube-proxy")
    built.unlink()  # it is large, and pytest keeps the folders of three runs
    shutil.rmtree(folder)
    return done.stdout


def go_cache() -> str:
    """Where Go keeps what it compiles, which is not to change with XDG_CACHE_HOME."""
    return subprocess.run(["go", "env", "GOCACHE"], capture_output=True, text=True, check=True).stdout.strip()


@needs
@pytest.mark.timeout(600)
def test_a_patch_is_seen_in_the_rules(kube_proxy: Binary, tmp_path: Path) -> None:
    """Of the staging modules one is staged: Go has compiled the rest of them where it built kube-proxy before."""
    told = built_and_traced(tmp_path / "kubernetes", kube_proxy.version, "kube-proxy", tmp_path / "cache")
    assert "a patch that nobody has seen" in told
    assert "kubernetes service portals" not in told


@needs
@pytest.mark.budget
@pytest.mark.timeout(1800)
def test_a_whole_clone_is_built(kube_proxy: Binary, tmp_path: Path) -> None:
    """With all staging modules where a clone has them, which are compiled anew: minutes, the first time."""
    told = built_and_traced(tmp_path / "kubernetes", kube_proxy.version, ".*", tmp_path / "cache")
    assert "a patch that nobody has seen" in told
