"""The form of a message."""

import pytest

from proxylab.errors import ScenarioError
from proxylab.scenario.document import Problems, Spot, describe, listed, nearest, path_text, shown
from proxylab.scenario.words import Position


def told(problems: Problems) -> tuple[str, ...]:
    with pytest.raises(ScenarioError) as caught:
        problems.raise_any()
    return caught.value.problems


def spot(line: int = 1, *path: str | int) -> Spot:
    return Spot(Position("f", line, 1), path)


def test_all_parts_of_a_message() -> None:
    problems = Problems()
    problems.add(spot(3, "spec", "pods"), "is wrong", allowed="allowed: less", word="lss", known=["less", "more"])
    assert told(problems) == ("f:3:1: spec.pods: is wrong; allowed: less; did you mean 'less'?",)


def test_no_problem_raises_nothing() -> None:
    Problems().raise_any()


def test_what_is_found_first_at_a_place_is_told_alone() -> None:
    problems = Problems()
    problems.add(spot(1, "a"), "is no number")
    problems.add(spot(1, "a"), "is missing")
    problems.add(spot(1, "b"), "is missing")
    assert told(problems) == ("f:1:1: a: is no number", "f:1:1: b: is missing")


def test_a_message_is_one_printable_line_with_an_end() -> None:
    problems = Problems()
    problems.add(spot(1, "a\nb"), "x\u2028y\x1b[31m" + "z" * 5000)
    (line,) = told(problems)
    assert line.startswith("f:1:1: 'a\\nb': x\\u2028y\\u001b[31mzzz")
    assert line.isprintable()
    assert len(line) < 1100


@pytest.mark.parametrize(
    ("word", "meant"),
    [("servce", "service"), ("SERVICE", "service"), ("service", ""), ("zebra", ""), ("", ""), ("s" * 500, "")],
)
def test_did_you_mean(word: str, meant: str) -> None:
    assert nearest(word, ["service", "pod", "host"]) == meant


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("spec", "probes", 2, "to"), "spec.probes[2].to"),
        ((0, "a"), "[0].a"),
        (("a b", "net.core", "c-d_e"), "'a b'.'net.core'.c-d_e"),
        (("k" * 100,), f"'{'k' * 79}…'"),
    ],
)
def test_paths(path: tuple[str | int, ...], text: str) -> None:
    assert path_text(path) == text


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "a mapping"),
        ([], "a list"),
        (None, "empty"),
        ("a", "the text 'a'"),
        (True, "true"),
        (1, "the number 1"),
        (1.5, "the number 1.5"),
    ],
)
def test_what_a_value_is_called(value: object, words: str) -> None:
    assert describe(value) == words


def test_long_values_and_lists_are_cut() -> None:
    assert shown("x" * 100) == f"'{'x' * 59}…'"
    assert listed(map(str, range(14))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more"
    assert listed([]) == "none"
