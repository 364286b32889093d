"""Sentences of messages stand in goldens. A test compares what is judged, and by ``told()`` what is said."""

import ast
import re
from pathlib import Path

from golden_words import FOLDER, held

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"

WORDS = 8
"""From so many on a text is a sentence."""

MOST = 250
"""Of the sentences that asserts compare outside of goldens: the number may only fall."""


def sentences(tree: ast.AST) -> int:
    compared = [
        each
        for asserted in ast.walk(tree)
        if isinstance(asserted, ast.Assert)
        for each in ast.walk(asserted.test)
        if isinstance(each, ast.Compare) and isinstance(each.ops[0], ast.Eq | ast.In | ast.NotIn)
    ]
    texts = {
        text
        for each in compared
        for text in ast.walk(each)
        if isinstance(text, ast.Constant) and isinstance(text.value, str) and len(text.value.split()) >= WORDS
    }
    return len(texts)


def test_no_more_tests_hold_sentences() -> None:
    found = {
        str(path.relative_to(TESTS)): number
        for path in sorted(TESTS.rglob("*.py"))
        if "golden" not in path.parts and (number := sentences(ast.parse(path.read_text())))
    }
    assert sum(found.values()) <= MOST, f"compare new sentences with told(), or compare what is judged: {found}"


def test_a_sentence_is_found_in_what_an_assert_compares() -> None:
    said = "a packet went the way that no rule has"
    for written, number in (
        (f"assert x == {said!r}", 1),
        (f"assert (a, x) == (1, ({said!r},))", 1),
        (f"assert {said!r} in x and {said!r} not in y", 2),
        (f"x = {said!r}", 0),
        ("assert x == 'a few words of it'", 0),
        (f"assert x, {said!r}", 0),
    ):
        assert sentences(ast.parse(written)) == number, written


def test_every_golden_text_is_of_a_test_that_asks_for_it() -> None:
    for file in sorted(FOLDER.glob("*.yaml")):
        for name in held(file):
            path, _, test = name.partition("::")
            asks = rf"^def {test.partition('[')[0]}\([^)]*\btold: Told"
            assert re.search(asks, (TESTS / "unit" / file.stem / path).read_text(), re.MULTILINE), name
