"""A detached lab outlives its client, answers only its owner, and leaves nothing behind."""

import os
import pty
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from command_line import CommandLine, TerminalOutput, Typed, lives, wait_for
from machine import command_of, descendants
from sandboxed import ORDINARY, ROOT, checkout_for, python_of

from proxylab.client.connection import Connection, ControlConnection
from proxylab.client.control_sockets import ControlSockets
from proxylab.client.standing_lab import attach_to
from proxylab.errors import CapabilityError
from proxylab.protocol.messages import Execute
from proxylab.timing import Deadline

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may become another user; run it as root")


def test_a_lab_runs_serves_one_client_after_another_and_ends(cli: CommandLine) -> None:
    assert "killed is running, with embedded/iptables, for 8h" in cli.up().output
    pids = set(descendants(cli.supervisor("killed")))
    roles = ["supervisor", "init", "lab process", "launcher", "process 1 of node-a", "process 1 of node-b"]
    assert len(pids) == len(roles) + (os.geteuid() == 0), "for root, a process that feeds confined commands, too"
    assert cli.type("ps", "-o", "name").output == "killed\n"
    assert cli.type("probe", "client", "echo").output.startswith("pass  delivered; endpoint 10.244.")  # on either node
    assert cli.type("probe", "client", "nobody", "--expect", "rejected").status == 0
    assert cli.type("probe", "client", "echo-1", "--icmp").output.startswith("pass  delivered; reply from ")
    assert cli.type("probe", "client", "echo-1", "--icmp", "--as", "connect").status == 2
    assert ":KUBE-SERVICES" in cli.type("rules", "node-b").output
    assert "client gets the reply" in cli.type("trace", "client", "echo").output
    assert cli.type("exec", "echo-1", "--", "hostname").output == "echo-1\n"
    assert cli.type("down").output == "killed is gone\n"
    wait_for(lambda: not any(map(lives, pids)), "every process to end")


def test_several_labs_stand_at_once_and_a_name_is_taken_once(cli: CommandLine) -> None:
    cli.up("--name", "one")
    cli.up("--name", "two", "--ttl", "90s")
    again = cli.type("up", str(ROOT / "tests/kernel/killed.lab.yaml"), "--name", "two")
    assert (again.status, "a lab 'two' runs already; stop it with `proxylab down two`" in again.errors) == (2, True)
    unsaid = cli.type("probe", "client", "echo")
    assert (unsaid.status, "2 labs are running; choose one with --lab: one, two" in unsaid.errors) == (2, True)
    assert cli.type("probe", "client", "echo", "--name", "two").status == 0
    table = cli.type("ps").output.splitlines()
    assert [line.split()[:2] for line in table[1:]] == [["one", "embedded/iptables"], ["two", "embedded/iptables"]]
    assert table[2].split()[3] in {"1m29s", "1m30s"}
    assert cli.type("down", "one").status == 0
    assert cli.type("probe", "client", "echo").status == 0, "the only one is meant"


def test_a_lab_ends_when_its_time_is_over(cli: CommandLine) -> None:
    cli.up("--ttl", "1s")
    wait_for(lambda: not list(cli.control_sockets.folder.iterdir()), "its time to be over")
    assert cli.type("ps").output == "no lab is running; start one with `proxylab up FILE`\n"


def test_a_lab_survives_the_terminal_that_made_it(cli: CommandLine) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        command = [sys.executable, "-m", "proxylab", "up", str(ROOT / "tests/kernel/killed.lab.yaml")]
        os.chdir(ROOT)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup(1) passes on that it is ignored, to the lab as well
        os.execv("/bin/sh", ["sh", "-c", '"$@"; kill -HUP 0; sleep 60', "sh", *command])
    said = b""
    while b"proxylab down" not in said:
        said += os.read(terminal, 4096)
    os.close(terminal)  # which sends SIGHUP to the commands that are left there
    os.waitpid(pid, 0)
    assert cli.type("probe", "client", "echo").status == 0


@pytest.mark.parametrize("role", ["supervisor", "init", "lab process", "launcher"])
def test_nothing_is_left_after_any_process_of_a_lab_is_killed(cli: CommandLine, role: str) -> None:
    cli.up()
    pids = cli.processes("killed")
    os.kill(pids[role], signal.SIGKILL)
    wait_for(lambda: not any(map(lives, pids.values())), "every process to end")
    wait_for(lambda: cli.type("ps", "-o", "name").output == "", "its name to be free")
    assert list(cli.control_sockets.folder.iterdir()) == []
    cli.up()


@pytest.mark.parametrize("moment", ["at once", "when the name is taken", "when there is a lab process"])
def test_nothing_is_left_of_a_lab_whose_maker_is_killed(cli: CommandLine, moment: str) -> None:
    maker = cli.start("up", str(ROOT / "tests/kernel/killed.lab.yaml"), stdout=subprocess.DEVNULL)
    pids: set[int] = set()

    def is_due() -> bool:
        pids.update(descendants(maker.pid))
        named = moment != "when the name is taken" or (cli.control_sockets.folder / "killed.sock").exists()
        return named and len(pids) >= (5 if moment == "when there is a lab process" else 1)

    wait_for(is_due, moment)
    maker.send_signal(signal.SIGSTOP)  # what it started since the last look is below it, and nothing more comes
    pids.update(descendants(maker.pid))
    maker.kill()
    maker.wait()
    wait_for(lambda: not any(map(lives, pids)), "every process to end")
    # A process of the lab may have started another one after the look. While it lives, the name is taken.
    wait_for(lambda: cli.type("ps", "-o", "name").output == "", "its name to be free")


def test_a_lab_that_hangs_is_ended_by_force(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxylab.cli.down._ASK_SECONDS", 0.3)
    monkeypatch.setattr("proxylab.cli.ps._ANSWER_SECONDS", 0.3)
    cli.up()
    pids = cli.processes("killed")
    os.kill(pids["lab process"], signal.SIGSTOP)
    assert "unresponsive" in cli.type("ps").output
    assert cli.type("down").output == "killed is gone\n"
    wait_for(lambda: not any(map(lives, pids.values())), "every process to end")


def test_only_the_owner_reaches_the_socket(cli: CommandLine) -> None:
    cli.up()
    folder = cli.control_sockets.folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "killed.sock").stat().st_mode) == 0o600
    folder.chmod(0o750)
    with pytest.raises(CapabilityError, match="belongs to another user, or is open to others"):
        ControlSockets(folder)
    folder.chmod(0o700)
    (cli.runtime / "elsewhere").symlink_to(folder)
    with pytest.raises(CapabilityError, match="set XDG_RUNTIME_DIR to a directory of your own"):
        ControlSockets(cli.runtime / "elsewhere")


@AS_ROOT
def test_a_lab_answers_only_its_owner_even_if_the_socket_is_open_to_all(cli: CommandLine) -> None:
    cli.up()
    path = cli.control_sockets.folder / "killed.sock"
    for each in (path, path.parent):
        each.chmod(0o777)
    program = f"""
import os, socket, sys
os.setresgid({ORDINARY}, {ORDINARY}, {ORDINARY}); os.setresuid({ORDINARY}, {ORDINARY}, {ORDINARY})
connection = socket.socket(socket.AF_UNIX)
connection.connect("killed.sock")  # in this directory, wherever that is
connection.settimeout(10)
sys.exit(0 if connection.recv(1) == b"" else 1)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=30, cwd=path.parent)
    path.parent.chmod(0o700)
    assert done.returncode == 0
    assert cli.type("probe", "client", "echo").status == 0


def test_clients_that_leave_during_a_request_harm_no_other_client(cli: CommandLine) -> None:
    cli.up()
    half = cli.control_sockets.connect("killed")
    half.send(b"\0\0\1")
    half.close()
    nonsense = cli.control_sockets.connect("killed")
    nonsense.send(b"\0\0\0\4null")
    line = ControlConnection(cli.control_sockets, "killed")
    line._channel.send(Execute("client", ("sleep", "0.2")), Deadline.after(5))
    line.close()
    assert cli.type("probe", "client", "echo").status == 0
    nonsense.close()


def test_what_a_killed_client_has_begun_is_brought_to_its_end(cli: CommandLine) -> None:
    cli.up()
    killed = ControlConnection(cli.control_sockets, "killed")
    killed._channel.send(Execute("client", ("sleep", "3")), Deadline.after(5))
    wait_for(lambda: cli.greeting("killed").busy, "the lab to be busy with it")
    killed.close()
    assert cli.greeting("killed").busy
    assert cli.type("probe", "client", "echo").status == 0


def test_a_command_ends_with_the_client_that_wanted_it(cli: CommandLine) -> None:
    cli.up()
    client = cli.start("exec", "client", "--", "sleep", "1000", stdin=subprocess.DEVNULL)
    launcher = cli.processes("killed")["launcher"]

    def sleeping() -> list[int]:
        return [pid for pid in descendants(launcher)[launcher] if b"sleep" in command_of(pid)]

    wait_for(lambda: bool(sleeping()), "the command to run")
    client.kill()
    client.wait()
    wait_for(lambda: not sleeping(), "the command to end")
    assert cli.type("probe", "client", "echo").status == 0


def test_clients_that_come_together_take_turns(cli: CommandLine) -> None:
    cli.up()
    status: list[int] = []

    def ask() -> None:
        with ControlConnection(cli.control_sockets, "killed") as line:
            lab = attach_to(line)
            status.append(lab.execute("client", "true").status)
            for probe in lab.scenario.probes:
                assert lab.probe(probe).overall.value == "pass"
            status.append(lab.execute("client", "false").status)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(status) == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_command_has_the_client_s_own_streams(cli: CommandLine, tmp_path: Path) -> None:
    cli.up()
    assert cli.type("exec", "node-a", "--", "sh", "-c", "echo out; echo err >&2; exit 7") == Typed(7, "out\n", "err\n")
    assert cli.type("exec", "node-a", "--", "no-such-command").status == 127
    assert cli.type("exec", "node-a", "--", "sh", "-c", "kill -9 $$").status == 137
    assert cli.type("exec", "nobody", "--", "true").status == 2
    (tmp_path / "in").write_bytes(bytes(range(256)) * 4096)
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as taken:
        copied = cli.start("exec", "-i", "client", "--", "cat", stdin=given, stdout=taken)
        assert copied.wait(60) == 0
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()
    shell = cli.start("shell", "echo-1", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert shell.communicate(b"hostname; cat /etc/resolv.conf; exit 5\n", 60)[0].startswith(b"echo-1\n")
    assert shell.returncode == 5


def test_a_signal_reaches_the_command(cli: CommandLine) -> None:
    cli.up()
    client = cli.start(
        "exec", "client", "--", "sh", "-c", "trap 'echo heard; exit 3' INT; echo ready; while :; do sleep 0.05; done",
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert client.stdout is not None
    assert client.stdout.readline() == b"ready\n"
    client.send_signal(signal.SIGINT)
    assert client.communicate(timeout=30)[0] == b"heard\n"
    assert client.returncode == 3


WATCH_THE_SIZE = """
stty size
until stty size | grep -q "44 102"; do sleep 0.02; done
stty size; read line; echo got $line
"""


def test_a_command_gets_a_terminal_as_large_as_the_user_s(cli: CommandLine) -> None:
    cli.up()
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    subprocess.run(["stty", "rows", "33", "cols", "101"], stdin=theirs, check=True)
    client = cli.start("exec", "-it", "client", "--", "sh", "-c", WATCH_THE_SIZE,
                        stdin=theirs, stdout=theirs, stderr=theirs)  # fmt: skip
    said = TerminalOutput(ours)
    wait_for(lambda: "33 101" in said.so_far(), "the size of the terminal")
    subprocess.run(["stty", "rows", "44", "cols", "102"], stdin=theirs, check=True)
    client.send_signal(signal.SIGWINCH)
    os.write(ours, b"hello\r")
    wait_for(lambda: "44 102" in said.so_far() and "got hello" in said.so_far(), "the new size")
    assert client.wait(30) == 0
    for each in (ours, theirs):
        os.close(each)


@AS_ROOT
def test_an_ordinary_user_s_lab_stays_too(tmp_path_factory: pytest.TempPathFactory) -> None:
    with checkout_for(ordinary=True) as (root, become):
        runtime = root.parent / f"{root.name}-run"
        runtime.mkdir(mode=0o700)
        os.chown(runtime, ORDINARY, ORDINARY)

        def type_(*arguments: str) -> "subprocess.CompletedProcess[str]":
            return subprocess.run(
                [*become, python_of(root), "-m", "proxylab", *arguments],
                env={**os.environ, "XDG_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(root / "lab"), "HOME": "/",
                     "PYTHONDONTWRITEBYTECODE": "1"},
                cwd="/", capture_output=True, text=True, check=False, timeout=60,
            )  # fmt: skip

        try:
            up = type_("up", str(root / "tests/kernel/killed.lab.yaml"))
            assert up.returncode == 0, up.stderr
            assert type_("exec", "client", "--", "hostname").stdout == "client\n"
            assert type_("probe", "client", "echo").returncode == 0
            with pytest.raises(ConnectionError):
                reach(runtime / "proxylab" / "killed.sock")
        finally:
            assert type_("down", "--all").returncode == 0
            assert list((runtime / "proxylab").iterdir()) == []
            (runtime / "proxylab").rmdir()
            runtime.rmdir()


def reach(path: Path) -> None:
    """Connect as root, who can reach any control socket, and send a request."""
    with Connection(_connected(path)) as line:
        try:
            line.request(Execute("client", ("true",)), Deadline.after(10))
        except Exception as error:
            raise ConnectionError from error


def _connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    return connection


def test_a_lab_of_hundreds_of_pods_is_gone_in_seconds(cli: CommandLine, tmp_path: Path) -> None:
    """The lab process does not close a thousand packet sockets one by one: the kernel waits for each close."""
    scenario = tmp_path / "large.lab.yaml"
    scenario.write_text(LARGE)
    cli.up(scenario=str(scenario))
    assert cli.type("probe", "echo-1", "echo-400").status == 0
    began = time.monotonic()
    assert cli.type("down").output == "large is gone\n"
    assert time.monotonic() - began < 5


LARGE = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: large}
spec:
  nodes: {node-1: {}, node-2: {}, node-3: {}, node-4: {}, node-5: {}, node-6: {}, node-7: {}, node-8: {}}
  pods:
    echo:
      replicas: 400
      nodes: [node-1, node-2, node-3, node-4, node-5, node-6, node-7, node-8]
      ports: [8080]
"""
