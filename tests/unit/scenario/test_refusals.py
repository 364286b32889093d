"""Every refusal of a scenario file, word for word and place for place; and that none is without its case."""

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from broken_scenarios import BASE, Broken, broken_scenarios

import proxylab.scenario
from proxylab.errors import ScenarioError
from proxylab.scenario import document, keys, reading, source
from proxylab.scenario.load import parse_scenario

ROOM = Path(proxylab.scenario.__file__).parent
CASES = broken_scenarios()

OUTSIDE_THE_TABLE = {
    "no document": ("", "1:1: the file has no Scenario"),
    "only comments": ("# nothing\n---\n", "1:1: the file has no Scenario"),
    "only a Service": (BASE.partition("---\n")[2], "1:1: the file has no Scenario"),
    "a text": ("hello\n", "1:1: the file has no Scenario"),
    "two scenarios": (BASE + "---\n" + BASE.partition("---\n")[0], "26:1: the file has a second Scenario"),
    "control character": (
        BASE.replace("client", "cli\x07ent"),
        "10:8: not valid YAML: character U+0007 is not allowed",
    ),
    "a YAML that is none": ("%YAML 3.0\n---\n" + BASE, "1:1: not valid YAML: "),
    "a name that grows too long": (
        BASE.replace("client: {}", f"client: {{}}\n    {'a' * 61}: {{replicas: 100}}"),
        f"11:5: spec.pods.{'a' * 61}: the pod '{'a' * 59}…' would have a name of 65 characters; allowed: 63",
    ),
}
"""Cases whose text is unprintable or long, with the beginning of their one problem."""

TESTED_ELSEWHERE = {"applied.py", "load.py", "strict.py"}
"""What is said of files that cannot be opened or are applied is tested with files, ``--strict`` with its own cases."""


def problems_of(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "f")
    return [problem.removeprefix("f:") for problem in caught.value.problems]


def test_the_base_scenario_has_no_problem() -> None:
    assert parse_scenario(BASE, "f").name == "base"


@dataclass(frozen=True)
class Refused:
    """What parsing every case says, and every line of the package that was on the stack when it refused something."""

    problems: Mapping[str, list[str]]
    lines: frozenset[tuple[str, int]]


@pytest.fixture(scope="module")
def refused() -> Refused:
    """Each text is parsed once, for the tests of the cases and for the test that none is missing."""
    lines: set[tuple[str, int]] = set()
    add, custom_error = document.Problems.add, keys.RefusedError

    def watched_add(*args: object, **kwargs: object) -> None:
        lines.update(callers())
        add(*args, **kwargs)  # type: ignore[arg-type]

    def watched_error(*args: object, **kwargs: object) -> object:
        lines.update(callers())
        return custom_error(*args, **kwargs)  # type: ignore[arg-type]

    texts = {case.name: case.text for case in CASES} | {name: text for name, (text, _) in OUTSIDE_THE_TABLE.items()}
    assert len(texts) == len(CASES) + len(OUTSIDE_THE_TABLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(document.Problems, "add", watched_add)
        patch.setattr(keys, "RefusedError", watched_error)
        return Refused({name: problems_of(text) for name, text in texts.items()}, frozenset(lines))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_refusal(case: Broken, refused: Refused) -> None:
    assert refused.problems[case.name] == list(case.problems)


@pytest.mark.parametrize("name", OUTSIDE_THE_TABLE)
def test_refusal_outside_the_table(name: str, refused: Refused) -> None:
    (problem,) = refused.problems[name]
    assert problem.startswith(OUTSIDE_THE_TABLE[name][1])


def test_nesting_without_end_is_refused() -> None:
    (problem,) = problems_of("a: " + "[" * 100_000)
    assert "not valid YAML: " in problem
    assert problem.endswith("; allowed: 40 levels")


def test_a_flood_of_problems_is_cut_short() -> None:
    keys = ", ".join(f"k{number}: 1" for number in range(205))
    told = problems_of(BASE.replace("outside: {}", f"outside: {{{keys}}}"))
    assert len(told) == 201
    assert told[-1].endswith(": and 5 more problems from here on")


def test_problems_are_told_in_the_order_of_the_file() -> None:
    (case,) = [case for case in CASES if case.name == "every mistake at once"]
    lines = [int(problem.split(":")[0]) for problem in problems_of(case.text)]
    assert lines == sorted(lines)
    assert len(lines) == 5


# --- that no refusal is without its case ------------------------------------------------------------------------------


def sites(tree: ast.AST) -> Iterator[ast.Call]:
    """The calls that refuse something: ``problems.add``, ``inventory.refuse``, ``refused``, ``not_yet``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            adds_to_a_set = len(node.args) == 1 and not node.keywords
            if name in {"refuse", "refused", "not_yet"} or (name == "add" and not adds_to_a_set):
                yield node


def callers() -> Iterator[tuple[str, int]]:
    """The file and line of every frame of the room that is on the stack."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(str(ROOM)):
            yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


def test_every_refusal_in_the_code_has_a_case(refused: Refused) -> None:
    unreached = [
        f"{module.relative_to(ROOM)}:{site.lineno}: {ast.unparse(site)}"
        for module in ROOM.rglob("*.py")
        if module.name not in TESTED_ELSEWHERE
        for site in sites(ast.parse(module.read_text(encoding="utf-8")))
        if not any((str(module), line) in refused.lines for line in range(site.lineno, (site.end_lineno or 0) + 1))
    ]
    expected = {"source.py": 2}  # decode() reads bytes, which test_source offers
    for module, count in expected.items():
        assert sum(line.startswith(f"{module}:") for line in unreached) == count
    assert [line for line in unreached if line.partition(":")[0] not in expected] == []


def test_every_wanted_type_and_every_hint_has_a_case() -> None:
    said = "\n".join(problem for case in CASES for problem in case.problems)
    assert [wanted for wanted in reading.NOUNS.values() if f"must be {wanted}, is " not in said] == []
    hints = [hint for hint in source._HINTS.values() if "levels" not in hint]
    assert [hint for hint in hints if hint not in said] == []
