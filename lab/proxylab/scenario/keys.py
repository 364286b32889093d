"""How a class of the model declares the keys of a scenario file: the one place for each key.

Where to find a key: ``spec`` has the keys of the document, its ``metadata`` and its ``spec``. The keys of the parts are
in ``network`` (and netem), ``nodes``, ``node_engines``, ``pods`` (and hosts and load balancers), ``dns``, ``matrix``
(and ``when``, ``except``), ``probes`` (senders, targets, packets, streams), ``expect``, ``steps`` (and ``until``) and
``change``; those of Kubernetes manifests are in ``services``, ``workloads``, ``controllers``, ``pod_spec``,
``ingresses`` and ``configuration``, and ``kinds`` for those without an effect.

A ``Declared`` record is a mapping of the format. Each field that an author writes is annotated with its type and a
``Key``; the type may carry ``Read`` and ``Check``. ``reading`` reads a document by these declarations, and
``json_schema`` makes the JSON Schema and the reference page of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, ClassVar, Final, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields

from proxylab.cluster.documents import camel_case
from proxylab.encoding import Record, TaggedRecord
from proxylab.scenario.document import told_with


class RefusedError(ValueError):
    """A value that a key refuses; ``problem`` has the arguments of ``Problems.add``.

    ``key`` is the key at fault of a look-up, such as ``to.port``; a ``Read`` or ``Check`` need not name its own.
    """

    def __init__(self, what: str, *, key: str, allowed: str, word: str, known: Iterable[str]) -> None:
        super().__init__(what)
        self.key = key
        self.problem: Mapping[str, Any] = {"what": what, "allowed": allowed, "word": word, "known": [*map(str, known)]}

    def __str__(self) -> str:
        told = told_with(**self.problem)
        return f"{self.key}: {told}" if self.key else told


def refused(what: str, *, key: str = "", allowed: str = "", word: str = "", known: Iterable[str] = ()) -> RefusedError:
    """The error to raise in a ``Read``, a ``Check`` or a look-up."""
    return RefusedError(what, key=key, allowed=allowed, word=word, known=known)


class Key(Struct, frozen=True):
    """A key that an author writes.

    Attributes:
        text: its meaning, for editors and the reference page.
        examples: values as an author writes them.
        alias: the key in the file, if it is not the field's name in camel case.
        implied: what an absent key means, for a field without a default.
    """

    text: str
    examples: list[Any] = []
    alias: str = ""
    implied: Any = None


class _OwnName(Struct, frozen=True):
    """See ``OWN_NAME``."""


OWN_NAME: Final = _OwnName()
"""Marks the field that holds an entry's own key: a tuple of such records is a mapping in the file."""


class NotEmpty(Struct, frozen=True):
    """See ``NOT_EMPTY``."""

    def check(self, value: Any) -> Any:
        """The value; an empty one is refused."""
        if not value:
            raise refused("must not be empty")
        return value


NOT_EMPTY: Final = NotEmpty()
"""Marks a text, a list or a mapping that must not be empty."""


class OtherKeys(Struct, frozen=True):
    """Marks the field that holds the values of all keys which the record does not declare: a mapping by these keys.

    ``pattern`` is the regular expression of the keys, for editors.
    """

    pattern: str = ""


class UndeclaredKeys(Struct, frozen=True):
    """Where a record keeps the keys that it does not declare.

    Attributes:
        field: that holds them.
        hint: the annotation of their values.
        pattern: of the keys (``OtherKeys``).
    """

    field: str
    hint: Any
    pattern: str


class Check(Struct, frozen=True):
    """A check of a value after its type; it returns the value or raises ``refused``."""

    check: Callable[[Any], Any]


class Read(Struct, frozen=True):
    """How the lab reads a value that an author writes in another form than the model holds.

    Attributes:
        read: makes the value that the type expects, or raises ``refused``.
        written: the type of what the author writes, for editors; ``None`` if it is the field's own.
    """

    read: Callable[[Any], Any]
    written: Any = None


class WrittenAs(Struct, frozen=True):
    """How an author writes a value that the model holds as another type, such as a mapping for a tuple of records.

    Attributes:
        written: the annotation of what the author writes.
        make: makes the model's value from what the author wrote.
    """

    written: Any
    make: Callable[[Any], Any]


class Between(Struct, frozen=True):
    """A whole number in a range, both ends allowed. ``why`` is the reason, for the message."""

    low: int
    high: int
    why: str = ""

    def check(self, value: int | None) -> int | None:
        """The number; one outside the range is refused."""
        if value is None or self.low <= value <= self.high:
            return value
        reason = f" ({self.why})" if self.why else ""
        raise refused(f"{value} is out of range", allowed=f"allowed: {self.low} to {self.high}{reason}")


class Declared(Record, frozen=True):
    """A mapping of the scenario format, as the model holds it. Its docstring is its text on the reference page.

    Fields without a ``Key`` are not written: a ``position`` is the place of the mapping's own key, ``positions`` are
    the places of the keys in it. ``meant`` says for unknown keys that authors try what to write instead.
    """

    meant: ClassVar[Mapping[str, str]] = {}


class TaggedDeclared(TaggedRecord, Declared, frozen=True):
    """One of several mappings that a key may hold."""


class Manifest(Declared, frozen=True):
    """A mapping of a Kubernetes object: null means the same as an absent key, as for the API server.

    ``without_effect`` are the keys that change nothing for a proxy, each with its text. A ``loose`` mapping may have
    any further keys.
    """

    without_effect: ClassVar[Mapping[str, str]] = {}
    loose: ClassVar[bool] = False


def written(manifest: Manifest) -> dict[str, Any]:
    """A manifest as the document that ``proxylab.cluster.documents`` reads, with the addresses that it has read."""
    values = {key.alias: getattr(manifest, key.name) for key in declared_keys(type(manifest))}
    return {alias: _as_written(value) for alias, value in values.items() if value is not None}


def _as_written(value: Any) -> Any:
    match value:
        case Manifest():
            return written(value)
        case tuple():
            return [_as_written(each) for each in value]
        case StrEnum():
            return value.value
        case _:
            return value


class DeclaredKey(Struct, frozen=True):
    """One key of a ``Declared`` record.

    ``name`` is the field, ``alias`` the key in the file, and ``hint`` the annotation with everything in it. ``default``
    is ``msgspec.NODEFAULT`` for a key that the author must write.
    """

    name: str
    alias: str
    hint: Any
    key: Key
    default: Any


@cache
def declared_keys(declared: type[Declared]) -> tuple[DeclaredKey, ...]:
    """The keys of a record, in the order in which it declares them."""
    hints = _hints(declared)
    return tuple(
        DeclaredKey(
            name=field.name,
            alias=key.alias or camel_case(field.name),
            hint=hints[field.name],
            key=key,
            default=_default(field),
        )
        for field in fields(declared)
        for key in attached(hints[field.name])
        if isinstance(key, Key)
    )


@cache
def _hints(declared: type[Declared]) -> dict[str, Any]:
    return get_type_hints(declared, include_extras=True)


def _default(field: FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()


@cache
def _by_alias(declared: type[Declared]) -> Mapping[str, DeclaredKey]:
    return {key.alias: key for key in declared_keys(declared)}


def ignored_keys(manifest: Manifest, written: Any, path: str = "") -> Iterator[str]:
    """The keys without effect that the author wrote in a manifest, as paths without indexes."""
    keys = _by_alias(type(manifest))
    for alias, value in written.items():
        if value is not None and alias in manifest.without_effect:
            yield path + alias
        elif isinstance(value, dict | list) and alias in keys:
            inner = getattr(manifest, keys[alias].name)
            if isinstance(inner, Manifest):
                yield from ignored_keys(inner, value, f"{path}{alias}.")
            elif isinstance(inner, tuple) and isinstance(value, list):
                for each, item in zip(inner, value, strict=True):
                    yield from ignored_keys(each, item, f"{path}{alias}[].") if isinstance(each, Manifest) else ()


@cache
def key_field(declared: Any) -> tuple[str, Any] | None:
    """The field that holds an entry's own key, and its annotation; ``None`` if the type has none."""
    hints = _hints(declared) if is_declared(declared) else {}
    return next(((name, hint) for name, hint in hints.items() if OWN_NAME in attached(hint)), None)


@cache
def other_keys(declared: type[Declared]) -> UndeclaredKeys | None:
    """The field that holds undeclared keys; ``None`` if the type has none."""
    for name, hint in _hints(declared).items():
        for mark in attached(hint):
            if isinstance(mark, OtherKeys):
                return UndeclaredKeys(name, get_args(get_args(hint)[0])[1], mark.pattern)
    return None


def attached(hint: Any) -> Iterator[Any]:
    """Everything that is attached to an annotation or, if it may be absent, to the type that it has otherwise."""
    if get_origin(hint) is Annotated:
        inner, *metadata = get_args(hint)
        yield from metadata
        hint = inner
    options = [option for option in get_args(hint) if option is not type(None)]
    if type(None) in get_args(hint) and len(options) == 1:
        yield from attached(options[0])


def bare(hint: Any) -> Any:
    """An annotation without what is attached to it."""
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def is_declared(hint: Any) -> bool:
    """Whether a type is a mapping of the format."""
    return isinstance(hint, type) and issubclass(hint, Declared)
