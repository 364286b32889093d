"""A soak: for an hour one lab process builds labs, and a standing lab gets traffic, commands and changes.

Memory, descriptors, namespaces, threads and processes must be level after the warm-up, a quarter of the time. They are
read after each round, when all of its labs are closed. Every verdict of every round must pass.

``PROXYLAB_SOAK_SECONDS`` changes the length of the long row; ``PROXYLAB_SOAK_FIGURES`` names a file for the figures.
"""

import gc
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from command_line import CommandLine
from killing import spaces_of
from machine import descendants
from sandboxed import ROOT

from proxylab.client.scenario_run import Run, ScenarioRuns
from proxylab.client.session import Session
from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario
from proxylab.scenario.model import Scenario

SECONDS = int(os.environ.get("PROXYLAB_SOAK_SECONDS", "3600"))
FIGURES = os.environ.get("PROXYLAB_SOAK_FIGURES", "")

ENGINE = "embedded/iptables"
FEW = (
    "clusterip/from-a-pod",
    "nodeport/traffic-policy-local",
    "steps/scaled-to-zero-under-streams",
    "workloads/an-update-without-grace",
)
MANY = 40
"""So many files of the catalogue, of all its folders, are the long row's."""

MOST_BYTES = 8 << 20
"""So much the memory of a process may grow from its lowest after the warm-up to its lowest at the end."""

Look = dict[str, int]
Account = dict[str, Look]
"""What each process holds, by its role."""


def _many() -> list[str]:
    names = sorted(str(file.relative_to(ROOT / "scenarios")) for file in (ROOT / "scenarios").rglob("*.lab.yaml"))
    return [name.removesuffix(".lab.yaml") for name in names[:: len(names) // MANY]][:MANY]


def held(pid: int) -> Look:
    """What a process and all below it hold. Memory is what no file backs: mapped libraries do not grow."""
    tree = descendants(pid)
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (anonymous,) = (int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon:"))
    return {
        "memory": anonymous,
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": len(os.listdir(f"/proc/{pid}/task")),
        "namespaces": len(spaces_of(pid)),
        "processes": len(tree),
    }


def roles_below(supervisor: int) -> Iterator[tuple[str, int]]:
    """The processes of a lab, from the supervisor down."""
    tree, pid = descendants(supervisor), supervisor
    for role in ("supervisor", "init", "lab process", "launcher"):
        yield role, pid
        pid = tree[pid][0] if tree[pid] else 0


class Rounds:
    """Rounds of the same work: labs of scenarios one after the other, then verbs at the standing lab."""

    def __init__(self, cli: CommandLine, session: Session, scenarios: Sequence[Scenario], folder: Path) -> None:
        self._cli = cli
        self._session = session
        self._runs = [Run(ENGINE, "", scenario, scenario.judged) for scenario in scenarios]
        self._runner = ScenarioRuns(lambda _: session)
        self._supervisor = cli.supervisor("killed")
        text = (ROOT / "tests/kernel/killed.lab.yaml").read_text(encoding="utf-8")
        self._files = [folder / "one.lab.yaml", folder / "two.lab.yaml"]
        self._files[0].write_text(text.replace("{app: nobody}, ports", "{app: echo}, ports"), encoding="utf-8")
        self._files[1].write_text(text, encoding="utf-8")

    def once(self) -> Account:
        """One round; returns what is held after it."""
        for run in self._runs:
            result = self._runner.result(run, lambda _: None, lambda _: None)
            assert result.fault is None, (run.scenario.file, result.fault)
            red = [each for each in (*result.probes, *result.steps) if each.overall.value not in ("pass", "skip")]
            assert not red, (run.scenario.file, red[0].reasons if hasattr(red[0], "reasons") else red[0])
        self._session.close_lab()
        for file in self._files:
            self._type("apply", "-f", str(file))
            self._type("probe", "client", "echo", "--flows", "20")
            self._type("probe", "client", "echo-1", "--icmp")
            self._type("exec", "echo-1", "--", "true")
        for arguments in (
            ("trace", "client", "echo"),
            ("rules", "node-a"),
            ("get", "svc"),
            ("logs", "node-b"),
            ("ps",),
        ):
            self._type(*arguments)
        gc.collect()
        return self._account()

    def _type(self, *arguments: str) -> None:
        typed = self._cli.type(*arguments)
        assert typed.status == 0, (arguments, typed)

    def _account(self) -> Account:
        found = {"client": held(os.getpid())}
        (process,) = self._session._processes.values()
        for whose, supervisor in (("builds", process.pid), ("stands", self._supervisor)):
            found |= {f"{role} that {whose}": held(pid) for role, pid in roles_below(supervisor)}
        return found


def growth(accounts: Sequence[Account]) -> Account:
    """By how much the lowest of the last third is above the lowest of the first: a leak raises it, a peak does not."""
    third = max(1, len(accounts) // 3)
    first, last = accounts[:third], accounts[-third:]
    return {
        role: {what: min(each[role][what] for each in last) - min(each[role][what] for each in first) for what in look}
        for role, look in accounts[0].items()
    }


@pytest.mark.parametrize(
    ("names", "seconds"),
    [
        pytest.param(FEW, 15, id="fifteen seconds"),
        # The same work on more scenarios, for an hour.
        pytest.param(_many(), SECONDS, id="long", marks=[pytest.mark.thorough, pytest.mark.timeout(SECONDS + 900)]),
    ],
)
def test_what_labs_hold_is_level(cli: CommandLine, tmp_path: Path, names: Sequence[str], seconds: int) -> None:
    scenarios = [
        case for name in names for case in cases(load_scenario(ROOT / "scenarios" / f"{name}.lab.yaml"), "iptables")[:1]
    ]
    cli.up()
    began, accounts, warm = time.monotonic(), list[Account](), 0
    with Session(EngineChoice()) as session:
        rounds = Rounds(cli, session, scenarios, tmp_path)
        while (passed := time.monotonic() - began) < seconds or len(accounts) - warm < 3:
            accounts.append(rounds.once())
            warm = len(accounts) if passed < seconds / 4 else warm
            if FIGURES:
                with Path(FIGURES).open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"seconds": round(passed), **accounts[-1]}) + "\n")
    found = growth(accounts[warm:])
    grown = {role: {what: by for what, by in look.items() if by > (MOST_BYTES if what == "memory" else 0)}
             for role, look in found.items()}  # fmt: skip
    assert not any(grown.values()), (grown, accounts[warm], accounts[-1])
