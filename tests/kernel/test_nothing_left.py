"""Undisturbed runs end by themselves, leave nothing, and do not interfere."""

import os
from functools import partial

import pytest
from killing import expect_nothing_left, running, spaces_of
from machine import Machine

MYSELF = os.geteuid() != 0  # whether an ordinary user runs the tests


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
    with running(ordinary=MYSELF, held=True) as one, running(ordinary=MYSELF, held=True) as other:
        for run in (one, other):
            run.wait_for(partial(run.has_said, "probing"), "its lab to stand", run.listen)
        assert min(len(run.holds() - ours) for run in (one, other)) > 10, "both have labs, and this test sees them"
        assert (one.holds() & other.holds()) - ours == set()
        for run in (one, other):
            run.go_on()
        for run in (one, other):
            run.wait_for(partial(run.has_said, "closed"), "it to be through", run.listen)
            assert run.said.count(": pass\n") == run.said.count(": "), run.said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to compare it with an ordinary user; run it as root")
def test_root_and_an_ordinary_user_see_the_same() -> None:
    said = []
    for ordinary in (False, True):
        with running(ordinary=ordinary) as run:
            run.wait_for(lambda run=run: run.has_said("closed"), "the client to be through")
            said.append(run.said)
    assert said[0] == said[1]
