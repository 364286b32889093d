"""A run as it stands on a screen of 80 columns, as a file; and what other screens change.

Write the file anew with ``pytest tests/golden --update-golden``, then look at it with ``cat`` in such a terminal.
"""

from pathlib import Path

import click
import pytest
from msgspec.structs import replace
from probed import CASES, RUN

from proxylab.cli.terminal import paint
from proxylab.report.run_text import run_lines
from proxylab.text import WIDTH
from proxylab.verdict.model import ScenarioResult

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


def test_screen(update_golden: bool) -> None:
    text = "\n".join(run_lines(results())) + "\n"
    file = FILES / "run.txt"
    if update_golden:
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [WIDTH, 160])
def test_colour_adds_nothing_but_colour(width: int) -> None:
    painted = run_lines(results(), width=width, paint=paint)
    assert painted != run_lines(results(), width=width)
    assert [click.unstyle(line) for line in painted] == run_lines(results(), width=width)


def test_a_wide_screen_is_used_and_a_narrow_one_is_enough() -> None:
    longest = {width: max(map(len, run_lines(results(), width=width))) for width in (WIDTH, 160)}
    assert WIDTH < longest[160] <= 160
    # Names are never cut, and the table of engines is as wide as they are.
    too_long = [line for line in run_lines(results()) if len(line) > WIDTH]
    assert [line for line in too_long if "scenario" not in line] == []
