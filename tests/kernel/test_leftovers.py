"""A closed lab holds nothing; the report names what still does; and labs in a row cost nothing."""

import gc
import os
import re
import signal
import socket
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from sandboxed import sandboxed
from scenario_cases import frontend, probe, two_nodes
from small_plan import small_plan
from users import BOTH, EITHER

from proxylab.engines.protocol import EngineChoice
from proxylab.kernel.netlink.build import realise
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.leftovers import end_processes, leftovers, remember_namespaces
from proxylab.kernel.sandbox.linux import MS_BIND, MS_REMOUNT, mount
from proxylab.kernel.sandbox.netns import inside
from proxylab.kernel.sandbox.origins import Origins
from proxylab.plan.assembly import assemble
from proxylab.protocol.messages import Build, Close, Execute, Failed, Response, SendProbe
from proxylab.server.event_loop import _RequestHandler
from proxylab.timing import Deadline, wait_until

LABS = int(os.environ.get("LAB_MANY_LABS", "40"))
WARM = LABS // 2  # until then dictionaries and caches of Python grow, a kilobyte a lab
SOME = 5


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def held_on_purpose(_: Launcher) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with realise(small_plan()) as wiring:
        closed = remember_namespaces("lab 7", wiring.namespaces)
        found["standing"] = len(leftovers(closed))
        with inside(wiring.namespaces["pod-1"]):
            kept = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        copy = os.dup(wiring.namespaces["node-b"].fd)
        waiting, closed_by_exec = os.pipe()
        told, tells = os.pipe()
        parent = os.fork()
        if parent == 0:
            if (child := os.fork()) == 0:
                with inside(wiring.namespaces["pod-2"]):
                    os.execvp("sleep", ["sleep", "1000"])
            os.write(tells, str(child).encode())
            os._exit(0)  # no command is a child of the lab process
        os.waitpid(parent, 0)
        pid = int(os.read(told, 20))
        os.close(told)
        os.close(tells)
        os.close(closed_by_exec)
        assert os.read(waiting, 1) == b"", "end of file: it is the command now, and in its place"
        # Its name changes a moment after its descriptors close (begin_new_exec, fs/exec.c).
        named = Path(f"/proc/{pid}/comm")
        await wait_until(lambda: named.read_text() == "sleep\n", Deadline.after(10), "the command's name")
    found["left"] = sorted(each.rpartition(" in ")[2] for each in leftovers(closed))
    found["process"] = [each for each in leftovers(closed) if each.startswith("process")]
    end_processes(closed)
    await wait_until(lambda: not named.exists(), Deadline.after(10), "the command's end")
    kept.close()
    os.close(copy)
    found["in the end"] = leftovers(closed)
    return found


@BOTH
def test_whatever_holds_a_namespace_is_found_and_named_by_it(ordinary: bool) -> None:
    found = sandboxed(held_on_purpose, ordinary=ordinary)
    assert found["standing"] >= 10, "descriptors and route sockets of five namespaces"
    assert found["left"] == ["node-b", "pod-1", "pod-2"]
    assert len(found["process"]) == 1
    assert "(sleep)" in found["process"][0]
    assert found["in the end"] == []


async def starting_a_command(_: Launcher) -> bool:
    """Whether a child of the lab process outlives the end of a lab in whose namespace it is, as the launcher may be."""
    with realise(small_plan()) as wiring:
        closed = remember_namespaces("lab 7", wiring.namespaces)
        child = os.fork()
        if child == 0:
            with inside(wiring.namespaces["node-a"]):
                os.execvp("sleep", ["sleep", "1000"])
        named = Path(f"/proc/{child}/comm")
        await wait_until(lambda: named.read_text() == "sleep\n", Deadline.after(10), "the child's name")
    end_processes(closed)
    lives = os.waitpid(child, os.WNOHANG) == (0, 0)
    os.kill(child, signal.SIGTERM)
    return lives and os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGTERM


def test_the_launcher_lives_on_when_a_build_fails_while_it_starts_a_command() -> None:
    assert sandboxed(starting_a_command)


def build() -> tuple[Build, Any]:
    assembly = assemble(two_nodes(probe("p", "sender", frontend())))
    choice = EngineChoice(cluster_cidrs=assembly.scenario.network.pod_cidrs)
    return Build(assembly.plan, assembly.objects, choice), assembly


def kept_in(handler: _RequestHandler, netns_name: str) -> socket.socket:
    with inside(handler._current_lab().network.wiring.namespaces[netns_name]):
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


# Leaves its namespace, its session and its process group.
ELSEWHERE = "setsid unshare --net sleep 1000 >/dev/null 2>&1 & while ! grep -lsx sleep /proc/[0-9]*/comm; do :; done"


async def a_desk_that_leaks(launcher: Launcher) -> dict[str, Any]:
    """A closed lab and a replaced lab, each with a leftover; and a lab without one."""
    origins = Origins()
    origins.watch()
    handler = _RequestHandler(launcher, origins, gone_seconds=1)  # the deliberate leftovers never go
    request, _ = build()
    assert isinstance(await handler.answer(request), Response)
    for command in ("sleep 1000 >/dev/null 2>&1 &", ELSEWHERE):
        done = await handler.answer(Execute("echo-1", ("sh", "-c", command)))
        assert isinstance(done, Response)
    kept = kept_in(handler, "echo-2")
    found = {"closed": words(await handler.answer(Close()))}
    kept.close()
    assert isinstance(await handler.answer(Close()), Response)

    assert isinstance(await handler.answer(request), Response)
    kept = kept_in(handler, "echo-2")
    assert isinstance(await handler.answer(request), Response)
    found["replaced"] = words(await handler.answer(request))
    kept.close()
    assert isinstance(await handler.answer(request), Response)
    a_file = os.open(__file__, os.O_RDONLY)
    stop = threading.Event()

    def stay() -> None:
        stop.wait()

    a_thread = threading.Thread(target=stay, name="stays")
    a_thread.start()
    found["at large"] = words(await handler.answer(Close()))
    os.close(a_file)
    stop.set()
    a_thread.join()
    assert isinstance(await handler.answer(Close()), Response)
    return found


def words(answer: object) -> str:
    assert isinstance(answer, Failed), answer
    return answer.fault.words[0]


@EITHER
def test_a_run_that_leaves_something_fails_and_names_who_made_it(ordinary: bool) -> None:
    found = sandboxed(a_desk_that_leaks, ordinary=ordinary)
    here = r".*tests/kernel/test_leftovers.py:\d+"
    made = r"descriptor \d+ \(socket:\[\d+\]\), made by .*tests/kernel/test_leftovers.py:\d+"
    assert re.fullmatch(rf"lab 1 was closed and left behind: {made}, in echo-2", found["closed"]), found["closed"]
    assert re.fullmatch(rf"lab 2 was closed and left behind: {made}, in echo-2", found["replaced"]), found["replaced"]
    assert re.fullmatch(
        rf"all labs were closed and left behind: descriptor \d+ \(.*test_leftovers.py\), made by {here}; "
        rf"thread 'stays', at {here}",
        found["at large"],
    ), found["at large"]


async def many_labs(launcher: Launcher) -> dict[str, Any]:
    """Labs in a row, each with rules, a probe and a command; the resources after some of them and after the last.

    The least of several labs counts: a thread that has closed a tap may hold the tap's memory for a moment longer.
    """
    if os.getuid() == 0 and Path("/proc/self/uid_map").read_text().split()[1] != "0":
        # The user namespace's own bound: were namespaces not taken apart, they would run out.
        mount("none", "/proc/sys", "", MS_BIND | MS_REMOUNT)
        Path("/proc/sys/user/max_net_namespaces").write_text("200")
    handler = _RequestHandler(launcher)
    request, assembly = build()
    states: list[tuple[int, int, int]] = []
    tracemalloc.start()
    for number in range(LABS):
        answers = [await handler.answer(request), await handler.answer(SendProbe(assembly.resolved_probes[0]))]
        answers += [await handler.answer(Execute("echo-1", ("true",))), await handler.answer(Close())]
        assert [type(answer) for answer in answers] == [Response] * 4, answers
        if WARM <= number < WARM + SOME or number >= LABS - SOME:
            del answers
            gc.collect()
            states.append((open_descriptors(), threading.active_count(), tracemalloc.get_traced_memory()[0]))
    before, after = (list(map(min, zip(*some, strict=True))) for some in (states[:SOME], states[SOME:]))
    return {
        "descriptors": after[0] - before[0],
        "threads": after[1] - before[1],
        "bytes a lab": (after[2] - before[2]) / (LABS - SOME - WARM),
    }


@pytest.mark.thorough  # the lab process counts the descriptors, threads and processes of each lab that it closes
@EITHER
@pytest.mark.timeout(60 + 3 * LABS)
def test_labs_in_a_row_cost_nothing(ordinary: bool) -> None:
    found = sandboxed(many_labs, ordinary=ordinary, seconds=60 + 3 * LABS)
    assert found["descriptors"] == 0
    assert found["threads"] <= 0
    assert found["bytes a lab"] < 1024
