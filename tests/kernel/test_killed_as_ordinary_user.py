"""A kill of any process of an ordinary user's lab, at any moment, leaves nothing on the machine."""

import signal

import pytest
from killing import blows, strike_and_look


@pytest.mark.parametrize(("blow", "role", "stage"), [*blows(ordinary=True)])
def test_nothing_is_left(blow: signal.Signals, role: str, stage: str) -> None:
    strike_and_look(blow, role, stage, ordinary=True)
