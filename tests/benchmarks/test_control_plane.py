"""A real control plane: how long until it stands, and until a scaled Deployment serves; and what it holds of memory."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import pytest

from proxylab.binaries.control_plane import REAL, control_plane_sources, find_control_plane
from proxylab.errors import CapabilityError

ROOT = Path(__file__).resolve().parents[2]
UP_SECONDS = 3.0
SERVED_SECONDS = 0.5
MEMORY = 400 << 20
TIMES = 5

Type = Callable[..., str]
ASKS = """
import http.client, sys, time
print("asking", flush=True)
until = time.monotonic() + 30
while time.monotonic() < until:
    asking = http.client.HTTPConnection(sys.argv[1], 80, timeout=1)
    try:
        asking.request("GET", "/")
        asking.getresponse().read()
        print(time.monotonic())  # the same clock for all processes of a machine
        break
    except OSError:
        time.sleep(0.001)
    finally:
        asking.close()
"""


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def started(tmp_path: Path) -> Start:
    try:
        find_control_plane(REAL, control_plane_sources().cache)
    except CapabilityError as error:
        pytest.skip(f"needs {error.missing}; {error.cure}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "lab"), "XDG_RUNTIME_DIR": str(tmp_path)}

    def start(*words: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "proxylab", *words]
        return subprocess.Popen(argv, stdout=subprocess.PIPE, env=environment, text=True)

    return start


@pytest.fixture
def typed(started: Start) -> Iterator[Type]:
    def run(*words: str) -> str:
        with started(*words) as process:
            output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, words
        return output

    yield run
    run("down")


@pytest.mark.budget
def test_it_answers_in_three_seconds_and_serves_a_scaled_deployment_in_half_of_one(
    typed: Type, started: Start, tmp_path: Path
) -> None:
    began = time.monotonic()
    typed("up", "--control-plane", "real")
    assert "node-b" in typed("kubectl", "--", "get", "nodes")
    stands = time.monotonic() - began
    file = tmp_path / "kubeconfig"
    file.write_text(typed("kubeconfig"))
    binary = find_control_plane(REAL, control_plane_sources().cache).path

    def kubectl(*words: str) -> str:
        argv = (str(binary), "kubectl", f"--kubeconfig={file}", *words)
        return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True, timeout=60).stdout

    kubectl("create", "deployment", "shop", "--image=shop", "--port=8080", "--replicas=0")
    kubectl("expose", "deployment", "shop", "--port=80", "--target-port=8080")
    address = kubectl("get", "service", "shop", "-o", "jsonpath={.spec.clusterIP}")
    serves = []
    for _ in range(TIMES):
        with started("exec", "client", "--", sys.executable, "-c", ASKS, address) as asking:
            assert asking.stdout is not None
            assert asking.stdout.readline() == "asking\n"
            began = time.monotonic()
            kubectl("scale", "deployment/shop", "--replicas=1")
            serves.append(float(asking.stdout.readline()) - began)
        kubectl("scale", "deployment/shop", "--replicas=0")
        kubectl("wait", "--for=delete", "pod", "-l", "app=shop", "--timeout=40s")
    memory = sum(map(anonymous, control_planes()))
    figures = f"first answer after {stands:.2f} s; scale to a served packet {1000 * median(serves):.0f} ms"
    print(f"{figures}; {memory >> 20} MiB of anonymous memory")  # noqa: T201
    assert stands <= UP_SECONDS, "from up to kubectl's first answer"
    assert median(serves) <= SERVED_SECONDS, "from scale to an answer"
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
