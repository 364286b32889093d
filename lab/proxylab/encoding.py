"""Values to JSON and back: what crosses processes, and what bundles keep.

msgspec does the work, by the type hints of ``Record`` classes. This module adds what msgspec does not know: the
addresses of ``ipaddress``, as their usual text.

Decoding is strict: a document that does not fit its type is a ``MisfitError``, never a guess. Encoding trusts mypy.
"""

from collections.abc import Callable
from functools import cache, lru_cache
from ipaddress import ip_address, ip_interface, ip_network
from json import dumps, loads
from typing import Any, Final, TypeVar, overload

from msgspec import Struct, ValidationError, convert, json, to_builtins

from proxylab.addresses import IPAddress, IPInterface, IPNetwork

T = TypeVar("T")

_PARSERS: Final[dict[Any, Callable[[str], object]]] = {
    IPAddress: ip_address,
    IPInterface: ip_interface,
    IPNetwork: ip_network,
}


class MisfitError(ValueError):
    """A document does not fit its type. The message says what was expected, and the path to it.

    The caller knows whether the author of a file or the lab is at fault.
    """


class Record(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A frozen record that can be encoded, without the fields that have their defaults.

    Unknown fields are refused: the writer may be another version of proxylab, and a field that it needs may be missing
    here.
    """


class TaggedRecord(Record, frozen=True, tag_field="is"):
    """One of several records that a field or message may hold: ``"is"`` carries the name of its class."""


def encode(value: object) -> bytes:
    """``value`` as compact JSON. Raises ``TypeError`` for an object that JSON cannot hold."""
    texts: dict[int, str] = {}

    def written(address: object) -> str:
        # Tens of thousands of observations share a few address objects. A lookup by value would cost as much as
        # writing the text; the value keeps the objects alive, so that their identities last.
        text = texts.get(id(address))
        if text is None:
            if not isinstance(address, IPAddress | IPInterface | IPNetwork):
                raise TypeError(f"{type(address).__name__} has no form in JSON")
            text = texts[id(address)] = str(address)
        return text

    try:
        return json.encode(value, enc_hook=written)
    except UnicodeEncodeError:  # the name of a file that is not UTF-8; the standard library escapes its bytes
        return dumps(to_builtins(value, enc_hook=written)).encode("ascii")


@overload
def decode(data: bytes, hint: type[T]) -> T: ...
@overload
def decode(data: bytes, hint: object) -> Any: ...
def decode(data: bytes, hint: object) -> Any:
    """The value of type ``hint`` from which ``encode`` made ``data``.

    Raises:
        MisfitError: ``data`` is not JSON, or does not fit ``hint``.
        TypeError: msgspec cannot carry ``hint``.
    """
    try:
        if b"\\udc" in data:  # see encode
            return convert(loads(data), hint, dec_hook=_address)  # type: ignore[arg-type]  # a type is hashable
        return _decoder(hint).decode(data)
    except (ValueError, RecursionError) as error:
        what = "" if isinstance(error, ValidationError) else "not JSON: "
        raise MisfitError(f"{getattr(hint, '__name__', hint)}: {what}{error}") from None


@cache
def _decoder(hint: Any) -> "json.Decoder[Any]":
    return json.Decoder(hint, dec_hook=_address)


@lru_cache(maxsize=8192)  # a lab has hundreds; parsing one costs more than the rest of an observation
def _address(hint: type, text: object) -> object:
    """An address of that type. ``msgspec`` adds the path to the message of the ``ValueError``."""
    if not isinstance(text, str):
        raise ValueError(f"Expected an address, got `{type(text).__name__}`")  # noqa: TRY004 - msgspec passes on a ValueError
    return _PARSERS[hint](text)
