"""The collector rests during a block, and is afterwards as it was."""

import gc

import pytest

from lab.garbage import uncollected


def test_the_collector_works_again_after_a_failure() -> None:
    with pytest.raises(KeyError), uncollected():
        raise KeyError
    assert gc.isenabled()


def test_a_block_within_a_block_does_not_wake_it() -> None:
    with uncollected():
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
