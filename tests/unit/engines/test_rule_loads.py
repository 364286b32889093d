"""The scripts that stand in for nft and iptables-restore where a step lets loads of rules fail."""

import asyncio
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from proxylab.engines.rule_loads import NodeLoads
from proxylab.scenario.change import LoadFault, RuleLoads

SHOWS = '#!/bin/sh\nread -r text; echo "loaded $text by $*"\n'


class Written:
    """A launcher that notes what it writes into the node."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    async def run(self, *_: object, files: dict[str, str], **__: object) -> None:
        self.files |= files


def node_loads(folder: Path, launcher: Any) -> NodeLoads:
    programs = {}
    for name in ("nft", "iptables-restore", "ip6tables-restore"):
        (folder / name).write_text(SHOWS)
        (folder / name).chmod(0o755)
        programs[f"/run/iptables/{name}"] = str(folder / name)
    return NodeLoads(launcher, Any, "a", programs)  # type: ignore[arg-type]


def loaded(tmp_path: Path, change: RuleLoads | None, *argv: str) -> subprocess.CompletedProcess[str]:
    """What a command says that the node runs once loads have become so."""
    launcher = Written()
    loads = node_loads(tmp_path, launcher)
    asyncio.run(loads.become(RuleLoads(action=LoadFault.FAIL)))
    if change is not None:
        asyncio.run(loads.become(change))
    script = launcher.files[loads.instead_of(argv[0])].replace("/run/loads/fault", str(tmp_path / "fault"))
    (tmp_path / "fault").write_text(launcher.files["/run/loads/fault"])
    shell = shutil.which("sh") or "sh"
    command = [shell, "-c", script, argv[0], *argv[1:]]
    return subprocess.run(command, check=False, input="rules\n", text=True, capture_output=True)


@pytest.mark.parametrize(
    "argv",
    [
        ("nft", "-f", "-"),
        ("nft", "--file", "-"),
        ("iptables-restore", "--wait", "5", "--noflush"),
        ("/run/iptables/iptables-restore", "-w", "5"),
        ("ip6tables-restore", "--counters"),
    ],
)
def test_loads_fail_until_they_work_again(tmp_path: Path, argv: tuple[str, ...]) -> None:
    failed = loaded(tmp_path, None, *argv)
    assert failed.returncode == 1
    assert failed.stderr
    assert not failed.stdout
    again = loaded(tmp_path, RuleLoads(action=LoadFault.WORK), *argv)
    assert again.stdout == f"loaded rules by {' '.join(argv[1:])}\n"
    assert again.returncode == 0


@pytest.mark.parametrize(
    "argv", [("nft", "list", "tables"), ("nft", "--check", "-f", "-"), ("iptables-restore", "--version")]
)
def test_what_loads_no_rules_passes(tmp_path: Path, argv: tuple[str, ...]) -> None:
    assert loaded(tmp_path, None, *argv).returncode == 0


def test_a_slow_load_is_a_load(tmp_path: Path) -> None:
    assert loaded(tmp_path, RuleLoads(delay=10), "nft", "-f", "-").stdout == "loaded rules by -f -\n"


def test_a_node_without_a_fault_runs_its_own_programs(tmp_path: Path) -> None:
    loads = node_loads(tmp_path, Written())
    assert loads.instead_of("iptables-nft-restore") == "iptables-nft-restore"
    assert loads.links == {"/run/iptables/nft": str(tmp_path / "nft")}
