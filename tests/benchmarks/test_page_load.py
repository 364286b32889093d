"""A run of 500 probes is there within a second of being opened: the median of five, in headless Chromium."""

from pathlib import Path
from statistics import median

import pytest
from browser import browser, chromium
from recorded import World

from proxylab.report.html import Heading, entry, page
from proxylab.scenario.expect import Preserved
from proxylab.verdict.judge import judge

pytestmark = [
    pytest.mark.budget,
    pytest.mark.skipif(chromium() is None, reason="needs Chromium; 'apt-get install chromium'"),
]

PROBES = 500
BOUND = 1000.0
"""Milliseconds from the navigation to the load event."""


def test_five_hundred_probes_are_there_within_a_second(tmp_path: Path) -> None:
    world = World(backends=("echo-1", "echo-2", "echo-3"), source=Preserved())
    counts = (world.balanced(), world.marked(), world.translated("echo-1"), world.masqueraded())
    verdict = judge(world.probe, world.resolved, None, world.evidence(world.crossing(0, "echo-1"), counts=counts))
    entries = [
        entry(Heading(file=f"scenarios/{number // 5}.lab.yaml", engine="embedded/iptables"), verdict)
        for number in range(PROBES)
    ]
    file = tmp_path / "report.html"
    file.write_text(page(entries, {}), encoding="utf-8")
    taken = []
    with browser(tmp_path / "profile") as tab:
        tab.look(1600)
        for _ in range(5):
            tab.open(file)
            taken.append(tab.tell("performance.getEntriesByType('navigation')[0].loadEventStart"))
    assert median(taken) < BOUND, taken
