"""A real control plane: how long until it stands, and until a scaled Deployment serves; and what it holds of memory."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from proxylab.binaries.control_plane import REAL, control_plane_sources, find_control_plane
from proxylab.errors import CapabilityError

ROOT = Path(__file__).resolve().parents[2]
UP_SECONDS = 5.0
SERVED_SECONDS = 2.0
MEMORY = 500 << 20

Type = Callable[..., str]
ASKS = """
import json, sys, time, urllib.request
until = time.monotonic() + 30
while time.monotonic() < until:
    try:
        print(json.load(urllib.request.urlopen(sys.argv[1], timeout=1))["pod"])
        break
    except OSError:
        time.sleep(0.01)
"""


@pytest.fixture
def typed(tmp_path: Path) -> Iterator[Type]:
    try:
        find_control_plane(REAL, control_plane_sources().cache)
    except CapabilityError as error:
        pytest.skip(f"needs {error.missing}; {error.cure}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab"), "XDG_RUNTIME_DIR": str(tmp_path)}

    def run(*words: str) -> str:
        argv = [sys.executable, "-m", "proxylab", *words]
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, env=environment, text=True, timeout=120).stdout

    yield run
    run("down")


@pytest.mark.budget
def test_it_stands_in_seconds_and_serves_a_scaled_deployment_in_two(typed: Type) -> None:
    began = time.monotonic()
    typed("up", "--control-plane", "real")
    assert "node-b" in typed("kubectl", "--", "get", "nodes")
    stands = time.monotonic() - began
    typed("kubectl", "--", "create", "deployment", "shop", "--image=shop", "--port=8080", "--replicas=0")
    typed("kubectl", "--", "expose", "deployment", "shop", "--port=80", "--target-port=8080")
    address = typed("kubectl", "--", "get", "service", "shop", "-o", "jsonpath={.spec.clusterIP}")
    began = time.monotonic()
    typed("kubectl", "--", "scale", "deployment/shop", "--replicas=1")
    pod = typed("exec", "client", "--", sys.executable, "-c", ASKS, f"http://{address}/")
    serves = time.monotonic() - began
    memory = sum(map(anonymous, control_planes()))
    assert pod.startswith("shop-")
    assert stands <= UP_SECONDS, "from up to kubectl's first answer"
    assert serves <= SERVED_SECONDS, "from scale to an answer"
    assert 0 < memory <= MEMORY


def control_planes() -> list[int]:
    """The processes of this user's control planes, schedulers among them."""
    binary = find_control_plane(REAL, control_plane_sources().cache).path
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            if (each / "exe").resolve() == binary.resolve():
                found.append(int(each.name))
        except OSError:
            pass  # it has ended, or is another user's
    return found


def anonymous(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Anonymous:"))
