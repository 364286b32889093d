"""Runs that are left alone: they end by themselves, leave nothing, and do not meet."""

import os
from collections import Counter

import pytest
from killing import expect_nothing_left, running, spaces_of
from machine import Machine

from lab.timing import Deadline

MYSELF = os.geteuid() != 0  # whether whoever runs the tests is an ordinary user


def test_a_run_that_is_left_alone_leaves_nothing() -> None:
    ours = spaces_of(os.getpid())
    before = Machine.now()
    with running(ordinary=MYSELF) as run:
        run.wait_for(lambda: bool(run.look()) and run.has_said("closed"), "the client to be through")
        expect_nothing_left(run, before, ours)
    assert run.said.count(": pass\n") == run.said.count(": "), run.said
    assert len(run.spaces - ours) > 10, "the run had namespaces, and this test saw them"


def test_two_runs_at_once_do_not_meet() -> None:
    ours = spaces_of(os.getpid())
    most = 0

    def held_by_both() -> set[str]:
        """What one run holds before and after the other was seen to hold it."""
        nonlocal most
        before, meanwhile, after = one.holds(), other.holds(), one.holds()
        most = max(most, len((before & after) - ours) if meanwhile - ours else 0)
        return (before & meanwhile & after) - ours

    with running(ordinary=MYSELF) as one, running(ordinary=MYSELF) as other:
        deadline = Deadline.after(60)
        # The kernel gives the number of a namespace that one run gave up to the other, and back again, in milliseconds.
        # A namespace that they share is shared for as long as a lab stands: it is seen in look after look.
        looks: Counter[str] = Counter()
        while not (one.has_said("closed") and other.has_said("closed")):
            assert not deadline.passed, (one.said, other.said)
            shared = held_by_both()
            looks = Counter({space: looks[space] + 1 for space in shared})
            assert not [space for space, count in looks.items() if count >= 3]
        for run in (one, other):
            assert run.said.count(": pass\n") == run.said.count(": "), run.said
    assert most > 10, "both runs had their labs at the same time, and this test saw them"


@pytest.mark.skipif(os.geteuid() != 0, reason="compares root with an ordinary user; run it as root")
def test_root_and_an_ordinary_user_see_the_same() -> None:
    said = []
    for ordinary in (False, True):
        with running(ordinary=ordinary) as run:
            run.wait_for(lambda run=run: run.has_said("closed"), "the client to be through")
            said.append(run.said)
    assert said[0] == said[1]
