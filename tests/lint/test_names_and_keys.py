"""A class has a name of its own, so that a search finds one; and a mapping has keys that say what they are."""

import ast
from collections import Counter, defaultdict
from pathlib import Path

OF_EACH_MODE = frozenset({"LocalDetector", "PortChains", "PortRules", "ProxyScope", "Renderer", "Rule", "Ruleset"})
"""Names that the packages of the modes share, as their modules do."""

PACKAGE = Path(__file__).resolve().parents[2] / "lab" / "proxylab"

MOST_TUPLES = {
    "binaries": 1,
    "cli": 1,
    "client": 2,
    "cluster": 1,
    "control": 4,
    "engines": 5,
    "evidence": 2,
    "features": 10,
    "guest": 1,
    "kernel": 8,
    "mutate": 8,
    "oracle": 6,
    "plan": 2,
    "pytest_plugin": 1,
    "report": 1,
    "rules": 1,
    "scenario": 9,
    "traffic": 12,
}
"""How many annotations of a room may still have a tuple of three or more; of a room that is not here, none.

A number may only fall: a named record says what each place means. ``tuple[int, ...]`` is no such tuple. Two are the
signatures of click and pytest."""


def test_no_class_name_stands_twice() -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(module.relative_to(PACKAGE)))
    assert len(found) > 500
    assert {name: modules for name, modules in found.items() if len(modules) > 1 and name not in OF_EACH_MODE} == {}


def test_no_mapping_has_bool_keys() -> None:
    """A reader of ``{True: …, False: …}`` has to know what the key asks; a name says it."""
    found = [
        f"{module.relative_to(PACKAGE)}:{node.lineno}"
        for module in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Dict)
        and any(isinstance(key, ast.Constant) and isinstance(key.value, bool) for key in node.keys)
    ]
    assert found == []


def test_no_mapping_is_annotated_with_bool_keys() -> None:
    mappings = {"dict", "defaultdict", "Mapping", "MutableMapping"}
    found = [
        f"{module.relative_to(PACKAGE)}:{node.lineno}"
        for module in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id in mappings
        and isinstance(node.slice, ast.Tuple)
        and ast.unparse(node.slice.elts[0]) == "bool"
    ]
    assert found == []


def test_a_tuple_of_more_than_two_is_a_named_record() -> None:
    found: Counter[str] = Counter()
    for module in sorted(PACKAGE.rglob("*.py")):
        places = {
            (node.lineno, ast.unparse(node))
            for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
            if isinstance(node, ast.Subscript)
            and ast.unparse(node.value) == "tuple"
            and isinstance(node.slice, ast.Tuple)
            and len(node.slice.elts) > 2
        }
        found[module.relative_to(PACKAGE).parts[0]] += len(places)
    assert {room: count for room, count in found.items() if count > MOST_TUPLES.get(room, 0)} == {}
