"""What a run loads and asks of the machine: no more than its probes need."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandboxed import ROOT

from proxylab.traffic.connect import has_sctp

# In every process of the run, the lab process included: a finder notes each process that begins to import scapy.
WATCH = """
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "scapy":
            with open(os.environ["WRITTEN_DOWN"], "a") as file:
                print(*sys.argv, file=file)
sys.meta_path.insert(0, Watch())
"""
CONNECTED = "ClusterIP from a pod to another node preserves the client IP"
CRAFTED = "ClusterIP from a pod spreads connections evenly over all endpoints"
STRANGER = "NodePort over SCTP with externalTrafficPolicy Local preserves the client IP"


def ran(folder: Path, scenario: Path, *probes: str) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(WATCH, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "proxylab", "run", str(scenario), "--no-bundles",
         *(word for probe in probes for word in ("--probe", probe))],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "lab")]),
            "WRITTEN_DOWN": str(folder / "scapy.txt"),
            "NO_COLOR": "1",
        },
    )  # fmt: skip


def test_only_who_crafts_frames_pays_for_scapy(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in (CONNECTED, CRAFTED)]
    with ThreadPoolExecutor(2) as pool:
        for folder in folders:
            folder.mkdir()
        scenario = ROOT / "scenarios/clusterip/from-a-pod.lab.yaml"
        connected, crafted = pool.map(lambda folder: ran(folder, scenario, folder.name), folders)
    assert (connected.returncode, crafted.returncode) == (0, 0), connected.stdout + crafted.stdout
    assert not (folders[0] / "scapy.txt").exists()
    assert (folders[1] / "scapy.txt").read_text().count("\n") == 1, "the lab process alone"


@pytest.fixture
def associations(tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Connecting over SCTP: to a pod, to a closed port, and to a Service without endpoint."""
    text = (ROOT / "scenarios/sctp/associations.lab.yaml").read_text(encoding="utf-8")
    assert text.count("as: packet}") == 4
    (tmp_path / "sctp.lab.yaml").write_text(text.replace("as: packet}", "as: connect}"), encoding="utf-8")
    names = (
        STRANGER,
        "ClusterIP over SCTP to a port without a listener is refused",
        "ClusterIP over SCTP without endpoints is rejected",
    )
    return ran(tmp_path, Path("sctp.lab.yaml"), *(f"{name}[{family}]" for name in names for family in ("ipv4", "ipv6")))


@pytest.mark.skipif(not has_sctp(), reason="this kernel has no SCTP sockets (as root: 'modprobe sctp')")
def test_associations_of_kernel_sockets_are_judged(associations: subprocess.CompletedProcess[str]) -> None:
    assert associations.returncode == 0, associations.stdout + associations.stderr


@pytest.mark.skipif(has_sctp(), reason="this kernel has SCTP sockets")
def test_without_sctp_sockets_a_run_says_so_with_the_cure(associations: subprocess.CompletedProcess[str]) -> None:
    assert associations.returncode == 4, associations.stdout + associations.stderr
    told = " ".join(associations.stdout.split())  # without the ends of lines
    assert f"SCTP sockets, with which probe '{STRANGER}[ipv4]' connects" in told
    assert "or let the probe send single packets (send: {as: packet})" in told
    assert ("'--kernel uml'" in told) or ("'modprobe -a sctp'" in told)
