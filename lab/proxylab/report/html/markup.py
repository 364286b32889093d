"""HTML as text that cannot be anything else than what was meant.

Owns: ``Markup``, text that is HTML already, and ``tag``, which escapes all other text.
Must not: know what a page says.

Names in a scenario are its author's, comments in rules are an engine's, and both may hold ``<script>``. Here a string
becomes HTML in one place only, which escapes it; whoever wants it otherwise must say ``Markup``.
"""

from collections.abc import Iterable
from html import escape
from typing import Final

__all__ = ["Child", "Markup", "joined", "tag"]

_VOID: Final = frozenset({"br", "img", "input", "link", "meta"})
"""Elements of HTML that have no content and no end. Those of SVG have one."""


class Markup(str):
    """HTML that is safe to be put into a page as it is."""

    __slots__ = ()


Child = str | Iterable["Child"] | None
"""What may stand in an element: text, which is escaped; ``Markup``, which is not; several of these; or nothing."""


def joined(*children: Child) -> Markup:
    """Children one behind the other."""
    return Markup("".join(map(_text, children)))


def tag(_name: str, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """An element.

    Args:
        _name: of the element.
        children: its content.
        attributes: by name; ``_`` stands for ``-``, and at the end for nothing (``class_``). ``True`` is an attribute
            without value; ``None``, ``False`` and an empty class are none.

    Example:
        >>> tag("b", "a < b", Markup("<br>"), class_="wide", data_at=3)
        '<b class="wide" data-at="3">a &lt; b<br></b>'
    """
    head = "".join(_attribute(name, value) for name, value in attributes.items())
    if _name in _VOID:
        return Markup(f"<{_name}{head}>")
    return Markup(f"<{_name}{head}>{joined(*children)}</{_name}>")


def _attribute(name: str, value: str | int | bool | None) -> str:
    spelt = name.rstrip("_").replace("_", "-")
    if value is None or value is False or (spelt == "class" and not value):
        return ""
    return f" {spelt}" if value is True else f' {spelt}="{escape(str(value))}"'


def _text(child: Child) -> str:
    match child:
        case None:
            return ""
        case Markup():
            return child
        case str():
            return escape(child, quote=False)
        case _:
            return "".join(map(_text, child))
