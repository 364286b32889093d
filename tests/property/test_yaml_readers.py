"""libyaml and ruamel.yaml read the same files to the same values, and refuse the same files."""

from pathlib import Path
from typing import Any

import pytest
from broken_scenarios import BASE, broken_scenarios
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutated_texts import mutated
from thoroughness import examples

from proxylab.errors import ScenarioError
from proxylab.scenario import source
from proxylab.scenario.document import Document
from proxylab.scenario.events import read_events
from proxylab.scenario.problems import Problems

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


def told(document: Document) -> object:
    """Every value of a document with its kind and the positions of value and key."""
    seen: set[int] = set()

    def tell(value: Any) -> object:
        if not isinstance(value, dict | list) or id(value) in seen:
            return type(value).__name__, repr(value)
        seen.add(id(value))
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [(key, document.marks[id(value)][key], tell(each)) for key, each in items]

    return document.root.spot, tell(document.value)


def read(text: str) -> object:
    problems = Problems()
    documents, complete = source.read_documents(text, "f", problems)
    try:
        problems.raise_any()
    except ScenarioError as error:
        return [*map(told, documents)], complete, error.problems
    return [*map(told, documents)], complete, ()


def assert_told_alike(text: str) -> None:
    by_libyaml = read(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "read_events", lambda text: None)
        assert by_libyaml == read(text)


@settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutated(SEEDS, st.sampled_from(PIECES)))
def test_any_text_is_read_alike(text: str) -> None:
    assert_told_alike(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: {b: *c}\n",
        "a: {*c: b}\n",
        "a: ['b':c']\n",
        "a: >\n  \n    text\n  more\n",
        "a:\tb\n",
        "a: b\u2028c\n",
        "a: b\rc: d\n",
        "a: !!int '1'\n",
        "%YAML 1.1\n---\na: yes\n",
        "a:\nb: [c, ]\n",
        "<<:\na: b\n",
        "a: {? }\n",
        "a: b\n...\n...\n",
        "|\n---\nb\n",
    ],
)
def test_what_the_two_would_read_differently_is_read_alike(text: str) -> None:
    assert_told_alike(text)


def test_libyaml_reads_nearly_every_scenario() -> None:
    texts = [path.read_text() for path in SCENARIOS]
    by_itself = [text for text in texts if read_events(text) is None]
    assert len(by_itself) < len(texts) / 20
