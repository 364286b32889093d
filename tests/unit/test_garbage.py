"""The collector rests during a block, and is afterwards as it was."""

import gc
import weakref

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


def test_what_the_block_made_is_old_when_it_ends_and_still_freed_when_it_is_garbage() -> None:
    class Record:
        """Something that the collector looks at, and that can tell whether it is gone."""

        def __init__(self) -> None:
            self.itself = self

    with uncollected():
        kept = [Record() for _ in range(1000)]
        gone = weakref.ref(Record())
    assert gc.is_tracked(kept)
    assert any(each is kept for each in gc.get_objects(generation=2))
    assert gone() is not None, "a cycle"
    gc.collect()
    assert gone() is None
