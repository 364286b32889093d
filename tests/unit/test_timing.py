"""Waiting: nothing is left running, and every deadline says what it waited for."""

import asyncio

import pytest

from proxylab.timing import Deadline, DeadlineExceededError, together, wait_until, wait_until_seen, wait_while_fewer


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


def test_a_failure_leaves_no_cancellation_behind() -> None:
    """``asyncio.timeout`` of Python 3.11 takes one for its own caller's, and lets the cancellation through."""

    async def fail() -> None:
        await asyncio.sleep(0)
        raise LookupError

    async def main() -> None:
        with pytest.raises(LookupError):
            await together((fail(), asyncio.sleep(60)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await asyncio.Event().wait()

    asyncio.run(main())


def test_a_cancelled_caller_waits_until_all_have_ended() -> None:
    ended = []

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append("cleaned up")

    async def main() -> None:
        caller = asyncio.create_task(together((never(), never())))
        for _ in range(2):  # the second one comes while the others end
            await asyncio.sleep(0.001)
            caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert ended == ["cleaned up"] * 2

    asyncio.run(main())


def test_a_condition_that_never_holds_is_named() -> None:
    with pytest.raises(DeadlineExceededError, match="gave up waiting: godot"):
        asyncio.run(wait_until(lambda: False, Deadline.after(0.01), "godot"))


def test_a_condition_that_holds_costs_no_time() -> None:
    asyncio.run(wait_until(lambda: True, Deadline.after(0), "nothing"))


def test_what_becomes_less_is_waited_for_however_long_it_takes() -> None:
    took = asyncio.run(_counted(down_from=20, patience=0.05))
    assert took > 0.1, "twenty looks, each of them within the patience"


def test_what_does_not_become_less_is_given_up() -> None:
    with pytest.raises(DeadlineExceededError, match="gave up waiting: godot"):
        asyncio.run(wait_while_fewer(lambda: 3, 0.01, "godot"))


async def _counted(*, down_from: int, patience: float) -> float:
    began = asyncio.get_running_loop().time()
    left = list(range(down_from))
    await wait_while_fewer(left.pop, patience, "a count to fall")
    return asyncio.get_running_loop().time() - began


def test_a_look_that_never_ends_is_cancelled_at_the_deadline() -> None:
    cancelled = []

    async def never() -> bool:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return True

    async def main() -> None:
        with pytest.raises(DeadlineExceededError, match="gave up waiting: a port opens"):
            await wait_until_seen(never, Deadline.after(0.01), "a port opens")

    asyncio.run(main())
    assert cancelled


def test_a_look_of_its_own_deadline_is_no_late_one() -> None:
    async def late() -> bool:
        raise TimeoutError("of the look itself")

    with pytest.raises(TimeoutError, match="of the look itself"):
        asyncio.run(wait_until_seen(late, Deadline.after(60), "never"))
