"""``proxylab run --jobs`` in the kernel: labs stand side by side, and a killed or interrupted run leaves nothing."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from interrupts import interruptible
from killing import SCENARIO, Run, expect_nothing_left, spaces_of
from machine import Machine, descendants
from sandboxed import ROOT

LABS = 2


def copies(folder: Path, number: int) -> list[str]:
    """So many copies of the scenario that other tests kill."""
    files = [folder / f"{each}.lab.yaml" for each in range(number)]
    for file in files:
        shutil.copy(ROOT / SCENARIO, file)
    return list(map(str, files))


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGKILL], ids=lambda blow: blow.name)
def test_a_run_that_ends_early_leaves_nothing_of_labs_side_by_side(blow: signal.Signals, tmp_path: Path) -> None:
    ours, before = spaces_of(os.getpid()), Machine.now()
    argv = [sys.executable, "-m", "proxylab", "run", "--jobs", str(LABS), *copies(tmp_path, 20)]
    with interruptible():
        client = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    run = Run(client)
    try:
        # A worker, its supervisor, init, the lab process, the launcher: then both labs are there, or nearly.
        run.wait_for(lambda: bool(run.look()) and len(descendants(client.pid)) >= LABS * 5, "two labs", run.listen)
        run.look()
        client.send_signal(blow)
        expect_nothing_left(run, before, ours)
    finally:
        client.kill()
        client.communicate()
    assert client.returncode == (130 if blow is signal.SIGINT else -blow)
