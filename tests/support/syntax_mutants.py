"""Small mistakes in Python code, made by itself on the syntax tree.

Each is one that a person makes: a comparison turned or one off, a condition left out or negated, ``and`` for ``or``,
``any`` for ``all``, the other constant returned, a loop that looks at the first element only, a part of a union or of a
list of constants left out. A mistake is known by what it replaces and by what stands there instead, not by its place:
so moved lines and new functions leave it as it is.
"""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

__all__ = ["SyntaxMutant", "syntax_mutants"]

_TURNED: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Lt: (ast.GtE, ast.LtE),
    ast.LtE: (ast.Gt, ast.Lt),
    ast.Gt: (ast.LtE, ast.GtE),
    ast.GtE: (ast.Lt, ast.Gt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_EXCHANGED = {"any": "all", "all": "any", "min": "max", "max": "min"}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SyntaxMutant:
    """One mistake in a module.

    Attributes:
        was: what it replaces, as ``ast.unparse`` writes it.
        becomes: what stands there instead.
        function: the text of the function around it, or of the statement outside of functions.
        name: of that function, ``Class.method`` of a method; empty outside of functions.
        lines: those that what it replaces stands on, of a statement with a body those of its head.
        tree: the module.
        place: of what it replaces, in the order of ``ast.walk``.
        instead: the node that stands there instead.
    """

    was: str
    becomes: str
    function: str
    name: str
    lines: range
    tree: ast.Module
    place: int
    instead: ast.AST

    @property
    def rank(self) -> float:
        """A number below 1, as random as a hash, that only what it replaces and what stands there instead decide."""
        return int(sha256(f"{self.was} -> {self.becomes}".encode()).hexdigest()[:8], 16) / 2**32

    @property
    def module(self) -> str:
        """The text of the whole module with the mistake."""
        whole = copy.deepcopy(self.tree)
        old = next(islice(ast.walk(whole), self.place, None))
        changed = _Replacing(old, copy.deepcopy(self.instead)).visit(whole)
        return ast.unparse(ast.fix_missing_locations(changed))


def syntax_mutants(text: str) -> Iterator[SyntaxMutant]:
    """All such mistakes in a module, in its order."""
    tree = ast.parse(text)
    places = {node: place for place, node in enumerate(ast.walk(tree))}
    for prefix, statement in _with_code(tree):
        is_function = isinstance(statement, _Function)
        parts = statement.body if is_function else [statement]
        function = ast.unparse(statement)
        for node in (node for part in parts for node in _nodes(part)):
            last = (
                node.test if isinstance(node, ast.If | ast.While) else node.iter if isinstance(node, ast.For) else node
            )
            for instead in _changes(node):
                yield SyntaxMutant(
                    was=_shown(node),
                    becomes=_shown(instead),
                    function=function,
                    name=f"{prefix}{statement.name}" if is_function else "",
                    lines=range(node.lineno, (last.end_lineno or node.lineno) + 1),
                    tree=tree,
                    place=places[node],
                    instead=instead,
                )


def _with_code(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """The functions, methods and other statements that a mistake may be in, and of methods the class as a prefix."""
    for outer in tree.body:
        in_class = isinstance(outer, ast.ClassDef)
        prefix, inner = (f"{outer.name}.", outer.body) if in_class else ("", [outer])
        yield from ((prefix, each) for each in inner if not _is_about_names(each))


def _nodes(part: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """The expressions and statements in a part of the code, without types and without the text of f-strings."""
    if isinstance(part, ast.expr | ast.stmt):
        yield part
    for name, value in ast.iter_fields(part):
        is_type = name in ("annotation", "returns") or (isinstance(part, ast.Subscript) and name == "slice")
        if is_type or isinstance(part, ast.JoinedStr):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from _nodes(each)


def _is_about_names(statement: ast.stmt) -> bool:
    """Whether a statement only says which names there are: imports, types, and what a module exports."""
    if isinstance(statement, ast.Assign):
        is_type = isinstance(statement.value, ast.BinOp | ast.Subscript)
        return is_type or any(isinstance(each, ast.Name) and each.id == "__all__" for each in statement.targets)
    if isinstance(statement, ast.AnnAssign) and statement.value is None:
        return True
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.ClassDef)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    for change in _CHANGES:
        yield from change(node)


def _compare(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for number, operator in enumerate(node.ops):
            for other in _TURNED.get(type(operator), ()):
                changed = copy.copy(node)
                changed.ops = [*node.ops[:number], other(), *node.ops[number + 1 :]]
                yield changed


def _conditions(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BoolOp):
        other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.BoolOp(other, node.values)
        for left in _one_left_out(node.values):
            yield left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(node.test, ast.Compare | ast.UnaryOp):
        changed = copy.copy(node)
        changed.test = ast.UnaryOp(ast.Not(), node.test)
        yield changed
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        for number, generator in enumerate(node.generators):
            for left in _one_left_out(generator.ifs):
                yield _with_generator(node, number, ast.comprehension(generator.target, generator.iter, left, 0))


def _first_only(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.For):
        changed = copy.copy(node)
        changed.iter = _first(node.iter)
        yield changed
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        for number, each in enumerate(node.generators):
            yield _with_generator(node, number, ast.comprehension(each.target, _first(each.iter), each.ifs, 0))


def _first(elements: ast.expr) -> ast.expr:
    listed = ast.Call(ast.Name("list", ast.Load()), [elements], [])
    return ast.Subscript(listed, ast.Slice(upper=ast.Constant(1)), ast.Load())


_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


def _with_generator(node: _Comprehension, number: int, generator: ast.comprehension) -> ast.AST:
    changed = copy.copy(node)
    changed.generators = [*node.generators[:number], generator, *node.generators[number + 1 :]]
    return changed


def _constants(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant):
        value = node.value.value
        if isinstance(value, bool):
            yield ast.Return(ast.Constant(not value))
        elif value == "":
            yield ast.Return(ast.Constant("something"))
    elif isinstance(node, ast.Compare | ast.BinOp):
        parts = [*node.comparators] if isinstance(node, ast.Compare) else [node.right]
        for part in parts:
            if isinstance(part, ast.Constant) and type(part.value) is int:
                yield _replaced(node, part, ast.Constant(part.value + 1))


def _replaced(node: ast.AST, old: ast.expr, new: ast.expr) -> ast.AST:
    changed = copy.copy(node)
    if isinstance(changed, ast.Compare):
        changed.comparators = [new if each is old else each for each in changed.comparators]
    elif isinstance(changed, ast.BinOp):
        changed.right = new
    return changed


def _calls(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _EXCHANGED:
        alone = len(node.args) == 1 or node.func.id in ("any", "all")
        if alone or len(node.args) > 1:
            yield ast.Call(ast.Name(_EXCHANGED[node.func.id], ast.Load()), node.args, node.keywords)


def _unions(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield node.left
        yield node.right
    elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.BitOr | ast.Add | ast.Sub):
        yield ast.Pass()
    elif isinstance(node, ast.Tuple | ast.List | ast.Set) and isinstance(getattr(node, "ctx", None), ast.Load | None):
        starred = [each for each in node.elts if isinstance(each, ast.Starred)]
        if starred and len(node.elts) > 1:
            for part in starred:
                yield _display(node, [each for each in node.elts if each is not part])
        elif isinstance(node, ast.Set) and len(node.elts) > 1:
            for left in _one_left_out(node.elts):
                yield ast.Set(left)


def _display(node: ast.Tuple | ast.List | ast.Set, elements: list[ast.expr]) -> ast.AST:
    changed = copy.copy(node)
    changed.elts = elements
    return changed


def _one_left_out(parts: list[ast.expr]) -> Iterator[list[ast.expr]]:
    for number in range(len(parts)):
        yield [*parts[:number], *parts[number + 1 :]]


_CHANGES: tuple[Callable[[ast.AST], Iterator[ast.AST]], ...] = (
    _compare,
    _conditions,
    _first_only,
    _constants,
    _calls,
    _unions,
)


def _shown(node: ast.AST) -> str:
    """The text of an expression or statement; of a statement with a body its head alone."""
    if isinstance(node, ast.If | ast.For | ast.While):
        node = copy.copy(node)
        node.body, node.orelse = [], []
    return ast.unparse(node)


class _Replacing(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old = old
        self._new = new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else super().visit(node)
