"""HTML that is escaped by construction: ``Markup`` is HTML, and ``tag`` escapes every other string.

Names in a scenario come from its author and comments in rules from an engine; both may contain ``<script>``. Only one
function here turns a string into HTML, and it escapes it.
"""

from collections.abc import Iterable
from html import escape
from typing import Final

from proxylab.text import printable

_VOID: Final = frozenset({"br", "img", "input", "link", "meta"})
"""Elements of HTML without content and end tag."""


_SHORT: Final = 28
"""The length of a word that always has room, such as that of an engine with its version."""


class Markup(str):
    """HTML that needs no escaping."""

    __slots__ = ()


Child = str | Iterable["Child"] | None
"""The content of an element: text, which is escaped; ``Markup``, which is not; several of these; or nothing."""


def joined(*children: Child) -> Markup:
    """Concatenate children."""
    return Markup("".join(map(_text, children)))


def tag(_name: str, *children: Child, **attributes: str | int | bool | None) -> Markup:
    """An element.

    Args:
        _name: the element's name.
        children: its content.
        attributes: by name; ``_`` becomes ``-``, and is dropped at the end (``class_``). ``True`` is an attribute
            without a value; ``None``, ``False`` and an empty class are left out.

    Example:
        >>> tag("b", "a < b", Markup("<br>"), class_="wide", data_at=3)
        '<b class="wide" data-at="3">a &lt; b<br></b>'
    """
    head = "".join(_attribute(name, value) for name, value in attributes.items())
    if _name in _VOID:
        return Markup(f"<{_name}{head}>")
    return Markup(f"<{_name}{head}>{joined(*children)}</{_name}>")


def unbroken(text: str) -> Markup:
    """Text whose short words with hyphens, such as ``node-a``, are not broken at them."""
    first, *others = (
        tag("span", word, class_="whole") if "-" in word and len(word) <= _SHORT else word for word in text.split(" ")
    )
    return joined(first, *(joined(" ", each) for each in others))


def _attribute(name: str, value: str | int | bool | None) -> str:
    spelt = name.rstrip("_").replace("_", "-")
    if value is None or value is False or (spelt == "class" and not value):
        return ""
    return f" {spelt}" if value is True else f' {spelt}="{escape(printable(str(value)))}"'


def _text(child: Child) -> str:
    match child:
        case None:
            return ""
        case Markup():
            return child
        case str():
            return escape(printable(child), quote=False)
        case _:
            return "".join(map(_text, child))
