"""The numbers of the page about skewed spreads, and of the key that refers to them, are the judge's own."""

import re

from documents import ROOT

from proxylab.scenario.probes import MOST_FLOWS
from proxylab.statistics import (
    FINE_CHANGE,
    POWER,
    SHARE_CHANGE,
    SIGNIFICANCE,
    flows_needed_for,
    flows_to_hit_all,
    flows_to_stick,
)

PAGE = (ROOT / "docs/explanation/spread.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs/reference/scenario.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (\d+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) % \|$", re.MULTILINE)
CHANGES = (SHARE_CHANGE, FINE_CHANGE, 0.06, 0.03)


def test_the_table_says_how_many_flows_show_which_change() -> None:
    rows = {int(endpoints): (*flows, float(shown)) for endpoints, *flows, shown in ROW.findall(PAGE)}
    assert list(rows) == [2, 3, 4, 5, 7, 10, 16, 100]
    for endpoints, (*flows, shown) in rows.items():
        even = (1 / endpoints,) * endpoints
        assert flows == [f"{flows_needed_for(even, change):,}" for change in CHANGES]
        assert flows_needed_for(even, shown / 100) <= MOST_FLOWS < flows_needed_for(even, (shown - 0.1) / 100)


def test_page_and_key_name_the_probabilities_and_the_defaults() -> None:
    assert (SIGNIFICANCE, POWER) == (1e-9, 0.999)
    assert "p < 1e-9" in PAGE
    assert "99.9 %" in PAGE
    assert f"by 10 % where flows are packets (for two backends {flows_needed_for((0.5, 0.5), 0.1):,})" in REFERENCE
    assert f"by 30 % where they are connections ({flows_needed_for((0.5, 0.5))})" in REFERENCE
    assert f"It is at most {MOST_FLOWS:,}." in REFERENCE


def test_page_and_key_name_the_flows_that_reach_each_backend() -> None:
    reaching = f"{flows_to_hit_all(2)} for two, {flows_to_hit_all(3)} for three"
    assert f"the number that reaches each of them ({reaching})" in REFERENCE
    assert f"without affinity ({flows_to_stick(2)} for two, {flows_to_stick(3)} for three)" in REFERENCE
    assert f"{flows_to_hit_all(2)} flows for two, {flows_to_hit_all(3)} for three" in PAGE
