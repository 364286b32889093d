"""A run as it stands on a screen, of 80 and of 160 columns, with and without colours.

Write the files anew with ``pytest tests/golden --update-golden``, then look at them with ``cat`` in such a terminal.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from probed import CASES, RUN

from lab.cli.run import paint
from lab.report.terminal import run_lines
from lab.verdict.columns import WIDTH
from lab.verdict.model import ScenarioResult

FILES = Path(__file__).parent / "screens"
OTHER = "kube-proxy/nftables"


def results() -> list[ScenarioResult]:
    """Twelve runs of seven scenarios, with everything that there is to be shown."""
    found = []
    for number, name in enumerate(("passed", "masqueraded", "disagreement-ipv6", "uneven")):
        file = f"scenarios/clusterip/{name}.lab.yaml"
        for engine in (RUN[0].engine, OTHER):
            verdict = CASES["passed" if engine == OTHER else name]()
            found.append(
                ScenarioResult(
                    file=file, name=name, engine=engine, case="ipv6", probes=(verdict,), seconds=0.25 * (number + 1)
                )
            )
    return [*found, *RUN, replace(RUN[1], engine=OTHER)]


@pytest.mark.parametrize("colour", [False, True], ids=["plain", "colour"])
@pytest.mark.parametrize("width", [80, 160])
def test_screens(width: int, colour: bool, update_golden: bool) -> None:
    painted = {"paint": paint} if colour else {}
    text = "\n".join(run_lines(results(), width=width, **painted)) + "\n"
    file = FILES / f"run-{width}{'-colour' if colour else ''}.txt"
    if update_golden:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_a_wide_screen_is_used_and_a_narrow_one_is_enough() -> None:
    longest = {width: max(map(len, run_lines(results(), width=width))) for width in (WIDTH, 160)}
    assert WIDTH < longest[160] <= 160
    # Names are never cut, and the table of engines is as wide as they are.
    too_long = [line for line in run_lines(results()) if len(line) > WIDTH]
    assert [line for line in too_long if "scenario" not in line] == []
