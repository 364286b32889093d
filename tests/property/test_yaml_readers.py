"""What readers of YAML and JSON agree on: libyaml with the parser in Python, and the two ways to read JSON."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from broken_scenarios import BASE, broken_scenarios
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutated_texts import mutated
from thoroughness import examples

from proxylab.errors import ScenarioError
from proxylab.scenario import source
from proxylab.scenario.document import Document, Location, Problems
from proxylab.scenario.words import Position

SEEDS = [
    BASE,
    *(case.text for case in broken_scenarios()),
    "a: 1\nb:\n  - x\n  - {c: d, e: [f, g]}\n",
    "- a\n- b: c\n  d: >\n    text\n\n    more\n- 'q'\n- |-\n  kept\n   as it is\n",
    "? a\n: b\n? c\n",
]
PIECES = [
    "",
    " ",
    "\n",
    "  ",
    "- ",
    ": ",
    ":",
    ",",
    "{",
    "}",
    "[",
    "]",
    "&a ",
    "*a",
    "<<: ",
    "!x ",
    "'",
    '"',
    "|\n",
    ">\n",
]
PIECES += [
    "#",
    " #",
    "---\n",
    "...\n",
    "? ",
    "~",
    "true",
    "-1",
    "\t",
    "%YAML 1.1\n",
    '"\\ud800"',
    "é",
    "\u2028",
    "\r",
    "fd00::1",
]
SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").rglob("*.lab.yaml"))
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\x85\u2028\u2029\ufeff\ufffe\uffff"), max_size=8
)
LEAVES = st.none() | st.booleans() | st.integers(1 - 2**63, 2**63 - 1) | TEXTS
VALUES = st.recursive(LEAVES, lambda each: st.lists(each) | st.dictionaries(TEXTS, each), max_leaves=12)


def told(location: Location) -> object:
    """Every value of a document with its kind and the spots of value and key."""
    value: Any = location.value
    inner = [told(location[key]) for key in location.keys] if isinstance(value, dict | list) else repr(value)
    return type(value).__name__, location.key, location.spot, inner


def read(text: str) -> tuple[list[Document], bool, tuple[str, ...]]:
    problems = Problems()
    documents, complete = source.read_documents(text, "f", problems)
    try:
        problems.raise_any()
    except ScenarioError as error:
        return documents, complete, error.problems
    return documents, complete, ()


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated(SEEDS, st.sampled_from(PIECES)))
def test_any_text_is_read_or_refused(text: str) -> None:
    documents, complete, problems = read(text)
    assert complete or problems
    assert all(problem.startswith("f:") for problem in problems)
    assert len(list(map(told, [document.root for document in documents]))) == len(documents)


@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.name)
def test_a_scenario_is_read_alike_without_libyaml(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_libyaml = [told(document.root) for document in read(file.read_text())[0]]
    monkeypatch.setattr(source, "_LOADER", yaml.Loader)
    assert [told(document.root) for document in read(file.read_text())[0]] == by_libyaml


@settings(max_examples=examples(50), deadline=None)
@given(st.dictionaries(TEXTS, VALUES), st.sampled_from([None, 1, 4]))
def test_json_is_read_as_yaml_is(value: dict[str, object], indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    (by_json,), _, problems = read(text)
    (by_yaml,), _ = source._yaml_documents(text, Position("f", 1, 1), Problems())
    assert (by_json.value, problems) == (value, ())
    assert told(by_json.root) == told(by_yaml.root)
