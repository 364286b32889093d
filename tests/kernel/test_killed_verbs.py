"""A signal to any process of any verb, at any moment: the client says in one line who died, and nothing is left.

Every run has one row of each role, stage, signal and user; where a verb changed, its rows among the first fifty of
``verb_kills.chosen``, in which each verb is; where a process changed (the concern ``verb_kills``), one of each pair of
role and stage, role and lab, and role and deadly signal. ``--all`` has five hundred.
"""

import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import lives
from verb_kills import (
    ATTEMPTS,
    BUILDING,
    CHAIN,
    CLIENT,
    COMMAND,
    FILE,
    LAB,
    OTHER,
    PATIENCE,
    PLACE,
    ROLES,
    SIGNALS,
    SOON,
    STAGES,
    TABLE,
    Kill,
    Typing,
    chosen,
    control_sockets_in,
    has_changed,
    needs_of,
    output_of,
    strays,
    strike,
    typing,
    wait_for,
)

from proxylab.cli.verbs import VERBS
from proxylab.errors import ExitCode

pytestmark = pytest.mark.timeout(300)

CONCERNED, ALL = 50, 500
OF_PROCESSES = {"exec", "run", "up"}
"""Verbs with a lab of their own that one client, several workers, or nothing keeps."""
WHO = re.compile(
    r"ended its (supervisor|init, pid 1 of the sandbox|lab process)|its launcher, which starts commands, ended"
    r"|the worker process of the scenario was ended|it exited with status|it was asked to end"
)
OWN_CODES = {signal.SIGTERM: {-15, 143}, signal.SIGHUP: {-1, 129}, signal.SIGINT: {130, -2}, signal.SIGKILL: {-9}}
"""How a client ends that got a signal: as the shell counts where it has handled it or passed it on to a command."""

GOES_ON = 3.0

OTHERS_PATIENCE = 200.0
"""`gate` takes 65 s on two processors that forty others want."""

ENDS_BY_INTERRUPT = {"capture", "logs", "watch"}
"""Ctrl-C is how a user ends these, so it is no failure."""

MADE = {FILE, OTHER, "scenarios", "cluster.yaml", "shard.json", "mine.lab.yaml", "my-first.lab.yaml", "table.json"}
MADE |= {"both.html", "run.html", "certificate.html", "frames.pcapng", ".proxylab"}
"""What may lie in the user's folder afterwards; a report is whole."""


def quick_first() -> list[Kill]:
    """All rows, at the end those of `gate`, which goes on with two proxies and the catalogue for a while."""
    return sorted(chosen(ALL), key=lambda kill: kill.verb == "gate")


def of_every_run() -> list[Kill]:
    """The first rows that have a role, stage, signal or user that none before has."""
    found, known = [], set[object]()
    for kill in quick_first():
        if not known.issuperset(kinds := {kill.role, kill.stage, kill.blow, kill.ordinary}):
            known |= kinds
            found.append(kill)
    return found


def of_processes() -> list[Kill]:
    """The first rows that have a pair which none before has: what a process does depends on no verb, but on these."""
    found, known = [], set[object]()
    for kill in quick_first():
        pairs = {(kill.role, kill.stage), (kill.role, kill.typed.lab), (kill.role, kill.blow is signal.SIGKILL)}
        if not known.issuperset(pairs):
            known |= pairs
            found.append(kill)
    return found


def rows() -> Iterator[Any]:
    kept, of_process = of_every_run(), of_processes()
    for number, kill in enumerate(chosen(ALL)):
        if kill in kept or (number < CONCERNED and has_changed(kill.verb)):
            marks = []
        else:
            marks = [pytest.mark.verb_kills if kill in of_process else pytest.mark.thorough]
        yield pytest.param(kill, id=str(kill), marks=[*marks, *needs_of(kill.typed)])


def test_the_rows_have_each_verb_role_stage_signal_and_user() -> None:
    assert set(TABLE) == set(VERBS), "a verb without a row: say in the table how it is typed"
    assert {kill.verb for kill in chosen(CONCERNED)} == set(VERBS)
    found = of_every_run()
    assert {kill.role for kill in found} == set(ROLES)
    assert {kill.stage for kill in found} == set(STAGES)
    assert {kill.blow for kill in found} == set(SIGNALS)
    assert {kill.ordinary for kill in found} == {False, True}
    assert len(found) < 12
    assert len(of_processes()) < 35


def builders() -> Iterator[Any]:
    """The death of the supervisor while a lab is built, for each verb that builds one; every run has a table's."""
    for verb in VERBS:
        for typed in TABLE[verb]:
            if typed.lab == "own":
                kill = Kill(verb, typed, CHAIN[0], BUILDING, signal.SIGKILL, ordinary=False)
                marks = [pytest.mark.verb_kills if verb in OF_PROCESSES else pytest.mark.thorough]
                if verb == "conformance" or has_changed(verb):
                    marks = []
                yield pytest.param(kill, id=str(kill), marks=[*marks, *needs_of(typed)])


@pytest.mark.parametrize("kill", [*builders()])
def test_a_supervisor_that_dies_while_its_lab_is_built_is_named_by_each_verb(kill: Kill) -> None:
    expect_told(kill)


@pytest.mark.parametrize("kill", [*rows()])
def test_the_client_says_who_died_and_nothing_is_left(kill: Kill) -> None:
    expect_told(kill)


def expect_told(kill: Kill) -> None:
    """Type the verb and strike, again where nothing was hit; then look at what it says and leaves."""
    if kill.ordinary and os.geteuid() != 0:
        pytest.skip("the row of this user is the one as root")
    if (lacks := kill.lacks()) is not None:
        pytest.skip(lacks)
    mounts = Path("/proc/self/mountinfo").read_text()
    for attempt in range(ATTEMPTS):
        with typing(kill) as run:
            struck = strike(run, kill, random.Random(f"{kill} {attempt}"))
            if not struck and attempt + 1 < ATTEMPTS:
                continue
            began = time.monotonic()
            if kill.verb in ENDS_BY_INTERRUPT and not kill.is_fatal:
                end_as_a_user(run)
            ends = kill.role == CLIENT or (kill.is_fatal and not kill.typed.workers)
            # Another verb may go on to its end, such as with all its other scenarios.
            patience = SOON if ends else OTHERS_PATIENCE if kill.typed.workers else PATIENCE
            wait_for(lambda: run.client.poll() is not None, f"the client to end; it says {output_of(run)!r}", patience)
            expect_said(kill, run, struck=struck)
            expect_nothing_left(kill, run)
            assert time.monotonic() - began < patience + SOON
            break
    assert Path("/proc/self/mountinfo").read_text() == mounts
    if not struck and kill.must_hit:
        pytest.fail(f"no {kill.role} was hit in {ATTEMPTS} runs: nothing is proven")


def end_as_a_user(run: Typing) -> None:
    """End what would go on until Ctrl-C, since its lab does."""
    try:
        run.client.wait(GOES_ON)
    except subprocess.TimeoutExpired:
        run.client.send_signal(signal.SIGINT)


def expect_said(kill: Kill, run: Typing, *, struck: bool) -> None:
    said, code = output_of(run), run.client.returncode
    assert "Traceback" not in said
    assert "has a bug" not in said
    told = WHO.findall(said)
    usual = kill.typed.codes | ({130, -2} if kill.verb in ENDS_BY_INTERRUPT else set())
    if not struck:
        assert code in usual, said
    elif kill.role == CLIENT:
        ends = OWN_CODES[kill.blow] | ({0} if kill.verb in ENDS_BY_INTERRUPT else set())
        assert code in ends or (kill.may_be_over and code in usual), f"{code}: {said}"
    elif kill.role in (COMMAND, PLACE):
        assert code in {*ExitCode, 128 + kill.blow, *usual}, f"{code}: {said}"
    elif kill.is_fatal and not kill.may_be_over:
        assert code == ExitCode.INTERNAL, f"{code}: {said}"
        assert len(told) == 1, said
    else:  # a process may handle or ignore the signal; or the verb was over
        assert code in {ExitCode.INTERNAL, *usual}, f"{code}: {said}"
        interrupted = kill.verb in ENDS_BY_INTERRUPT and code in {130, -2}  # perhaps while Python ended
        assert len(told) == (code == ExitCode.INTERNAL) or (interrupted and len(told) == 1), said


def expect_nothing_left(kill: Kill, run: Typing) -> None:
    """End what may stand, as a user would, and look for the rest."""
    if kill.stands_on and run.supervisor is not None and lives(run.supervisor):
        os.kill(run.supervisor, signal.SIGTERM)
    wait_for(lambda: not [*filter(lives, run.pids)] and not strays(run.folder), "all processes to end", SOON)
    if (run.folder / "run/proxylab").is_dir():
        assert (
            control_sockets_in(run.folder).names() == []
        )  # as the next verb looks: a killed supervisor leaves its name
    for folder in ("tmp", "run/proxylab"):
        left = {each.name for each in (run.folder / folder).rglob("*")}
        assert left <= {f"{LAB}.ended"}, f"{folder} has {left}"
    work = run.folder / "work"
    assert {each.name for each in work.iterdir()} <= MADE
    for report in work.glob("*.json"):
        json.loads(report.read_text())
    for page in work.glob("*.html"):
        assert page.read_text().rstrip().endswith("</html>")
