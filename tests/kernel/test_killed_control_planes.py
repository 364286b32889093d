"""A kill of any process of a lab with a real control plane, in each stage, leaves nothing."""

import os
import random
import signal
import subprocess
import time

import pytest
from command_line import CommandLine, lives, wait_for
from killing import belongs_to_root, held_by_us, is_a_command, spaces_of
from machine import Machine, command_of, descendants
from test_real_control_plane import pytestmark as needs_control_plane

pytestmark = [needs_control_plane, pytest.mark.timeout(180)]

ROLES = ("client", "supervisor", "init", "lab process", "launcher", "program")
STAGES = ("start", "go on", "standing")
SPAN = 1.0
"""Within so many seconds of a stage's first sign the blow falls."""


def roles_of(client: int) -> dict[str, int]:
    """The processes of a lab that starts, by role."""
    tree, found = descendants(client), {"client": client}
    for role, parent in zip(ROLES[1:], ROLES[:-1], strict=True):
        children = tree.get(found[parent], [])
        if role == "program":
            children = [pid for pid in tree if is_a_command(pid) and b"control-plane" in command_of(pid)]
        if role == "launcher":  # as in ``killing.Run.look``
            children = [pid for pid in children if not belongs_to_root(pid)]
        if not children:
            break
        found[role] = children[0]
    return found


@pytest.mark.parametrize(
    ("role", "stage"),
    [
        pytest.param(
            role,
            stage,
            marks=[] if (role, stage) in {("client", "start"), ("lab process", "standing")} else [pytest.mark.thorough],
        )
        for stage in STAGES
        for role in ROLES
        if (role, stage) != ("client", "standing")
    ],
)
def test_nothing_is_left(role: str, stage: str, cli: CommandLine) -> None:
    dice, ours, before = random.Random(f"{role} {stage}"), spaces_of(os.getpid()), Machine.now()
    client = cli.start("up", "--control-plane", "real", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    pids: set[int] = set()
    spaces: set[str] = set()
    victims: dict[str, int] = {}

    def look() -> dict[str, int]:
        tree = descendants(client.pid)
        pids.update(tree)
        spaces.update(each for pid in tree for each in spaces_of(pid))
        return roles_of(client.pid)

    try:
        if stage == "standing":
            wait_for(lambda: bool(look()) and client.poll() is not None, "the lab to stand")
            assert client.returncode == 0
            victims = cli.processes("cluster")
            victims["program"] = next(
                pid for pid in descendants(victims["supervisor"]) if b"control-plane" in command_of(pid)
            )
        else:
            wait_for(lambda: "program" in look() or client.poll() is not None, "a control plane")
            moment = time.monotonic() + (dice.uniform(0, SPAN) if stage == "start" else SPAN + dice.uniform(0, SPAN))
            wait_for(lambda: bool(look()) and time.monotonic() >= moment, "the moment")
            victims = look()
        assert lives(victims[role]), f"{role} has ended before the blow"
        os.kill(victims[role], signal.SIGKILL)
        said = client.communicate(timeout=60)[1].decode()
        assert "Traceback" not in said
        if stage == "standing" and role == "program":
            cli.type("down")
        wait_for(
            lambda: not [each for each in pids if lives(each)],
            "all processes to end",
            lambda: str([*map(command_of, pids)]),
        )
        wait_for(lambda: not held_by_us(spaces - ours), "namespaces to be let go of")
        assert before.differences(Machine.now()) == []
    finally:
        client.kill()
        client.wait()
        cli.type("down")
