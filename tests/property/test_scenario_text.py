"""Reading any file gives a Scenario or a ScenarioError, and soon."""

import re
from datetime import timedelta

import pytest
from broken_scenarios import BASE, broken_scenarios
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mutated_texts import mutated
from thoroughness import examples

from proxylab.errors import ScenarioError
from proxylab.scenario.load import parse_scenario
from proxylab.scenario.model import Scenario

SEEDS = [BASE, *(case.text for case in broken_scenarios())]
WORDS = sorted({word for text in SEEDS for word in re.findall(r"[\w./-]+", text)})
SNIPPETS = [
    "",
    " ",
    "\n",
    "  ",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "&a ",
    "*a",
    "<<: ",
    "!!str ",
    "!x ",
    "'",
    '"',
    "|\n",
    ">\n",
]
SNIPPETS += [
    "#",
    "---\n",
    "...\n",
    "? ",
    "~",
    "null",
    "true",
    "0",
    "-1",
    "1e9",
    "0x7fffffffffffffff",
    ".nan",
    "2001-01-01",
]
SNIPPETS += [
    "\t",
    "%YAML 1.1\n",
    "%TAG ! x\n",
    "\\",
    '"\\ud800"',
    "é",
    "\u2028",
    "\ufeff",
    "😀",
    "1_000",
    "0o17",
    "@",
    "`",
]

LINE = re.compile(r"f:\d+:\d+: \S.*")
IN_TIME = timedelta(seconds=5)


def read(text: str) -> None:
    try:
        scenario = parse_scenario(text, "f")
    except ScenarioError as error:
        problems = error.problems
    else:
        assert isinstance(scenario, Scenario)
        return
    assert problems
    for problem in problems:
        assert LINE.fullmatch(problem), problem
        assert problem.isprintable(), problem
        assert len(problem) < 1100, problem


@settings(max_examples=examples(100), deadline=IN_TIME)
@given(st.text())
def test_any_text(text: str) -> None:
    read(text)


@settings(max_examples=examples(100), deadline=IN_TIME)
@given(st.lists(st.sampled_from([*SNIPPETS, *WORDS]), max_size=40).map("".join))
def test_any_yaml_like_text(text: str) -> None:
    read(text)


@settings(max_examples=examples(50), deadline=IN_TIME, suppress_health_check=[HealthCheck.too_slow])
@given(mutated(SEEDS, st.sampled_from(SNIPPETS) | st.sampled_from(WORDS)))
def test_mutated_scenarios(text: str) -> None:
    read(text)


PLACES = [match.span(1) for match in re.finditer(r"(?:: |- |, |\[)([\w./-]+|\{\})", BASE)]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from(WORDS), st.text(max_size=5).map(repr)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=3)),
    max_leaves=5,
)


@st.composite
def with_another_value(draw: st.DrawFn) -> str:
    """The base scenario with any one value replaced by one of any kind."""
    start, end = draw(st.sampled_from(PLACES))
    return BASE[:start] + flow(draw(VALUES)) + BASE[end:]


def flow(value: object) -> str:
    """A value in YAML's flow style."""
    match value:
        case dict():
            return "{" + ", ".join(f"{key}: {flow(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(flow, value)) + "]"
        case None:
            return "null"
        case _:
            return str(value)


@settings(max_examples=examples(25), deadline=IN_TIME, suppress_health_check=[HealthCheck.too_slow])
@given(with_another_value())
def test_values_of_any_kind_in_any_place(text: str) -> None:
    read(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "{a: " * 50_000,
        "- " * 50_000,
        "? " * 20_000,
        "a: " + "9" * 100_000,
        "a: 0x" + "f" * 100_000,
        "a: &a [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" if n else "a0: &a0 [x]\n" for n in range(2000)),
        BASE.replace("from: client", f"from: {'x' * 100_000}"),
        BASE.replace("replicas: 2", "replicas: 1000").replace("client: {}", "client: {replicas: 1000}"),
        BASE.replace("outcome: delivered", f"backends: [{'echo-1, ' * 5000}], outcome: delivered"),
        BASE.replace("hosts: {outside: {}}", f"hosts: {{{', '.join(f'h{n}: {{}}' for n in range(3000))}}}"),
    ],
    ids=lambda text: f"{text[:12]!r} … {len(text)}",
)
@pytest.mark.timeout(20)
def test_texts_made_to_be_slow(text: str) -> None:
    read(text)
