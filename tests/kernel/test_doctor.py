"""The doctor agrees with independent trials, and names the cure where nothing works."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sandboxed import ROOT, checkout_for, python_of, sandboxed
from users import BOTH

from proxylab.kernel.capabilities import examine
from proxylab.kernel.sandbox.launcher import Completed, Launcher
from proxylab.kernel.sandbox.netns import NetNs


def doctor(*argv: str, ordinary: bool = False, within: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    with checkout_for(ordinary=ordinary) as (root, become):
        return subprocess.run(
            [*become, *within, python_of(root), "-m", "proxylab", "doctor", *argv],
            capture_output=True,
            text=True,
            check=False,
            cwd="/",
            env={**os.environ, "PYTHONPATH": str(root / "lab")},
        )


@cache
def found(**how: Any) -> dict[str, dict[str, Any]]:
    """What it says as JSON, once for each user: it tries the kernels of guests, too."""
    done = doctor("-o", "json", **how)
    assert done.returncode == 0, done.stdout + done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)["capabilities"]}


def works(*argv: str) -> bool:
    """Whether a command succeeds in a network namespace of its own."""
    return subprocess.run(["unshare", "--net", *argv], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for the other side of the comparison; run it as root")
def test_it_finds_what_others_find() -> None:
    capabilities = found(ordinary=False)
    assert [each["found"] for each in capabilities.values() if "\n" in each["found"]] == [], "each finding is a line"
    sctp = "import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)"
    assert {name: capabilities[name]["works"] for name in ("dummy devices", "VXLAN devices", "SCTP sockets")} == {
        "dummy devices": works("ip", "link", "add", "d", "type", "dummy"),
        "VXLAN devices": works("ip", "link", "add", "v", "type", "vxlan", "id", "1", "dstport", "8472"),
        "SCTP sockets": works(sys.executable, "-c", sctp),
    }


@BOTH
def test_what_labs_are_built_of_is_there_and_every_lack_has_a_cost_and_a_cure(ordinary: bool) -> None:
    capabilities = found(ordinary=ordinary)
    assert [name for name, each in capabilities.items() if each["required"]] == [
        "a sandbox",
        "/proc",
        "veth pairs",
        "bridges",
        "packet sockets",
    ]
    assert [name for name, each in capabilities.items() if each["required"] and not each["works"]] == []
    assert [
        name for name, each in capabilities.items() if not each["works"] and not (each["cost"] and each["cure"])
    ] == []


def test_the_text_names_each_lack_with_its_cure() -> None:
    text = " ".join(doctor().stdout.split())  # the output breaks lines at 80 columns
    for name, each in found(ordinary=False).items():
        assert name in text
        assert (f"fix: {each['cure']}" in text) is not each["works"] or not each["cure"]
    assert "this machine can run labs" in text


# Root without capabilities, in a user namespace that allows no other.
CAGE = 'echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all "$@"'


def test_without_a_sandbox_that_is_the_one_finding() -> None:
    cage = ("unshare", "--user", "--map-root-user", "sh", "-c", CAGE, "sh")
    done = doctor("-o", "json", within=cage)
    document = json.loads(done.stdout)
    assert done.returncode == 4
    assert document["labs"] is False
    assert [each["name"] for each in document["capabilities"]] == ["a sandbox"]
    assert "sudo sysctl -w user.max_user_namespaces" in document["capabilities"][0]["cure"]
    text = doctor(within=cage)
    assert text.returncode == 4
    assert "this machine cannot run labs: a sandbox missing" in text.stdout


def test_the_lines_for_ci_need_no_lab() -> None:
    done = doctor("--ci", within=("env", "PATH=/nonexistent"))
    assert done.returncode == 0
    for word in ("GitHub Actions", "GitLab", "docker run", "apparmor_restrict_unprivileged_userns"):
        assert word in done.stdout
    assert str(ROOT) not in done.stdout


class _Struck:
    """A launcher whose command of that number is, before its first instruction, what this signal makes of a process."""

    def __init__(self, launcher: Launcher, number: int, blow: signal.Signals) -> None:
        self._launcher = launcher
        self._number, self._blow = number, blow
        self.path_of, self.make_netns, self.forget = launcher.path_of, launcher.make_netns, launcher.forget

    async def run(self, netns: NetNs, argv: Sequence[str], **rest: Any) -> Completed:
        self._number -= 1
        if self._number == 0:
            argv = ("sh", "-c", f"kill -{self._blow.value} $$")
        return await self._launcher.run(netns, argv, **rest)


_WITH_COMMANDS = ("iptables legacy", "iptables nft", "ip6tables", "nftables", "ipset", "nginx", "openssl")


async def each_command_struck(launcher: Launcher) -> list[tuple[str, int, bool, str]]:
    """Each trial that starts commands, the number of the one that is struck, and what is found."""
    found = []
    for name in _WITH_COMMANDS:
        for number in (1, 2):
            for blow in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL):
                struck = _Struck(launcher, number, blow)
                (each,) = await examine(struck, [name])  # type: ignore[arg-type]  # it has all that is called
                found.append((name, number, each.works, each.found))
    return found


@BOTH
def test_a_signal_to_any_command_of_a_trial_is_a_finding(ordinary: bool) -> None:
    found = sandboxed(each_command_struck, ordinary=ordinary)
    assert len(found) == len(_WITH_COMMANDS) * 8
    for name, number, works_so, told in found:
        assert told, (name, number)
        assert not (works_so and number == 1) or name == "ip6tables", (name, told)  # which tries the other variant


def test_sigint_to_a_lab_process_that_python_only_starts_is_ignored(tmp_path: Path) -> None:
    # Python imports this module before its first line of proxylab (``site``).
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\nif 'proxylab.server.main' in sys.orig_argv:\n    os.kill(os.getpid(), signal.SIGINT)\n"
    )
    given = os.pathsep.join([str(ROOT / "lab"), str(tmp_path)])
    done = subprocess.run(
        [sys.executable, "-m", "proxylab", "doctor", "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": given, "XDG_CACHE_HOME": str(tmp_path)},
    )
    assert done.stderr == ""
    assert done.returncode == 0
