"""The walk of one probe from its evidence to the printed cause: which files the judge's code enters, and how often.

``PYTHONPATH=tests/support ./dev python -m walked`` prints it for the probe of ``lost``; sys.setprofile counts. A first
walk goes uncounted: in a run of many probes, it is the first that fills the table of the format's keys.
``tests/unit/verdict/test_walk.py`` holds the walk to its length.
"""

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from msgspec import Struct
from recorded import World

from proxylab.evidence.evidence import Evidence
from proxylab.report.failure_text import explain
from proxylab.scenario.expect import Preserved
from proxylab.verdict.judge import judge

PACKAGE: Final = Path(__file__).parents[2] / "lab" / "proxylab"

LOST: Final = World(source=Preserved(), backends=("echo-1", "echo-2", "echo-3"))


class Walk(Struct, frozen=True):
    """A walk.

    Attributes:
        files: of the package, with the number of calls from another file of it.
        calls: of each function, by its file and name.
    """

    files: Counter[str]
    calls: Counter[str]


def walk(do: Callable[[], object]) -> Walk:
    """The walk of a call."""
    files, calls = Counter[str](), Counter[str]()
    left: dict[str, str] = {}

    def named(frame: FrameType | None) -> str:
        file = frame.f_code.co_filename if frame else ""
        known = left.get(file)
        if known is None:
            path = Path(file)
            inside = path.is_relative_to(PACKAGE) if path.is_absolute() else False
            known = left[file] = str(path.relative_to(PACKAGE)) if inside else ""
        return known

    def hear(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and (file := named(frame)):
            name = frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name
            calls[f"{file}:{name}"] += 1
            if named(frame.f_back) != file:
                files[file] += 1

    sys.setprofile(hear)
    try:
        do()
    finally:
        sys.setprofile(None)
    return Walk(files, calls)


def lost() -> tuple[World, Evidence]:
    """A request that a rule drops on its way."""
    return LOST, LOST.evidence([LOST.leaves(0)], counts=(LOST.dropped(1),), metered_nodes=("node-a", "node-b"))


def to_the_cause(world: World, evidence: Evidence) -> Walk:
    def explained() -> object:
        return explain(judge(world.probe, world.resolved, None, evidence))

    explained()
    return walk(explained)


if __name__ == "__main__":
    walked = to_the_cause(*lost())
    sys.stdout.write(f"{len(walked.files)} files, {walked.files.total()} stays\n")
    sys.stdout.writelines(f"{count:5} {file}\n" for file, count in walked.files.most_common())
    sys.stdout.write("functions called more than once:\n")
    sys.stdout.writelines(f"{count:5} {name}\n" for name, count in walked.calls.most_common(80) if count > 1)
