"""The collector rests during a block, and is afterwards as it was."""

import gc
import weakref

import pytest

from lab.garbage import count_as_old, look_seldom, uncollected


def test_tens_of_thousands_of_records_are_made_without_a_look_but_not_without_end() -> None:
    before = gc.get_threshold()
    looks: list[str] = []

    def looked(phase: str, _info: dict[str, int]) -> None:
        looks.append(phase)

    gc.set_threshold(700, 10, 10)
    look_seldom()
    gc.callbacks.append(looked)
    try:
        gc.collect(0)
        looks.clear()
        kept: list[list[object]] = [[] for _ in range(40_000)]
        assert looks == []
        kept += [[] for _ in range(20_000)]
        assert "stop" in looks
    finally:
        gc.callbacks.remove(looked)
        gc.set_threshold(*before)


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
        kept = [Record() for _ in range(gc.get_threshold()[0] + 1)]
        gone = weakref.ref(Record())
    assert gc.is_tracked(kept)
    assert any(each is kept for each in gc.get_objects(generation=2))
    assert gone() is not None, "a cycle"
    gc.collect()
    assert gone() is None


def test_nobody_asks_what_is_frozen_for_a_few_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer takes a look at each frozen object: milliseconds, for every probe."""
    asked: list[str] = []

    def count() -> int:
        asked.append("how many")
        return 0

    monkeypatch.setattr(gc, "get_freeze_count", count)
    gc.collect()
    with uncollected():
        pass
    assert not asked


def test_what_others_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        count_as_old()
        assert gc.get_freeze_count() == frozen
    finally:
        gc.unfreeze()
