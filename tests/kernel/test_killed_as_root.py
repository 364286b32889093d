"""A kill of any process of root's lab, at any moment, leaves nothing on the machine."""

import os
import signal

import pytest
from killing import blows, strike_and_look

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root; an ordinary user has a file of their own")


@pytest.mark.parametrize(("blow", "role", "stage"), [*blows(ordinary=False)])
def test_nothing_is_left(blow: signal.Signals, role: str, stage: str) -> None:
    strike_and_look(blow, role, stage, ordinary=False)
