"""A class has a name of its own, so that a search finds one; and a mapping has keys that say what they are."""

import ast
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from syntax import nodes_of, parsed

OF_EACH_MODE = frozenset({"LocalDetector", "PortChains", "PortRules", "ProxyScope", "Renderer", "Rule", "Ruleset"})
"""Names that the packages of the modes share, as their modules do."""

Nodes = dict[type[ast.AST], list[tuple[str, Any]]]

PACKAGE = Path(__file__).resolve().parents[2] / "lab" / "proxylab"

KEPT_TUPLES = {
    "binaries/binary.py: tuple[int, int, int, bool, str]": "a sort key",
    "cli/verbs.py: tuple[str | None, click.Command | None, list[str]]": "what click asks of a group",
    "migrate/open_connections.py: tuple[str, Frontend, Transport | None, int | None]": "a key",
    "oracle/flows.py: tuple[IPAddress, int, str]": "a key",
    "oracle/moment.py: tuple[Family, int, Protocol]": "a key",
    "oracle/moment.py: tuple[IPAddress, int, Protocol]": "a key",
    "oracle/moment.py: tuple[str, Protocol, int]": "a key",
    "oracle/moment.py: tuple[str, str, str, Protocol, Family]": "a key",
    "oracle/ways.py: tuple[str, str, IPAddress]": "a key",
    "pytest_plugin/items.py: tuple[Path, int, str]": "what pytest asks of an item",
    "html/shares.py: tuple[str, int, str]": "a sort key",
    "traffic/responder.py: tuple[int, int, bytes]": "what socket.recvmsg returns",
    "traffic/stream_sockets.py: tuple[int, int, bytes]": "what socket.recvmsg returns",
}
"""The tuples of three or more places that are no named records, each by the last two parts of its module's path.

A key is one that a single class or function makes and looks up whole: no reader has to know a place of it."""


@pytest.fixture(scope="module")
def nodes() -> Nodes:
    """The classes, dictionaries and subscripts of the product, each with its module."""
    found: Nodes = {ast.ClassDef: [], ast.Dict: [], ast.Subscript: []}
    for module in sorted(PACKAGE.rglob("*.py")):
        for node in nodes_of(parsed(module)):
            if type(node) in found:
                found[type(node)].append((str(module.relative_to(PACKAGE)), node))
    return found


def test_no_class_name_stands_twice(nodes: Nodes) -> None:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for module, node in nodes[ast.ClassDef]:
        found[node.name].append(module)
    assert len(found) > 500
    assert {name: modules for name, modules in found.items() if len(modules) > 1 and name not in OF_EACH_MODE} == {}


def test_no_mapping_has_bool_keys(nodes: Nodes) -> None:
    """A reader of ``{True: …, False: …}`` has to know what the key asks; a name says it."""
    found = [
        f"{module}:{node.lineno}"
        for module, node in nodes[ast.Dict]
        if any(isinstance(key, ast.Constant) and isinstance(key.value, bool) for key in node.keys)
    ]
    assert found == []


def test_no_mapping_is_annotated_with_bool_keys(nodes: Nodes) -> None:
    mappings = {"dict", "defaultdict", "Mapping", "MutableMapping"}
    found = [
        f"{module}:{node.lineno}"
        for module, node in nodes[ast.Subscript]
        if isinstance(node.value, ast.Name)
        and node.value.id in mappings
        and isinstance(node.slice, ast.Tuple)
        and ast.unparse(node.slice.elts[0]) == "bool"
    ]
    assert found == []


def test_a_tuple_of_more_than_two_is_a_named_record(nodes: Nodes) -> None:
    found = {
        f"{'/'.join(module.split('/')[-2:])}: {ast.unparse(node)}"
        for module, node in nodes[ast.Subscript]
        if isinstance(node.value, ast.Name)
        and node.value.id == "tuple"
        and isinstance(node.slice, ast.Tuple)
        and len(node.slice.elts) > 2
    }
    assert found == set(KEPT_TUPLES)
