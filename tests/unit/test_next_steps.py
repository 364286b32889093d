"""Every error says what to do next.

Messages about scenario files are in ``tests/golden/scenario/refusals.txt``; those about the command line, imports and
the machine are read from the code here. A message that quotes another one ends in the quotation.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from broken_scenarios import broken_scenarios

import proxylab
from proxylab.errors import EngineError

ROOT = Path(proxylab.__file__).parent
STEP = re.compile(
    r"; \S|: (say|name|give) |\b(must|needs?|needed|only|at most|allowed|expected|stands alone|not yet|did you mean|"
    r"there are|not both|one of them|as in|a lab that is made of)\b"
)
OTHERS_WORDS = re.compile(r"\{(str\()?\w*(error|each|again|known|there|cure|answer|told|problem)\w*\)?\}$")
YAML = "not valid YAML: while parsing"  # the parser says what it expected


def text(node: ast.expr) -> str:
    """A text as it is written, with names in braces for what is put in."""
    match node:
        case ast.Constant():
            return str(node.value)
        case ast.JoinedStr():
            return "".join(map(text, node.values))
        case ast.FormattedValue():
            return f"{{{ast.unparse(node.value)}}}"
        case ast.BinOp():
            return text(node.left) + text(node.right)
        case _:
            return f"{{{ast.unparse(node)}}}"


def raised(kind: str) -> Iterator[tuple[str, list[ast.expr]]]:
    """Where errors of a kind are made, and of what."""
    for file in sorted(ROOT.rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if kind in source else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == kind and node.args:
                yield f"{file.relative_to(ROOT)}:{node.lineno}", node.args


def without_step(told: Iterator[tuple[str, str]]) -> list[str]:
    return [f"{where}: {words}" for where, words in told if not STEP.search(words) and not OTHERS_WORDS.search(words)]


@pytest.mark.parametrize("kind", ["UsageError", "BadParameter"])
def test_mistakes_on_the_command_line(kind: str) -> None:
    found = [(where, text(args[0])) for where, args in raised(kind)]
    assert found
    assert without_step(iter(found)) == []


def test_what_the_machine_lacks_has_a_cure() -> None:
    found = [(where, text(args[-1])) for where, args in raised("CapabilityError")]
    assert len(found) > 30
    assert [where for where, cure in found if len(cure.strip("{} ")) < 3] == []


def test_scenarios_that_are_refused_where_they_are_used() -> None:
    made = [(where, args[0].elts) for where, args in raised("ScenarioError") if isinstance(args[0], ast.List)]
    assert len(made) > 8
    assert without_step((where, text(each)) for where, several in made for each in several[-1:]) == []


def test_scenarios_that_are_refused_when_they_are_read() -> None:
    told = [(case.name, problem) for case in broken_scenarios() for problem in case.problems]
    assert without_step((name, words) for name, words in told if YAML not in words) == []


def test_an_engine_that_fails() -> None:
    first, *rest = str(EngineError("node-a", "the rules were refused", "line 4 failed")).splitlines()
    assert first == "engine on node-a: the rules were refused"
    assert rest[0] == "line 4 failed"
    assert "--kube-proxy-flag --v=4" in rest[1]
    assert "`proxylab rules FILE --node NODE`" in rest[2]
