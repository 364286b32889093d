"""A failure keeps the lab as it is: for ``run``, for pytest, and for a user at a terminal."""

import os
import pty
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from command_line import CommandLine, TerminalOutput, wait_for
from sandboxed import ROOT

# The first probe fails.
FAILING = (
    (ROOT / "tests/kernel/killed.lab.yaml")
    .read_text()
    .replace(
        "to: {service: echo, via: clusterIP}, expect: {outcome: delivered, source: preserved}}",
        "to: {service: echo, via: clusterIP}, expect: {outcome: rejected}}",
    )
)


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    file = tmp_path / "failing.lab.yaml"
    file.write_text(FAILING)
    return file


def pytest_command(*arguments: str) -> list[str]:
    installed = any(each.value == "proxylab.pytest_plugin" for each in entry_points(group="pytest11"))
    own = [] if installed else ["-p", "proxylab.pytest_plugin"]
    return [sys.executable, "-m", "pytest", *own, "-p", "no:randomly", "-p", "no:cacheprovider", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "lab"), "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": ""}


def test_a_run_keeps_the_lab_of_a_probe_that_failed_and_goes_on_in_another(cli: CommandLine, failing: Path) -> None:
    done = cli.type("run", str(failing), "--no-bundles", "--keep")
    assert done.status == 1
    assert "the lab is kept as killed for 8h; try\n  proxylab probe client echo --lab killed\n" in done.errors
    assert "1 failed, 2 passed" in done.output
    assert cli.type("probe", "client", "echo").status == 0
    rules = cli.type("rules", "node-a").output
    assert re.search(r"\[[1-9]\d*:\d+\] -A KUBE-SVC-", rules), "the counters are those of the failed probe"


def test_pytest_keeps_the_lab_of_a_failed_item(cli: CommandLine, failing: Path) -> None:
    done = subprocess.run(
        pytest_command(str(failing), "--lab-keep", "--lab-no-bundles", "--lab-pcap", "--rootdir", str(failing.parent)),
        env=environment(), cwd=failing.parent, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert "1 failed, 2 passed" in done.stdout, done.stdout + done.stderr
    assert "the lab is kept as killed for 8h; try" in done.stdout
    assert cli.type("ps", "-o", "name").output == "killed\n"
    assert cli.type("trace", "client", "echo").status == 0
    left = sorted((failing.parent / ".proxylab/pcap").glob("*.pcapng"))
    assert len(left) == 3
    assert all(each.stat().st_size > 500 for each in left)


def test_pytest_waits_with_the_lab_standing_and_opens_a_shell_in_it(cli: CommandLine, failing: Path) -> None:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    subprocess.run(["stty", "cols", "200"], stdin=theirs, check=True)  # a narrow terminal truncates a prompt
    run = subprocess.Popen(
        pytest_command(str(failing), "--lab-pause-on-fail", "--lab-shell", "echo-1", "--lab-no-bundles"),
        env={**environment(), "TERM": "dumb"}, cwd=failing.parent, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    said = TerminalOutput(ours)
    wait_for(lambda: "echo-1:" in said.so_far(), "the prompt of the shell", said.so_far)
    os.write(ours, b"hostname; exit\r")
    wait_for(lambda: "press Enter to go on; this stops the lab" in said.so_far(), "the run to wait", said.so_far)
    assert "the lab runs as killed; try" in said.so_far()
    assert "with its creator" in cli.type("ps").output
    assert cli.type("probe", "client", "echo").status == 0
    os.write(ours, b"\r")
    wait_for(lambda: "1 failed, 2 passed" in said.so_far(), "the run to end", said.so_far)
    assert run.wait(30) == 1
    assert cli.type("ps", "-o", "name").output == ""
    for each in (ours, theirs):
        os.close(each)
