"""A standing lab with a process that does not run, or that has ended: clients say which, can be ended, and end it."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command_line import SCENARIO, CommandLine, lives, wait_for
from machine import command_of, descendants
from sandboxed import ROOT
from verb_kills import BUILDING, OTHER, TABLE, Kill, output_of, strays, strike, typing

from proxylab.errors import ExitCode

ROLES = ("supervisor", "init", "lab process", "launcher")
# The process that clients speak to, and the one that speaks to none.
EACH = [role if role in ("lab process", "init") else pytest.param(role, marks=pytest.mark.thorough) for role in ROLES]
SOON = 20.0
"""Two seconds on a quiet machine, and the start of Python: far less than the minutes that a client waited before."""


def complaint(client: "subprocess.Popen[bytes]") -> str:
    """The line of the client's standard error that says which process is stopped."""
    assert client.stderr is not None
    return next(line for line in map(bytes.decode, client.stderr) if "is stopped" in line)


@pytest.mark.parametrize("role", EACH)
def test_a_command_in_a_lab_with_a_stopped_process_says_so_and_ends_by_a_signal(cli: CommandLine, role: str) -> None:
    cli.up()
    processes = cli.processes("killed")
    os.kill(processes[role], signal.SIGSTOP)
    client = cli.start("exec", "client", "--", "sleep", "1000", stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    with client:
        line = complaint(client)
        assert f"its {role} (pid {processes[role]}) is stopped; Ctrl-C ends this wait" in line
        assert line.startswith("the lab killed has not answered since ")
        client.send_signal(signal.SIGINT)
        assert client.wait(SOON) == 130
    began = time.monotonic()
    assert cli.type("down", "killed").output == "killed is gone\n"
    assert time.monotonic() - began < SOON
    wait_for(lambda: not any(map(lives, processes.values())), "the lab's processes to end")


NEITHER_WAITS = {"down", "ps"}
"""They ask a lab that may not answer, and say so or end it."""


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, *(pytest.param(each, marks=pytest.mark.thorough) for each in (signal.SIGTERM, signal.SIGHUP))],
)
def test_every_verb_at_a_stopped_lab_says_so_and_a_second_signal_ends_it(cli: CommandLine, number: int) -> None:
    cli.up()
    process = cli.processes("killed")["lab process"]
    os.kill(process, signal.SIGSTOP)
    words = {
        verb: typed.words.replace(OTHER, SCENARIO).split()
        for verb in sorted(set(TABLE) - NEITHER_WAITS)
        for typed in TABLE[verb]
        if typed.lab == "standing"
    }
    clients = {
        verb: cli.start(verb, *more, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) for verb, more in words.items()
    }
    try:
        for verb, client in clients.items():
            assert f"its lab process (pid {process}) is stopped" in complaint(client), verb
        for _ in range(2):
            for client in clients.values():
                client.send_signal(number)
            time.sleep(1)  # a user who types Ctrl-C twice
        for verb, client in clients.items():
            assert client.wait(SOON) in {130, -number}, verb
    finally:
        for client in clients.values():
            client.kill()
            client.communicate()
    assert cli.type("down", "killed").output == "killed is gone\n"


def stops() -> list[object]:
    """A stop in the lab of each verb that has one of its own; each verb stops another role than the one before it."""
    verbs = [(verb, typed) for verb in TABLE for typed in TABLE[verb] if typed.lab == "own"]
    return [
        pytest.param(
            Kill(verb, typed, ROLES[number % len(ROLES)], BUILDING, signal.SIGSTOP, ordinary=False),
            id=f"{ROLES[number % len(ROLES)]} of {verb}",
            marks=[pytest.mark.thorough] if number else [],
        )
        for number, (verb, typed) in enumerate(verbs)
    ]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("stop", stops())
def test_a_verb_whose_own_lab_is_stopped_says_so_and_a_second_ctrl_c_ends_it(stop: Kill) -> None:
    if (lacks := stop.lacks()) is not None:
        pytest.skip(lacks)
    with typing(stop) as run:
        assert strike(run, stop, random.Random(str(stop)))
        line = f"its {stop.role} (pid "
        wait_for(
            lambda: line in output_of(run) or (stop.role != "lab process" and run.client.poll() is not None),
            "the line, or the end of a verb that needs the stopped process no more",
            lambda: output_of(run),
        )
        if run.client.poll() is None:
            for _ in range(2):
                run.client.send_signal(signal.SIGINT)
                time.sleep(1)
            assert run.client.wait(SOON) in {130, -signal.SIGINT}
        else:
            assert run.client.returncode in stop.typed.codes
        assert "Traceback" not in output_of(run)
        wait_for(lambda: not strays(run.folder), "the lab's processes to end")


@pytest.mark.parametrize("role", ["lab process", "launcher"])
def test_a_client_goes_on_when_the_stopped_process_does(cli: CommandLine, role: str) -> None:
    cli.up()
    processes = cli.processes("killed")
    os.kill(processes[role], signal.SIGSTOP)
    client = cli.start("probe", "client", "echo", stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    with client:
        assert f"(pid {processes[role]}) is stopped" in complaint(client)
        os.kill(processes[role], signal.SIGCONT)
        assert client.wait(60) == 0


def test_ps_says_which_process_of_a_lab_is_stopped(cli: CommandLine) -> None:
    cli.up()
    process = cli.processes("killed")["lab process"]
    os.kill(process, signal.SIGSTOP)
    assert f"its lab process (pid {process}) is stopped; `proxylab down` stops it" in cli.type("ps").output


@pytest.mark.parametrize("role", EACH)
def test_verbs_at_a_lab_that_was_killed_say_who_died_and_exit_with_3(cli: CommandLine, role: str) -> None:
    cli.up()
    client = cli.start("logs", "node-a", "--follow", stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdout is not None
    client.stdout.readline()
    processes = cli.processes("killed")
    os.kill(processes[role], signal.SIGKILL)
    told = client.communicate(timeout=SOON)[1].decode()
    assert client.returncode == ExitCode.INTERNAL
    who = "its launcher, which starts commands, ended" if role == "launcher" else f"ended its {role}"
    assert told.count("\n") == 1
    assert told.startswith("the lab killed ended before it could go on: ")
    assert who in told
    wait_for(lambda: not any(map(lives, processes.values())), "the lab's processes to end")


def test_the_first_verb_after_a_lab_was_killed_says_so(cli: CommandLine) -> None:
    cli.up()
    processes = cli.processes("killed")
    os.kill(processes["lab process"], signal.SIGKILL)
    wait_for(lambda: not lives(processes["supervisor"]), "the lab to end")
    typed = cli.type("get", "pods", "--name", "killed")
    assert typed.status == ExitCode.INTERNAL
    assert typed.errors == (
        "the lab killed has ended: SIGKILL ended its lab process; start it again with `proxylab up FILE`\n"
    )
    assert cli.type("get", "pods", "--name", "killed").status == ExitCode.SCENARIO, "said once, the note is gone"


def test_a_killed_proxy_process_is_named_until_a_change_starts_another(cli: CommandLine, tmp_path: Path) -> None:
    cli.up("--engine", "embedded/userspace")
    tree = descendants(cli.processes("killed")["supervisor"])
    killed = [pid for pid in tree if b"embedded.userspace.program" in command_of(pid)]
    os.kill(killed[0], signal.SIGKILL)
    wait_for(lambda: not lives(killed[0]), "the process to end")
    said = "its proxy process was killed by signal 9"
    assert said in cli.type("ps").output
    asked = cli.type("probe", "client", "echo")
    assert (asked.status, said in asked.errors) == (ExitCode.FAILED, True), asked.errors
    edited = tmp_path / "edited.lab.yaml"
    text = (ROOT / "tests/kernel/killed.lab.yaml").read_text()
    edited.write_text(text.replace("selector: {app: nobody}, ports: [{port: 80}]",
                                   "selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]"))  # fmt: skip
    assert cli.type("apply", "-f", str(edited)).status == 0
    assert cli.type("probe", "client", "echo").status == 0
    assert said not in cli.type("ps").output


@pytest.mark.parametrize(
    ("scenario", "options", "dialled", "program", "name"),
    [
        ("ingress/endpoints-change", (), "client shop", b"nginx: master", "nginx in pod "),
        pytest.param(
            "dns/cluster-ip-by-name",
            ("--name-server", "coredns"),
            "here web",
            b"/coredns\0-conf",
            "CoreDNS in pod ",
            marks=pytest.mark.needs_coredns,
        ),
    ],
    ids=["nginx", "CoreDNS"],
)
def test_a_killed_program_of_a_pod_is_named(
    cli: CommandLine, scenario: str, options: tuple[str, ...], dialled: str, program: bytes, name: str
) -> None:
    up = cli.type("up", str(ROOT / f"scenarios/{scenario}.lab.yaml"), "--name", "killed", *options)
    if up.status == ExitCode.CAPABILITY:
        pytest.skip(f"needs {up.errors.partition('this machine lacks ')[2].strip()}")
    assert up.status == 0, up.errors
    tree = descendants(cli.processes("killed")["supervisor"])
    killed = [pid for pid in tree if program in command_of(pid)]
    os.kill(killed[0], signal.SIGKILL)
    wait_for(lambda: not lives(killed[0]), "the process to end")
    wait_for(lambda: "was killed by signal 9" in cli.type("ps").output, "ps to say it")
    assert name in cli.type("ps").output
    asked = cli.type("probe", *dialled.split())
    assert asked.status == ExitCode.FAILED, asked.errors
    assert name in asked.errors
    assert "was killed by signal 9" in asked.errors


def test_watch_ends_when_a_process_of_its_lab_is_killed(cli: CommandLine) -> None:
    client = cli.start("watch", "tests/kernel/killed.lab.yaml", stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    assert client.stdout is not None
    for line in client.stdout:
        if b" ran in " in line:
            break
    os.kill(cli.processes("killed")["lab process"], signal.SIGKILL)
    told = client.communicate(timeout=SOON)[1].decode()
    assert client.returncode == ExitCode.INTERNAL
    assert "the lab process ended before it could take the next save: SIGKILL ended its lab process" in told
    assert "Traceback" not in told


def test_open_and_idle_connections_keep_no_client_out(cli: CommandLine) -> None:
    cli.up()
    idle = [cli.control_sockets.connect("killed") for _ in range(200)]
    try:
        assert cli.type("probe", "client", "echo").status == 0
    finally:
        for each in idle:
            each.close()
