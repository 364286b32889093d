"""``proxylab gate`` on the real kube-proxy: a release passes, and a fault of its history does not."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kubernetes_checkout import NoSourcesError, make_checkout

from proxylab.binaries.binary import Binary
from proxylab.errors import ExitCode
from proxylab.features.conformance.conformance_table import ItemResult, read

ROOT = Path(__file__).parents[2]
SOURCE = "pkg/proxy/nftables/proxier.go"
RIGHT = '"dnat to", net.JoinHostPort(epInfo.IP(), strconv.Itoa(epInfo.Port())),'
ABORTS = (
    '"dnat", map[bool]string{true: "ip6", false: "ip"}[strings.Contains(epInfo.IP(), ":")], '
    '"addr . port to", epInfo.IP(), ".", strconv.Itoa(epInfo.Port()),'
)
"""Of one endpoint over IPv6 this makes nft abort (kubernetes#140951)."""


def typed(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of proxylab, in a folder of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab"), "COLUMNS": "400"}
    for name in ("ARTIFACTS", "PULL_BASE_SHA"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "proxylab", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


def test_a_release_passes_as_far_as_its_minutes_go(kube_proxy: Binary, tmp_path: Path) -> None:
    done = typed(tmp_path, "gate", str(kube_proxy.path), "--minutes", "0.1", "-j", "2")
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("the change passes: nothing turned red of what ran; ")
    assert f"gate: kube-proxy {kube_proxy.version}: the file" in done.stdout
    assert str(kube_proxy.path) in "".join(done.stdout.split())
    assert done.stdout.count("did not run within 0.1 minutes") == 2
    table = read((tmp_path / ".proxylab/gate/proxylab.json").read_text())
    for column in (0, 1):
        assert table.counts(column)[ItemResult.PASS] > 0


@pytest.mark.skipif(shutil.which("go") is None or shutil.which("git") is None, reason="needs git and Go")
@pytest.mark.thorough  # it builds a kube-proxy; the test above runs the same gate
@pytest.mark.timeout(900)
def test_a_fault_that_makes_nft_abort_keeps_a_change_out_by_its_message(kube_proxy: Binary, tmp_path: Path) -> None:
    try:
        make_checkout(tmp_path / "kubernetes", kube_proxy.version, "kube-proxy|component-base")
    except NoSourcesError as error:
        pytest.skip(str(error))
    source = tmp_path / "kubernetes" / SOURCE
    text = source.read_text()
    if text.count(RIGHT) != 1:
        pytest.skip(f"{kube_proxy.version} writes the rule of one endpoint otherwise")
    source.write_text(text.replace(RIGHT, ABORTS))
    done = typed(tmp_path, "gate", "kubernetes", "--minutes", "1", "-j", "2")
    assert done.returncode == ExitCode.FAILED, done.stdout + done.stderr
    assert "1 file since " in done.stdout
    assert "can alter mode nftables (the whole catalogue)" in done.stdout
    assert "could not load its rules: nft: " in done.stdout
    assert "Assertion" in done.stdout
    (of_iptables,) = (line for line in done.stdout.splitlines() if line.startswith("kube-proxy/iptables: "))
    assert of_iptables.split()[1] == of_iptables.split()[3], "mode iptables conforms"
    turns_red_within_a_minute(tmp_path, "kubernetes")


def turns_red_within_a_minute(folder: Path, checkout: str) -> None:
    """Run the scenarios of both families on the checkout's build, which is in the cache."""
    files = sorted((ROOT / "scenarios/families").glob("*.lab.yaml"))
    began = time.monotonic()
    words = ("--engine", "kube-proxy/nftables", "--kube-proxy", checkout, "--quiet", "--no-bundles", "-j", "2")
    done = typed(folder, "run", str(ROOT / "scenarios/families"), *words)
    assert time.monotonic() - began < 60
    assert done.returncode == ExitCode.FAILED
    for each in files:
        assert f"{each}: error: " in done.stdout, "each of them has a Service of IPv6 with one endpoint"
    assert done.stdout.count("kube-proxy could not load its rules: nft: ") >= len(files)
    assert "Assertion" in done.stdout
