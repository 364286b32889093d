"""The broken scenarios of ``tests/golden/scenario``: a whole scenario, and a list of changes that each break it."""

from dataclasses import dataclass
from pathlib import Path

from proxylab.scenario.model import Scenario

_GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "scenario"
BASE = (_GOLDEN / "base.lab.yaml").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Broken:
    """``edits`` are pairs of the text that goes and the text that comes; ``problems`` lack the file's name."""

    name: str
    edits: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]

    @property
    def text(self) -> str:
        text = BASE
        for old, new in self.edits:
            assert old in text, f"{self.name}: {old!r} is not in the base scenario"
            text = text.replace(old, new, 1)
        return text


def broken_scenarios() -> list[Broken]:
    _, *cases = (_GOLDEN / "refusals.txt").read_text(encoding="utf-8").split("\n= ")
    return [_case(*case.rstrip("\n").split("\n")) for case in cases[1:]]


def _case(name: str, *lines: str) -> Broken:
    edits: list[tuple[list[str], list[str]]] = []
    problems = []
    last = ""
    for line in filter(None, lines):
        mark, rest = line[0], line[2:]
        if mark == "-" and last != "-":
            edits.append(([], []))
        if mark == "!":
            problems.append(rest)
        else:
            edits[-1]["-+".index(mark)].append(rest)
        last = mark
    return Broken(name, tuple(("\n".join(old), "\n".join(new)) for old, new in edits), tuple(problems))


def noted(scenario: Scenario) -> tuple[str, ...]:
    """The notes, without warnings of Services: that of the base sends to port 80, and its pods listen on 8080."""
    return tuple(each for each in scenario.notes if not each.startswith("warning: Service "))
