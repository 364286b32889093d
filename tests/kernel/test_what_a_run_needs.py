"""What a run loads and asks of the machine: no more than its probes need."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import ROOT
from shared_sessions import shared_session

from proxylab.capability import CapabilityName
from proxylab.client.lab_process import LabProcess
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError
from proxylab.kernel.capabilities import TRIALS
from proxylab.scenario.load import load_scenario
from proxylab.scenario.matrix import Requirements
from proxylab.scenario.versions import VersionRange
from proxylab.timing import Deadline
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


def test_a_proxy_of_another_version_than_a_scenario_requires_skips_it() -> None:
    scenario = load_scenario(ROOT / "tests/kernel/killed.lab.yaml")
    recent = replace(scenario, requires=Requirements(version=VersionRange(since=(1, 29))))
    with shared_session() as session:
        session.open(recent).close()
    with (
        shared_session(EngineChoice("embedded@v1.23/iptables")) as session,
        pytest.raises(CapabilityError, match=r"a proxy of version >=1\.29"),
    ):
        session.open(recent)


def test_a_kernel_without_what_a_scenario_requires_skips_it_and_says_what_it_lacks() -> None:
    scenario = load_scenario(ROOT / "tests/kernel/killed.lab.yaml")
    new, old = Requirements(kernel=VersionRange(since=(99,))), Requirements(kernel=VersionRange(since=(3, 0)))
    has = Requirements(capabilities=(CapabilityName.VETH, CapabilityName.PROC))
    with shared_session() as session:
        for requires in (old, has):
            session.open(replace(scenario, requires=requires)).close()
        with pytest.raises(CapabilityError, match=r"a kernel >=99 \(this is \d"):
            session.open(replace(scenario, requires=new))
        with LabProcess() as process:
            found = process.examine((), Deadline.after(60))
        for each in (each for each in found if not each.works):
            with pytest.raises(CapabilityError, match=re.escape(each.name)):
                session.open(replace(scenario, requires=Requirements(capabilities=(CapabilityName(each.name),))))


def test_a_scenario_may_require_whatever_the_doctor_tries() -> None:
    assert [trial.name for trial in TRIALS] == [*CapabilityName]


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


@pytest.mark.skipif(not has_sctp(), reason="needs SCTP sockets; as root: 'modprobe sctp'")
def test_associations_of_kernel_sockets_are_judged(associations: subprocess.CompletedProcess[str]) -> None:
    assert associations.returncode == 0, associations.stdout + associations.stderr


@pytest.mark.skipif(has_sctp(), reason="needs a kernel without SCTP sockets; this one shows the other half")
def test_without_sctp_sockets_a_run_says_so_with_the_cure(associations: subprocess.CompletedProcess[str]) -> None:
    assert associations.returncode == 4, associations.stdout + associations.stderr
    told = " ".join(associations.stdout.split())  # without the ends of lines
    assert f"SCTP sockets, with which probe '{STRANGER}[ipv4]' connects" in told
    assert "or let the probe send single packets (send: {as: packet})" in told
    assert ("'--kernel uml'" in told) or ("'modprobe -a sctp'" in told)
