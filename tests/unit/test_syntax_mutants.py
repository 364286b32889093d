"""The mistakes that ``syntax_mutants`` makes, each alone, and what they are known by."""

import ast

import pytest
from syntax_mutants import syntax_mutants


def changes(code: str) -> set[tuple[str, str]]:
    return {(each.was, each.becomes) for each in syntax_mutants(code)}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = a < b", {("a < b", "a >= b"), ("a < b", "a <= b")}),
        ("x = a is None", {("a is None", "a is not None")}),
        ("x = a == 3", {("a == 3", "a != 3"), ("a == 3", "a == 4")}),
        ("x = a and b", {("a and b", "a or b"), ("a and b", "a"), ("a and b", "b")}),
        ("x = not a", {("not a", "a")}),
        ("x = a if b else c", {("a if b else c", "a if not b else c")}),
        ("x = any(a)", {("any(a)", "all(a)")}),
        ("x = max(a, b)", {("max(a, b)", "min(a, b)")}),
        ("x = f(a | b)", {("a | b", "a"), ("a | b", "b")}),
        ("x = (*a, *b)", {("(*a, *b)", "(*a,)"), ("(*a, *b)", "(*b,)")}),
        ("x = {a, b}", {("{a, b}", "{a}"), ("{a, b}", "{b}")}),
        ("x = [a for a in b if c]", {("[a for a in b if c]", "[a for a in b]"),
                                      ("[a for a in b if c]", "[a for a in list(b)[:1] if c]")}),
        ("def f():\n    return True", {("return True", "return False")}),
        ("def f():\n    return ''", {("return ''", "return 'something'")}),
        ("def f():\n    for a in b:\n        g(a)", {("for a in b:", "for a in list(b)[:1]:")}),
        ("def f():\n    if a:\n        g()", {("if a:", "if not a:")}),
        ("def f():\n    a |= b", {("a |= b", "pass")}),
    ],
)  # fmt: skip
def test_the_mistakes_in_a_piece_of_code(code: str, expected: set[tuple[str, str]]) -> None:
    assert changes(code) == expected


@pytest.mark.parametrize(
    "code",
    [
        "import a",
        "__all__ = [*a, *b]",
        "Both = A | B",
        "def f(a: A | B) -> A | B:\n    a: A | B = g[A | B]()",
        "class C:\n    a: int | str",
        "x = f'{1 if a else 2}'",
        "def f():\n    '''A | B'''",
    ],
)
def test_names_types_and_words_have_no_mistakes(code: str) -> None:
    assert changes(code) == set()


CODE = """
def first(a, b):
    return a < b

class Second:
    def method(self, a, b):
        if a < b:
            return True
        return any(each < b for each in a)
"""


def test_each_mistake_changes_one_place() -> None:
    for each in syntax_mutants(CODE):
        before, after = (ast.unparse(ast.parse(text)).splitlines() for text in (CODE, each.module))
        differing = [(one, other) for one, other in zip(before, after, strict=True) if one != other]
        assert len(differing) == 1
        assert each.was.removesuffix(":") in differing[0][0]
        assert each.becomes.removesuffix(":") in differing[0][1]


def test_moved_and_renamed_code_has_the_same_mistakes_of_the_same_ranks() -> None:
    moved = f'"""Another head."""\n\n\ndef other() -> None:\n    pass\n{CODE.replace("first", "renamed")}'
    assert [(each.was, each.becomes, each.rank) for each in syntax_mutants(moved)] == [
        (each.was, each.becomes, each.rank) for each in syntax_mutants(CODE)
    ]
    assert all(0 <= each.rank < 1 for each in syntax_mutants(CODE))
