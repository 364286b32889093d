"""The program that times connections, between sockets of this machine's loopback device."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import proxylab
from proxylab.traffic import connection_timer
from proxylab.traffic.connection_timer import ListeningServers, connect, meet

HERE = "127.0.0.1"


class Bench:
    """Listening servers, and the lab's end of the channel."""

    def __init__(self, stack: ExitStack, count: int) -> None:
        self.lab, channel = (stack.enter_context(each) for each in socket.socketpair())
        self.listeners = [stack.enter_context(socket.create_server((HERE, 0))) for _ in range(count)]
        self.servers = ListeningServers(self.listeners, channel)
        stack.callback(self.servers.epoll.close)

    def address(self, number: int) -> tuple[str, int]:
        host, port = self.listeners[number].getsockname()
        return host, port


@pytest.fixture
def bench() -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(stack, 2)


def test_the_first_connection_to_a_wanted_server_is_met_when_it_was_dialled(bench: Bench) -> None:
    begun: list[float] = []
    before = time.monotonic()
    met = meet(bench.servers, bench.address(1), {1}, lambda: begun.append(time.monotonic()))
    assert before < met < begun[0] < time.monotonic()
    assert len(begun) == 1


def test_a_connection_to_another_server_is_not_met(bench: Bench) -> None:
    """The lab speaks after the first dial, which gives up the wait."""
    with pytest.raises(EOFError):
        meet(bench.servers, bench.address(0), {1}, lambda: bench.lab.sendall(b"\n"))


RELAY = """
import socket, sys, time
front = socket.socket(fileno=int(sys.argv[1]))
old, new, count = map(int, sys.argv[2:])
for number in range(10_000):
    client, _ = front.accept()
    if number == count:
        print(time.monotonic(), flush=True)
    try:
        with socket.create_connection(("127.0.0.1", old if number < count else new)) as server:
            client.sendall(server.recv(4))
    except OSError:
        pass
    client.close()
"""
"""Stands for the proxy: after so many connections its rules change, which it says."""


def test_dials_go_on_until_rules_lead_to_the_wanted_server(bench: Bench) -> None:
    old = 20
    with ExitStack() as stack:
        front = stack.enter_context(socket.create_server((HERE, 0), backlog=1000))
        ports = [str(bench.address(each)[1]) for each in (0, 1)]
        relay = subprocess.Popen(
            [sys.executable, "-c", RELAY, str(front.fileno()), *ports, str(old)],
            pass_fds=[front.fileno()],
            stdout=subprocess.PIPE,
        )
        stack.callback(relay.communicate)
        stack.callback(relay.kill)
        began = time.monotonic()
        met = meet(bench.servers, front.getsockname(), {1}, lambda: None)
        assert relay.stdout is not None
        changed = float(relay.stdout.readline())
    assert began + old * 0.0002 < met < changed, "it is the dial behind the last one to the old server"


def test_each_connection_is_timed_in_order(bench: Bench) -> None:
    addresses = [bench.address(each % 2) for each in range(7)]
    found = connect(bench.servers, addresses)
    assert len(found["first"]) == len(found["established"]) == 7
    assert all(0 < each < 1 for each in (*found["first"], *found["established"]))
    assert found["seconds"] >= sum(found["first"])


def test_a_connection_of_others_is_not_taken_for_the_own(bench: Bench) -> None:
    """In mode userspace the proxy may still finish connections that an earlier client has given up."""
    with socket.create_connection(bench.address(0)) as other:
        other.sendall(b"\xff\xff\xff\xff")
        assert len(connect(bench.servers, [bench.address(0)])["first"]) == 1


def test_a_server_that_cannot_be_reached_ends_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_timer, "_PATIENCE_SECONDS", 0.2)
    with socket.create_server((HERE, 0)) as elsewhere, pytest.raises(TimeoutError, match="no connection came"):
        connect(bench.servers, [elsewhere.getsockname()])


def test_the_program_follows_orders_until_its_input_ends() -> None:
    ours, theirs = socket.socketpair()
    with socket.create_server((HERE, 0)) as listening, ours, theirs:
        program = subprocess.Popen(
            [sys.executable, "-m", "proxylab.traffic.connection_timer", "1"],
            stdin=theirs,
            env={"PYTHONPATH": str(Path(proxylab.__file__).parents[1])},
        )
        theirs.close()
        socket.send_fds(ours, [b"."], [listening.fileno()])
        answers = ours.makefile("rb")
        host, port = listening.getsockname()
        for _ in range(2):
            ours.sendall(json.dumps({"dial": [host, port], "until": [0]}).encode() + b"\n")
            assert json.loads(answers.readline()) == {"dialling": True}
            assert json.loads(answers.readline())["met"] <= time.monotonic()
        ours.sendall(json.dumps({"connect": [[host, port]] * 3}).encode() + b"\n")
        assert len(json.loads(answers.readline())["first"]) == 3
        ours.shutdown(socket.SHUT_WR)
        assert program.wait(10) == 0
        answers.close()
