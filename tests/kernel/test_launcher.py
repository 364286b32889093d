"""Commands run in their namespaces, see only their node, pod or host, and cannot damage the lab."""

import asyncio
import os
from pathlib import Path
from typing import Any

from sandboxed import sandboxed
from small_plan import small_plan
from users import BOTH

from proxylab.errors import InternalError
from proxylab.kernel.netlink.build import realise
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.linux import mount
from proxylab.timing import Deadline, wait_until


async def where_am_i(launcher: Launcher) -> dict[str, Any]:
    with realise(small_plan()) as wiring:

        async def run(netns_name: str, *argv: str, stdin: bytes = b"") -> str:
            done = await launcher.run(
                wiring.namespaces[netns_name], argv, netns_name=netns_name, stdin=stdin, deadline=Deadline.after(10)
            )
            return f"{done.status}:{(done.stdout + done.stderr).decode().strip()}"

        return {
            "hostname": await run("pod-1", "hostname"),
            "first": await run("pod-1", "sh", "-c", "touch /run/mark; ls /run"),
            "second": await run("pod-1", "ls", "/run"),
            "elsewhere": await run("pod-2", "sh", "-c", "ls /run; hostname"),
            "stdin": await run("pod-1", "cat", stdin=b"x" * 300_000),
            "status": await run("pod-1", "sh", "-c", "exit 7"),
            "signal": await run("pod-1", "sh", "-c", "kill -9 $$"),
            "missing": await run("pod-1", "no-such-program"),
            "group": await run("pod-1", "sh", "-c", 'test "$(cut -d " " -f 5 /proc/$$/stat)" = $$ && echo own'),
            "netns": await run(
                "pod-1", "sh", "-c", "ls /sys/class/net >/dev/null; cut -d: -f1 /proc/net/dev | tail -n +3"
            ),
            "descriptors": await run("pod-1", "sh", "-c", "ls /proc/self/fd | wc -l"),
            "ours": os.uname().nodename,
        }


@BOTH
def test_a_command_sees_its_place_and_nothing_else(ordinary: bool) -> None:
    found = sandboxed(where_am_i, ordinary=ordinary)
    assert found["hostname"] == "0:pod-1"
    assert found["first"] == found["second"] == "0:mark", "the place keeps its /run from one command to the next"
    assert found["elsewhere"] == "0:pod-2", "another place has another /run"
    assert found["stdin"] == "0:" + "x" * 300_000
    assert found["status"] == "7:"
    assert found["signal"] == "-9:"
    assert found["missing"].startswith("127:no-such-program: ")
    assert found["group"] == "0:own"
    assert sorted(found["netns"][2:].split()) == ["eth0", "lo"]
    assert found["descriptors"] == "0:4", "stdin, stdout, stderr and the directory ls itself reads"
    assert found["ours"] == "proxylab", "the sandbox keeps its own name"


async def overdue(launcher: Launcher) -> dict[str, Any]:
    with realise(small_plan()) as wiring:
        netns = wiring.namespaces["pod-1"]
        try:
            await launcher.run(
                netns,
                ["sh", "-c", "trap '' TERM; sleep 1000 & echo $! >/run/pid; wait"],
                netns_name="pod-1",
                deadline=Deadline.after(0.3),
            )
            words = "it ended"
        except TimeoutError as error:
            words = str(error)
        gone = await launcher.run(
            netns,
            ["sh", "-c", "p=$(cat /run/pid); while kill -0 $p 2>/dev/null; do :; done; echo gone"],
            netns_name="pod-1",
            deadline=Deadline.after(5),
        )
        return {"words": words, "child": gone.stdout.decode()}


@BOTH
def test_an_overdue_command_is_killed_with_its_children(ordinary: bool) -> None:
    found = sandboxed(overdue, ordinary=ordinary)
    assert "sleep 1000" in found["words"]
    assert "pod-1 did not end in time and was killed" in found["words"]
    assert found["child"] == "gone\n"


# Each leaves the process group and the session of its command; the second's parent has ended, too; the third has
# moved to another network namespace.
RUNAWAYS = """
setsid sleep 1000 & echo $! >/run/pids
(setsid sh -c 'echo $$ >>/run/pids; exec sleep 1000' &)
setsid unshare --net sh -c 'echo $$ >>/run/pids; exec sleep 1000' &
while [ $(wc -l </run/pids) -lt 3 ]; do :; done; echo ready >/run/ready; wait
"""


async def runaways(launcher: Launcher) -> dict[str, Any]:
    with realise(small_plan()) as wiring:
        netns = wiring.namespaces["pod-1"]

        async def run(*argv: str) -> str:
            done = await launcher.run(netns, argv, netns_name="pod-1", deadline=Deadline.after(10))
            return done.stdout.decode().strip()

        other = asyncio.create_task(run("sleep", "1"))  # of another command, and untouched
        task = asyncio.create_task(run("sh", "-c", RUNAWAYS))
        await run("sh", "-c", "until [ -e /run/ready ]; do :; done")
        task.cancel()
        gone = "for p in $(cat /run/pids); do while kill -0 $p 2>/dev/null; do :; done; echo gone; done"
        return {"gone": await run("sh", "-c", gone), "other": await other}


@BOTH
def test_what_a_command_has_started_is_killed_with_it_wherever_it_has_gone(ordinary: bool) -> None:
    found = sandboxed(runaways, ordinary=ordinary)
    assert found["gone"].split() == ["gone"] * 3
    assert found["other"] == ""


# Files of the machine, and a sysctl of the command's own namespace.
WRITES = r"""
for file in /proc/sys/kernel/core_pattern /proc/sys/vm/swappiness; do
    sh -c "cat /dev/null >>$file" 2>&1 | grep -o 'Read-only file system\|Permission denied'
done
grep ' /proc/sys proc ro,' /proc/mounts | cut -d ' ' -f 2 | sort -u
echo 1 >/proc/sys/net/ipv4/ip_forward && cat /proc/sys/net/ipv4/ip_forward
"""


async def writes(launcher: Launcher) -> str:
    with realise(small_plan()) as wiring:
        done = await launcher.run(
            wiring.namespaces["pod-1"], ["sh", "-c", WRITES], netns_name="pod-1", deadline=Deadline.after(10)
        )
        return (done.stdout + done.stderr).decode()


@BOTH
def test_a_command_may_write_sysctls_of_its_place_and_none_of_the_machine(ordinary: bool) -> None:
    said = sandboxed(writes, ordinary=ordinary).splitlines()
    refused = "Permission denied" if ordinary or os.geteuid() else "Read-only file system"
    assert said == [refused, refused, "/proc/sys", "1"]


async def many_at_once(launcher: Launcher) -> list[str]:
    with realise(small_plan()) as wiring:
        netns = wiring.namespaces["pod-1"]
        done = await asyncio.gather(
            *(
                launcher.run(netns, ["echo", str(number)], netns_name="pod-1", deadline=Deadline.after(20))
                for number in range(300)
            )
        )
        return [one.stdout.decode().strip() for one in done]


@BOTH
def test_hundreds_of_commands_at_once_keep_their_answers_apart(ordinary: bool) -> None:
    assert sandboxed(many_at_once, ordinary=ordinary) == [str(number) for number in range(300)]


async def too_long_a_command(launcher: Launcher) -> list[str]:
    with realise(small_plan()) as wiring:
        netns = wiring.namespaces["pod-1"]
        try:
            await launcher.run(netns, ["echo", "x" * 200_000], netns_name="pod-1", deadline=Deadline.after(20))
            words = "it ran"
        except InternalError as error:
            words = str(error)
        after = await launcher.run(netns, ["echo", "alive"], netns_name="pod-1", deadline=Deadline.after(20))
        return [words, after.stdout.decode()]


def test_a_command_line_that_is_too_long_harms_no_other_command() -> None:
    words, after = sandboxed(too_long_a_command)
    assert "a command request has 200" in words
    assert after == "alive\n"


async def abandoned(launcher: Launcher) -> str:
    with realise(small_plan()) as wiring:
        netns = wiring.namespaces["pod-1"]
        sleeper = asyncio.create_task(
            launcher.run(
                netns, ["sh", "-c", "echo $$ >/run/pid; sleep 1000"], netns_name="pod-1", deadline=Deadline.after(99)
            )
        )
        waits = "until test -s /run/pid; do :; done"
        await launcher.run(netns, ["sh", "-c", waits], netns_name="pod-1", deadline=Deadline.after(20))
        sleeper.cancel()
        waits = "while kill -0 $(cat /run/pid) 2>/dev/null; do :; done; echo gone"
        done = await launcher.run(netns, ["sh", "-c", waits], netns_name="pod-1", deadline=Deadline.after(20))
        return done.stdout.decode()


def test_a_command_is_killed_when_its_caller_stops_waiting() -> None:
    assert sandboxed(abandoned) == "gone\n"


# It works on each datagram for a while before it says so, and never reads its second socket.
WORKS = """
import socket, time
read, unread = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
read.bind(("127.0.0.1", 5000))
unread.bind(("127.0.0.1", 5001))
print("ready", flush=True)
while read.recv(9):
    until = time.monotonic() + 0.05
    while time.monotonic() < until:
        pass
    print("done", flush=True)
"""
SENDS = """
import socket
for port in (5001, 5000):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port))
"""


async def still(launcher: Launcher) -> list[list[int]]:
    with realise(small_plan()) as wiring:
        netns, lines, seen = wiring.namespaces["pod-1"], [], []
        running = await launcher.start(netns, ["python3", "-c", WORKS], netns_name="pod-1", heard=lines.append)
        await wait_until(lambda: "ready" in lines, Deadline.after(20), "the program listens")
        for number in range(1, 11):
            await launcher.run(netns, ["python3", "-c", SENDS], netns_name="pod-1", deadline=Deadline.after(10))
            await wait_until(running.is_still, Deadline.after(10), "the program has nothing to do")
            seen.append([lines.count("done"), number])
        await running.stop(Deadline.after(5))
        return [*seen, [running.is_still(), False]]


def test_a_command_that_is_still_has_done_and_told_all_that_it_had_to_do() -> None:
    for found, expected in sandboxed(still):
        assert found == expected


async def surroundings(launcher: Launcher) -> dict[str, str]:
    with realise(small_plan()) as wiring:

        async def run(netns_name: str, *argv: str) -> str:
            done = await launcher.run(
                wiring.namespaces[netns_name], argv, netns_name=netns_name, deadline=Deadline.after(10)
            )
            return f"{done.status}:{(done.stdout + done.stderr).decode().strip()}"

        return {
            "devices": await run("node-a", "sh", "-c", "ls /sys/class/net | sort | xargs"),
            "resolv.conf": await run("pod-1", "cat", "/etc/resolv.conf"),
            "elsewhere": await run("pod-2", "cat", "/etc/resolv.conf"),
            "other files": await run("pod-1", "head", "-c", "4", "/etc/passwd"),
            "add": await run("pod-1", "ip", "netns", "add", "inner"),
            "exec": await run("pod-1", "ip", "netns", "exec", "inner", "sh", "-c", "ls /sys/class/net; ip -br link"),
            "list": await run("pod-1", "ip", "netns", "list"),
            "not there": await run("pod-2", "ip", "netns", "list"),
        }


@BOTH
def test_people_find_their_usual_surroundings(ordinary: bool) -> None:
    found = sandboxed(surroundings, ordinary=ordinary)
    assert found["devices"] == "0:eth0 lo pod-1 pod-2", "a node's own devices, not the machine's"
    assert (
        found["resolv.conf"]
        == found["elsewhere"]
        == "0:# This node, pod or host has no name server. With `dns: true` in its scenario's `spec`, pods have one."
    )
    assert found["other files"] == "0:root"
    assert found["add"] == "0:"
    assert found["exec"].startswith("0:lo\nlo ")
    assert found["list"] == "0:inner"
    assert found["not there"] == "0:", "what one place names, no other sees"


async def resolv_confs(launcher: Launcher) -> dict[str, str]:
    """What a command reads where the machine's own resolv.conf is a dangling link, a file, or missing."""
    found = {}
    with realise(small_plan()) as wiring:
        for number, target in enumerate(("/run/systemd/resolve/stub-resolv.conf", "/var/no/such", "file", "missing")):
            mount("tmpfs", "/etc", "tmpfs")  # in the sandbox's own mount namespace, which the launcher shares
            Path("/etc/other").write_text("other")
            if target == "file":
                Path("/etc/resolv.conf").write_text("nameserver 192.0.2.53")
            elif target != "missing":
                Path("/etc/resolv.conf").symlink_to(target)
            argv = ["sh", "-c", "cat /etc/resolv.conf /etc/other"]
            done = await launcher.run(
                wiring.namespaces["pod-1"], argv, netns_name=f"pod-1/{number}", deadline=Deadline.after(10)
            )
            found[target] = (done.stdout + done.stderr).decode()
    return found


@BOTH
def test_a_place_has_its_own_resolv_conf_whatever_the_machines_is(ordinary: bool) -> None:
    assert set(sandboxed(resolv_confs, ordinary=ordinary).values()) == {
        "# This node, pod or host has no name server. With `dns: true` in its scenario's `spec`, pods have one.\nother"
    }


async def laid_out(launcher: Launcher) -> dict[str, Any]:
    with realise(small_plan()) as wiring:
        netns, heard = wiring.namespaces["pod-1"], []
        for text in ("one", "two"):
            running = await launcher.start(
                netns,
                ["said", "-c", "cat /run/it/text; echo"],
                netns_name="pod-1",
                heard=heard.append,
                files={"/run/it/text": text},
                links={"/run/it/bin/said": "/bin/sh", "/run/it/bin/cat": "/bin/cat"},
                environment={"PATH": "/run/it/bin"},
            )
            await running.status
            await running.drained()
        refused = []
        for path in ("/tmp/it", "/run/../tmp/it"):
            try:
                await launcher.start(netns, ["true"], netns_name="pod-1", heard=heard.append, files={path: "it"})
            except InternalError as error:
                refused.append(str(error))
        return {"heard": heard, "refused": refused, "there": [each.name for each in Path("/run").iterdir()]}


@BOTH
def test_a_command_finds_what_was_laid_out_for_it_in_its_place(ordinary: bool) -> None:
    found = sandboxed(laid_out, ordinary=ordinary)
    assert found["heard"] == ["one", "two"]
    assert found["refused"] == [
        f"{path} is not in the private /run of pod-1, but a file of the machine"
        for path in ("/tmp/it", "/run/../tmp/it")
    ]
    assert "it" not in found["there"]


async def failed_starts(launcher: Launcher) -> list[int]:
    """The status of failed starts whose message no process reads, and of a command after them."""
    with realise(small_plan()) as wiring:
        netns = wiring.namespaces["pod-1"]
        found = []
        for argv in (["no-such-program"], ["true", "no\0word"], ["/etc"], ["true"]):
            reading, writing = os.pipe()
            os.close(reading)
            given = os.open(os.devnull, os.O_RDONLY)
            started = await launcher.start_attached(netns, argv, netns_name="pod-1", standard=(given, writing, writing))
            os.close(writing)
            os.close(given)
            found.append(await started.status)
        return found


@BOTH
def test_a_command_that_cannot_start_harms_no_other_command(ordinary: bool) -> None:
    assert sandboxed(failed_starts, ordinary=ordinary) == [127, 126, 126, 0]


async def forgotten(launcher: Launcher) -> str:
    """The answer of a launcher after a request to forget as many namespaces as the largest lab has, all at once."""
    with realise(small_plan()) as wiring:
        netns = wiring.namespaces["pod-1"]
        await launcher.run(netns, ["touch", "/run/mark"], netns_name="1/pod-1", deadline=Deadline.after(10))
        launcher.forget([f"1/{'pod' * 20}-{number}" for number in range(1024)] + ["1/pod-1"])
        done = await launcher.run(netns, ["ls", "/run"], netns_name="1/pod-1", deadline=Deadline.after(10))
        return done.stdout.decode()


@BOTH
def test_a_thousand_places_are_forgotten_at_once(ordinary: bool) -> None:
    assert sandboxed(forgotten, ordinary=ordinary) == "", "the place of that name is a new one"
