"""The nodes of Python code, for tests that read all of it.

``ast.walk`` takes most of the time of such a test: it asks each node for its fields by generators, and visits the
context of each name, which says only whether it is read.
"""

import ast
from pathlib import Path

__all__ = ["nodes_of", "parsed"]

_SAYS_NOTHING = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """A node and all below it but contexts and operators, the upper ones first."""
    found = [tree]
    for node in found:  # it grows meanwhile
        for name in node._fields:
            value = getattr(node, name, None)
            if type(value) is list:
                found += [each for each in value if isinstance(each, ast.AST) and not isinstance(each, _SAYS_NOTHING)]
            elif isinstance(value, ast.AST) and not isinstance(value, _SAYS_NOTHING):
                found.append(value)
    return found
