"""Waiting: nothing is left running, and every deadline says what it waited for."""

import asyncio

import pytest

from lab.timing import Deadline, DeadlineExceededError, together, wait_until


def test_results_come_in_order() -> None:
    async def later(turns: int) -> int:
        for _ in range(turns):
            await asyncio.sleep(0)
        return turns

    assert asyncio.run(together(later(turns) for turns in (3, 1, 2))) == (3, 1, 2)


def test_when_one_fails_the_others_have_ended_before_the_caller_hears_of_it() -> None:
    ended = []

    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError("the first")

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("cleaned up")

    async def main() -> None:
        with pytest.raises(LookupError, match="the first"):
            await together((fail(), never(), never()))
        assert ended == ["cleaned up"] * 2

    asyncio.run(main())


def test_a_condition_that_never_holds_is_named() -> None:
    with pytest.raises(DeadlineExceededError, match="gave up waiting: godot"):
        asyncio.run(wait_until(lambda: False, Deadline.after(0.01), "godot"))


def test_a_condition_that_holds_costs_no_time() -> None:
    asyncio.run(wait_until(lambda: True, Deadline.after(0), "nothing"))
