"""Standard streams that are closed, or take nothing: one line on standard error, and the right exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxylab.errors import ExitCode

ROOT = Path(__file__).parents[3]
SCENARIO = "scenarios/clusterip/from-a-pod.lab.yaml"
VERBS = {
    "--help": "",
    "--version": "",
    "check": SCENARIO,
    "completion": "bash",
    "describe": f"{SCENARIO} node node-a",
    "engines": "",
    "get": f"{SCENARIO} svc -o yaml",
    "graph": SCENARIO,
    "plan": SCENARIO,
    "rules": f"{SCENARIO} --node node-a",
    "schema": "",
}
UNREADABLE = "check pyproject.toml"
FULL = "cannot write standard output: No space left on device; redirect it to another file\n"
CLOSED = "standard output is closed; redirect it to a file or to /dev/null\n"


def type_in(line: str, *, unbuffered: bool = False) -> tuple[int, str]:
    """The exit code of a shell's command line that begins with the verb, and what it says on standard error."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m proxylab {line}"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
        env=environment | ({"PYTHONUNBUFFERED": "1"} if unbuffered else {}),
    )
    return done.returncode, done.stderr


# Every verb prints by click.echo, as check does, and options like --help print by click's own code.
FIRST = ("--help", "check")


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=[] if verb in FIRST else [pytest.mark.thorough]) for verb in VERBS]
)
def test_every_verb_that_prints_says_that_nothing_can_be_written(verb: str) -> None:
    assert type_in(f"{verb} {VERBS[verb]} >/dev/full") == (ExitCode.SCENARIO, FULL)


def test_the_same_where_nothing_is_held_back() -> None:
    assert type_in(f"check {SCENARIO} >/dev/full", unbuffered=True) == (ExitCode.SCENARIO, FULL)


def test_closed_standard_output_is_refused_before_anything_is_done() -> None:
    assert type_in(f"check {SCENARIO} >&-") == (ExitCode.SCENARIO, CLOSED)
    assert type_in(f"check {SCENARIO} <&- >&- 2>&-") == (ExitCode.SCENARIO, "")


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "<&-"])
def test_the_exit_code_stands_whatever_becomes_of_the_other_streams(redirection: str) -> None:
    assert type_in(f"check {SCENARIO} {redirection}") == (ExitCode.OK, "")
    status, said = type_in(f"{UNREADABLE} {redirection}")
    assert (status, "Traceback" in said) == (ExitCode.SCENARIO, False)


@pytest.mark.parametrize("unbuffered", [False, True])
def test_output_that_a_limit_cuts_is_no_success(unbuffered: bool, tmp_path: Path) -> None:
    """write(2) takes the first part, and says nothing of the rest."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with (tmp_path / "out").open("w") as out:
        done = subprocess.run(
            ["bash", "-c", f"ulimit -f 1; exec {sys.executable} -B -m proxylab schema"],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            timeout=60,
            check=False,
            env=environment | ({"PYTHONUNBUFFERED": "1"} if unbuffered else {}),
        )
    assert done.returncode == ExitCode.CAPABILITY, done.stderr
    assert done.stderr == (
        "this machine lacks more KiB in a file; 'ulimit -f' allows 1; raise that limit with 'ulimit -f'\n"
    )
    assert (tmp_path / "out").stat().st_size == 1024
