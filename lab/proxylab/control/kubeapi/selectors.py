"""Label and field selectors: read from text into a ``Selection``, which matches the labels and fields of an object.

The grammar of label selectors is that of apimachinery (pkg/labels/selector.go): terms joined by commas, each of them
``key``, ``!key``, ``key = value``, ``key == value``, ``key != value``, ``key in (a, b)`` or
``key notin (a, b)``. The API refuses ``>`` and ``<``. A key that is absent satisfies ``!=`` and ``notin``. Field
selectors have ``=``, ``==`` and ``!=`` only.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from proxylab.control.kubeapi.refusal import Refusal

Labels = Mapping[str, str]
Fields = Mapping[str, str]

_KEY: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_./-]*[A-Za-z0-9])?"
_VALUE: Final = r"[A-Za-z0-9_.-]*"
_TERM: Final = re.compile(
    rf"""\s*(?:
        (?P<absent>!\s*)?(?P<bare>{_KEY})
      | (?P<key>{_KEY})\s*(?P<sign>==|=|!=)\s*(?P<value>{_VALUE})
      | (?P<list>{_KEY})\s+(?P<kind>in|notin)\s*\((?P<values>[^()]*)\)
    )\s*(?:,|$)""",
    re.VERBOSE,
)
_FIELD: Final = re.compile(r"\s*([A-Za-z0-9_.\-]+)\s*(==|=|!=)\s*([^,=!]*?)\s*")

_LabelTerm = Callable[[Labels], bool]


class _FieldTerm(Struct, frozen=True):
    name: str
    value: str
    equal: bool


class Selection(Struct, frozen=True):
    """Both selectors of a request."""

    _labels: tuple[_LabelTerm, ...] = ()
    _fields: tuple[_FieldTerm, ...] = ()

    @classmethod
    def of(cls, labels: str, fields: str) -> "Selection":
        """Read the selectors of a request; empty ones select everything. Raises ``Refusal``."""
        return cls(tuple(_label_terms(labels)), tuple(_field_terms(fields)))

    @property
    def field_names(self) -> frozenset[str]:
        """The fields that terms name."""
        return frozenset(term.name for term in self._fields)

    def accepts(self, labels: Labels, fields: Fields) -> bool:
        """Whether both selectors match an object with these labels and fields."""
        return all(term(labels) for term in self._labels) and all(
            (fields.get(term.name, "") == term.value) is term.equal for term in self._fields
        )


def _label_terms(text: str) -> list[_LabelTerm]:
    terms: list[_LabelTerm] = []
    at = 0
    while at < len(text):
        term = _TERM.match(text, at)
        if term is None or term.end() == at:
            raise Refusal.bad_request(f"unable to parse requirement: labelSelector {text!r}, from {text[at:]!r}")
        terms.append(_label_term(term))
        at = term.end()
    return terms


def _label_term(term: re.Match[str]) -> _LabelTerm:
    if key := term["bare"]:
        wanted = term["absent"] is None
        return lambda labels: (key in labels) is wanted
    if key := term["list"]:
        values, inside = frozenset(value.strip() for value in term["values"].split(",")), term["kind"] == "in"
        if inside:
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    key, value = term["key"], term["value"]
    if term["sign"] == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _field_terms(text: str) -> list[_FieldTerm]:
    terms = []
    for part in text.split(",") if text.strip() else ():
        term = _FIELD.fullmatch(part)
        if term is None:
            raise Refusal.bad_request(f"invalid selector: {text!r}; can't understand {part!r}")
        terms.append(_FieldTerm(term[1], term[3], equal=term[2] != "!="))
    return terms
