"""A kill of any process of a guest leaves nothing on the machine: no process, no namespace, no mount.

The processes of a 6.1 guest would run on, on the machine's kernel, with its root's rights: so they are the harder case.
"""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from guests import EACH, readable
from killing import strike_and_look

from proxylab.guest.kernels import Kernel

pytestmark = pytest.mark.timeout(300)

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
