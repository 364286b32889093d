"""What needs a kernel for guests, a kube-proxy or CoreDNS waits for `./dev test` to obtain it; the rest comes first."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from plugin_project import Project

THINGS = ("kernel", "kube-proxy", "coredns")
HELD = """
from held_back import HeldBack

def pytest_configure(config):
    config.addinivalue_line("markers", "needs_kernel: as in the project's own settings")
    config.addinivalue_line("markers", "obtains: as in the project's own settings")
    config.pluginmanager.register(HeldBack(Path("obtaining"), {here!r}))
"""
BUILD = "until test -e ran; do sleep 0.05; done; echo {status} > obtaining/{thing}/status"
FIRST = """
from pathlib import Path
def test_first(): Path('ran').touch()
"""
ON_A_KERNEL = """
from pathlib import Path
import pytest
@pytest.mark.needs_kernel
def test_in_a_guest(): assert Path('obtaining/kernel/status').exists()
"""


@pytest.fixture
def held(project: Project) -> Project:
    folder = project.pytester.path
    project.pytester.makeconftest((folder / "conftest.py").read_text() + HELD.format(here=()))
    project.pytester.makepyfile(test_zoo=FIRST)
    for thing in THINGS:
        (folder / "obtaining" / thing).mkdir(parents=True)
        (folder / "obtaining" / thing / "lock").touch()
    return project


@contextmanager
def building(folder: Path, thing: str, status: int) -> Iterator[None]:
    """As `./dev` does it: the lock is held until another test has run, and the status stands there."""
    lock = folder / "obtaining" / thing / "lock"
    with subprocess.Popen(["flock", lock, "sh", "-c", BUILD.format(status=status, thing=thing)], cwd=folder) as builder:
        while subprocess.run(["flock", "--nonblock", lock, "true"], check=False).returncode == 0:
            assert builder.poll() is None
        yield


@pytest.mark.parametrize("status", [0, 1, 4])
def test_what_needs_a_kube_proxy_is_held_back_until_the_lock_is_free(held: Project, status: int) -> None:
    held.scenario("a.lab.yaml", "holds")
    with building(held.pytester.path, "kube-proxy", status):
        result = held.run("--lab-engine", "kube-proxy/iptables", "--timeout", "20")
    result.assert_outcomes(passed=1 + (status == 0), skipped=int(status != 0))
    assert (held.events() != []) is (status == 0)


def test_what_needs_a_kernel_waits_for_that_alone(held: Project) -> None:
    held.pytester.makepyfile(test_a_guest=ON_A_KERNEL)
    with building(held.pytester.path, "kernel", 0):
        held.run("--timeout", "20").assert_outcomes(passed=2)


@pytest.mark.parametrize("thing", THINGS)
def test_what_obtains_all_by_itself_waits_for_each(held: Project, thing: str) -> None:
    obtains = ON_A_KERNEL.replace("needs_kernel", "obtains").replace("obtaining/kernel", f"obtaining/{thing}")
    held.pytester.makepyfile(test_a_verb=obtains)
    with building(held.pytester.path, thing, 4):
        held.run("--timeout", "20").assert_outcomes(passed=2)


def test_a_scenario_on_coredns_waits_for_it(held: Project) -> None:
    path = held.scenario("a.lab.yaml", "holds")
    path.write_text(path.read_text().replace("spec:\n", "spec:\n  dns: {server: coredns}\n", 1))
    with building(held.pytester.path, "coredns", 0):
        held.run("--timeout", "20").assert_outcomes(passed=2)
    assert held.events() != []


@pytest.mark.parametrize(
    ("here", "order"),
    [
        ((), ["test_zoo.py", "test_a_guest.py", "a.lab.yaml"]),
        (("kernel",), ["test_a_guest.py", "test_zoo.py", "a.lab.yaml"]),
        (THINGS, ["a.lab.yaml", "test_a_guest.py", "test_zoo.py"]),
    ],
    ids=["nothing is here", "a kernel is here", "all is here"],
)
def test_files_wait_in_the_order_in_which_what_they_need_comes(
    held: Project, here: tuple[str, ...], order: list[str]
) -> None:
    conftest = held.pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text().replace('"obtaining"), ()', f'"obtaining"), {here}'))
    held.scenario("a.lab.yaml", "holds")
    held.pytester.makepyfile(test_a_guest=ON_A_KERNEL)
    for thing in THINGS:
        (held.pytester.path / "obtaining" / thing / "status").write_text("0")
    result = held.run("--lab-engine", "kube-proxy/iptables", "--collect-only", "-q")
    files = [line.partition("::")[0] for line in result.outlines if "::" in line]
    assert files == order
