"""Rules of the house that a syntax tree can show, over every module of ``lab``."""

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "lab" / "proxylab"
MODULES = sorted(PACKAGE.rglob("*.py"))
ENTERING = [module for module in MODULES if "inside" in module.read_text()]
"""The modules that can have such a block: a tree takes its time."""

SUSPENDING = (ast.Await, ast.Yield, ast.YieldFrom, ast.AsyncWith, ast.AsyncFor, ast.comprehension)
NAMES_THAT_SAY_NOTHING = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}


def is_entry(node: ast.expr) -> bool:
    """``inside(…)`` or ``netns.inside(…)``: a move into another namespace."""
    if not isinstance(node, ast.Call):
        return False
    match node.func:
        case ast.Name("inside") | ast.Attribute(ast.Name("netns"), "inside"):
            return True
    return False


def suspensions(block: list[ast.stmt]) -> Iterator[ast.AST]:
    """Where a block hands control to the event loop or to its caller.

    A function defined inside the block counts too: a function is defined where it is meant to run.
    """
    for statement in block:
        for node in ast.walk(statement):
            if isinstance(node, ast.comprehension):
                if node.is_async:
                    yield node.target
            elif isinstance(node, SUSPENDING):
                yield node


def blocks_inside_namespaces(tree: ast.AST) -> Iterator[ast.With]:
    for node in ast.walk(tree):
        if isinstance(node, ast.With) and any(is_entry(item.context_expr) for item in node.items):
            yield node


def offences(source: str) -> list[int]:
    """The lines on which control leaves the thread while it stands in a foreign namespace."""
    lines = [node.lineno for block in blocks_inside_namespaces(ast.parse(source)) for node in suspensions(block.body)]
    return sorted(lines)


def test_no_block_inside_a_namespace_lets_go_of_the_thread() -> None:
    found = {str(module): lines for module in ENTERING if (lines := offences(module.read_text()))}
    assert found == {}, "an await here would move the whole event loop into a node"


def test_namespaces_are_entered_by_a_with_statement_only() -> None:
    """The walk above sees ``with inside(…)``; no other way in may exist for it to miss."""
    strays = []
    for module in ENTERING:
        tree = ast.parse(module.read_text())
        entered = {id(item.context_expr) for block in blocks_inside_namespaces(tree) for item in block.items}
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.expr) and is_entry(node))
        strays += [f"{module}:{call.lineno}" for call in calls if id(call) not in entered]
    assert strays == []


def test_the_walk_meets_the_blocks_it_is_about() -> None:
    assert sum(len(list(blocks_inside_namespaces(ast.parse(module.read_text())))) for module in ENTERING) >= 3


@pytest.mark.parametrize(
    "body",
    [
        "await turn()",
        "yield 1",
        "yield from them()",
        "async with lock: pass",
        "async for thing in things: pass",
        "seen = [thing async for thing in things]",
        "if deep:\n            await turn()",
        "async def later():\n            await turn()",
    ],
)
def test_the_walk_sees_every_way_to_let_go(body: str) -> None:
    assert offences(f"async def enter():\n    with other(), netns.inside(node):\n        {body}\n") != []


@pytest.mark.parametrize("body", ["made = socket()", "seen = [thing for thing in things]"])
def test_the_walk_lets_synchronous_blocks_be(body: str) -> None:
    assert offences(f"async def enter():\n    with inside(node):\n        {body}\n    await turn()\n") == []


def test_every_file_name_says_what_it_owns() -> None:
    assert [module for module in MODULES if module.stem in NAMES_THAT_SAY_NOTHING] == []


def test_every_module_says_what_it_owns() -> None:
    assert [str(module) for module in MODULES if len(ast.get_docstring(ast.parse(module.read_text())) or "") < 40] == []


def test_files_and_functions_are_of_a_size_that_can_be_read() -> None:
    long_files = [str(module) for module in MODULES if module.read_text().count("\n") > 700]
    long_functions = [
        f"{module}:{node.lineno}"
        for module in MODULES
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (node.end_lineno or 0) - node.lineno >= 80
    ]
    assert (long_files, long_functions) == ([], []), "split these"


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {".".join(("proxylab", *module.relative_to(PACKAGE).with_suffix("").parts)): module for module in MODULES}
    named = {name.removesuffix(".__init__"): module for name, module in names.items()}
    imported = {
        name: {
            whole if (whole := f"{node.module}.{each.name}") in named else node.module
            for node in ast.parse(module.read_text()).body
            if isinstance(node, ast.ImportFrom) and node.module
            for each in node.names
        }
        - {name}
        for name, module in named.items()
    }
    assert sum(map(len, imported.values())) > 3000
    order = TopologicalSorter(imported)
    order.prepare()  # raises CycleError, which names the circle
