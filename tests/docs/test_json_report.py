"""The page of ``-o json`` names every key that a report has, and no other."""

import json
import re
from typing import Any

import yaml
from documents import ROOT

from proxylab.report import document

PAGE = ROOT / "docs" / "reference" / "run-report.md"
REPORTS = ROOT / "tests" / "golden" / "report"


def shape(value: Any) -> dict[str, Any]:
    """The keys of a value; of a list, those of all its entries."""
    found: dict[str, Any] = {}
    for entry in value if isinstance(value, list) else [value]:
        for key, each in entry.items() if isinstance(entry, dict) else ():
            found[key] = found.get(key) or shape(each)
    return found


def test_the_page_shows_what_the_module_says() -> None:
    assert document.__doc__ is not None
    said = re.search(r"::\n\n(.*)\Z", document.__doc__, re.DOTALL)
    assert said is not None
    lines = [line.removeprefix("    ").rstrip() for line in said[1].rstrip().splitlines()]
    assert "\n".join(["```yaml", *lines, "```"]) in PAGE.read_text()


def test_every_key_of_a_report_is_on_the_page() -> None:
    block = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    report = json.loads((REPORTS / "run.json").read_text())
    steps = json.loads((REPORTS / "run-of-steps.json").read_text())
    of_rules = json.loads((REPORTS / "rules.json").read_text())
    report["scenarios"] += steps["scenarios"] + of_rules["scenarios"]
    report["rules"] = of_rules["rules"]
    assert shape(yaml.safe_load(block[1])) == shape(report)
