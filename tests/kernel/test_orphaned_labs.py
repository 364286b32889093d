"""What ends a lab whose client or test run was killed at an awkward moment."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import SCENARIO, CommandLine, lives, wait_for
from machine import descendants

HOLDER = "from orphaned_labs import ended_with_us\nwith ended_with_us({folder!r}):\n    print(); input()"


def test_a_standing_lab_of_a_test_ends_with_its_killed_run(cli: CommandLine) -> None:
    run = subprocess.Popen(
        [sys.executable, "-u", "-c", HOLDER.format(folder=str(cli.runtime))],
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{os.pathsep.join(sys.path)}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with run:
        assert run.stdout is not None
        run.stdout.readline()
        cli.up()
        processes = cli.processes("killed")
        run.kill()
    wait_for(lambda: not any(map(lives, processes.values())), "the lab to end")


@pytest.mark.parametrize("verb", ["run", "up"])
def test_a_lab_process_that_was_stopped_at_its_start_ends_once_it_goes_on(cli: CommandLine, verb: str) -> None:
    """Stopped before it has asked for its parent's death, it can learn of that from the socket pair alone."""
    client = cli.start(verb, SCENARIO, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    children: list[int] = []

    def started() -> bool:
        children[:] = descendants(client.pid)[client.pid]
        return bool(children) or client.poll() is not None

    try:
        wait_for(started, "the child of the client")
        os.kill(children[0], signal.SIGSTOP)
        client.kill()
        client.wait()
        assert lives(children[0])
    finally:
        os.kill(children[0], signal.SIGCONT)
    wait_for(lambda: not lives(children[0]), "the child to end")
    assert list(cli.control_sockets.folder.glob("*.supervisor")) == []
