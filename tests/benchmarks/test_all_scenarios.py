"""How long all scenarios take on one engine, as `tox -e lab` and `./dev test` run them."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from sandboxed import USERS, checkout_for, python_of

from proxylab.binaries.choose import Sources

pytestmark = [pytest.mark.benchmark, pytest.mark.budget, pytest.mark.timeout(600)]

AT_MOST = {"embedded/iptables": 30.0, "kube-proxy/iptables": 90.0, "kube-proxy/nftables": 90.0}  # seconds, on two cores
IN_PARALLEL = ("--numprocesses=auto", "--maxprocesses=8", "--dist=loadfile", "--no-loadscope-reorder")


def seconds_for_all(engine: str, root: Path, become: Sequence[str] = ()) -> float:
    project = ("-c", str(root / "pyproject.toml"), f"--rootdir={root}", str(root / "scenarios"))
    without = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    options = ("-q", *without, "--lab-required", "--lab-no-bundles", f"--lab-engine={engine}", *IN_PARALLEL)
    path = os.pathsep.join([str(root / "lab"), os.environ.get("PYTHONPATH", "")])
    began = time.perf_counter()
    done = subprocess.run(
        [*become, python_of(root), "-m", "pytest", *options, *project],
        cwd="/",
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.perf_counter() - began
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return took


@pytest.mark.parametrize("ordinary", USERS.values(), ids=USERS)
def test_the_embedded_engine_takes_half_a_minute(ordinary: bool) -> None:
    with checkout_for(ordinary=ordinary) as (root, become):
        took = seconds_for_all("embedded/iptables", root, become)
    print(f"all scenarios in {took:.1f} s")  # noqa: T201
    assert took <= AT_MOST["embedded/iptables"]


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_the_real_kube_proxy_takes_a_minute_and_a_half(mode: str) -> None:
    if not Sources.of_user().obtained():
        pytest.skip("needs a kube-proxy in the cache; 'proxylab engines --obtain' puts one there")
    engine = f"kube-proxy/{mode}"
    took = seconds_for_all(engine, Path(__file__).parents[2])
    print(f"{mode}: all scenarios in {took:.1f} s")  # noqa: T201
    assert took <= AT_MOST[engine]
