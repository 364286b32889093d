"""A kill of any process of a guest leaves nothing on the machine: no process, no namespace, no mount.

The processes of a 6.1 guest would run on, on the machine's kernel, with its root's rights: so they are the harder case.
"""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from guests import EACH, readable
from killing import hit, strike_and_look
from machine import descendants

from proxylab.client.lab_process import LabProcess
from proxylab.errors import LabEndedError
from proxylab.guest.kernels import Kernel
from proxylab.timing import Deadline

pytestmark = pytest.mark.timeout(300)

SECONDS = 60.0

# The names of the chain of children, with what they are of a lab on the machine's own kernel.
ROLES = {
    "client": "client",
    "supervisor": "supervisor",
    "init": "init",
    "relay": "lab process",
    "kernel": "launcher",
    "process of the guest": "command",
}


def strikes() -> Iterator[Any]:
    """Each role in each stage, as one of the two users. A cheap one stands for all, which differ in who is killed."""
    for number, (name, role) in enumerate(ROLES.items()):
        for stage in ("build", "traffic"):
            ordinary = os.geteuid() != 0 or (number + len(stage)) % 2 == 0
            user = "an ordinary user" if ordinary else "root"
            marks = [pytest.mark.thorough] if (role, stage) != ("client", "traffic") else []
            yield pytest.param(role, stage, ordinary, id=f"the {name} of {user} in the stage {stage}", marks=marks)


@EACH
@pytest.mark.parametrize(("role", "stage", "ordinary"), [*strikes()])
def test_nothing_is_left(kernel: Kernel, role: str, stage: str, ordinary: bool) -> None:
    with readable(kernel) as binary:
        strike_and_look(signal.SIGKILL, role, stage, ordinary=ordinary, kernel=binary)


BLOWS = (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGSEGV)


@EACH
@pytest.mark.parametrize("role", ["kernel", "process of the guest"])
@pytest.mark.parametrize(
    "blow",
    [BLOWS[0], *(pytest.param(each, marks=pytest.mark.thorough) for each in BLOWS[1:])],
    ids=lambda each: each.name,
)
def test_one_line_says_that_the_kernel_of_a_guest_ended(kernel: Kernel, role: str, blow: signal.Signals) -> None:
    """A process of a user-mode Linux is one of the machine, which others may end. That is no bug of proxylab."""
    if blow is signal.SIGSEGV and role != "kernel":
        pytest.skip("the guest's kernel takes it for a page fault of that process, and goes on")
    with readable(kernel) as binary, LabProcess(kernel=binary) as process:
        process.ready()
        tree = descendants(process.pid)
        found = process.pid
        for _ in range(3):  # init, relay, kernel
            found = tree[found][0]
        victims = [found] if role == "kernel" else tree[found]
        for victim in victims:
            hit(victim, blow)
        with pytest.raises(LabEndedError, match="its guest's kernel ended") as ended:
            process.examine((), Deadline.after(SECONDS))
    assert str(ended.value).count("\n") == 0
