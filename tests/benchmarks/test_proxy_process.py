"""The proxy process of mode userspace beside a plain copy loop: many connections at once, and one with much data."""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import pytest

pytestmark = [pytest.mark.benchmark, pytest.mark.budget, pytest.mark.timeout(120)]

HERE = "127.0.0.1"
OTHERS = Path(__file__).with_name("copy_loop.py")
PROGRAM = "proxylab.engines.embedded.userspace.program"
CONNECTIONS = 1_000
BYTES = 100_000_000


@contextmanager
def running(*command: str, stdin: socket.socket | None = None) -> Iterator[IO[bytes]]:
    lab = str(Path(__file__).parents[2] / "lab")
    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=stdin,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": lab},
    )
    try:
        assert process.stdout is not None
        yield process.stdout
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def backend() -> Iterator[int]:
    with running(str(OTHERS), "serve") as said:
        yield int(said.readline())


@pytest.fixture
def many_files() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def relay_before(backend: int) -> Iterator[int]:
    with running(str(OTHERS), "relay", str(backend)) as said:
        yield int(said.readline())


@contextmanager
def process_before(backend: int) -> Iterator[int]:
    ours, theirs = socket.socketpair()
    with ours, running("-m", PROGRAM, HERE, "0.25", stdin=theirs):
        theirs.close()
        wanted = {"protocol": "TCP", "endpoints": [(HERE, backend)], "affinity": None, "node_port": 0}
        ours.sendall(json.dumps({"number": 1, "serve": {"web": wanted}, "close": []}).encode() + b"\n")
        yield json.loads(ours.makefile().readline())["ports"]["web"]


def seconds_for_connections(port: int) -> float:
    began = time.perf_counter()
    with ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection((HERE, port))) for _ in range(CONNECTIONS)]
        for number, client in enumerate(clients):
            client.sendall(b"%06d\n" % number)
        for number, client in enumerate(clients):
            assert client.recv(7, socket.MSG_WAITALL) == b"%06d\n" % number
    return time.perf_counter() - began


def seconds_for_data(port: int) -> float:
    began = time.perf_counter()
    with socket.create_connection((HERE, port)) as client:
        client.sendall(bytes(BYTES))
        client.shutdown(socket.SHUT_WR)
        assert int(client.makefile().readline()) == BYTES
    return time.perf_counter() - began


def test_a_thousand_connections_at_once(backend: int, many_files: None) -> None:
    with relay_before(backend) as port:
        floor = seconds_for_connections(port)
    with process_before(backend) as port:
        took = seconds_for_connections(port)
    print(f"{CONNECTIONS:,} connections: the process {took:.2f} s, a copy loop {floor:.2f} s")  # noqa: T201
    assert took <= 3 * floor + 0.5


def test_a_hundred_megabytes_through_one_connection(backend: int) -> None:
    with relay_before(backend) as port:
        floor = seconds_for_data(port)
    with process_before(backend) as port:
        took = seconds_for_data(port)
    print(f"100 MB: the process {took:.2f} s, a copy loop {floor:.2f} s")  # noqa: T201
    assert took <= 3 * floor + 0.5


def test_a_client_that_never_reads_slows_no_other(backend: int) -> None:
    with process_before(backend) as port:
        alone = seconds_for_data(port)
        with socket.create_connection((HERE, port)) as silent:
            silent.sendall(b"!")
            beside = seconds_for_data(port)
    print(f"100 MB: {alone:.2f} s alone, {beside:.2f} s beside a client that never reads")  # noqa: T201
    assert beside <= 2 * alone + 0.5
