"""Reads the method and target of an API request into one of the typed requests."""

import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs

from msgspec import Struct

from proxylab.cluster.documents import labels_of
from proxylab.cluster.objects import KubeObject, Unstructured
from proxylab.control.kubeapi.refusal import Refusal
from proxylab.control.kubeapi.resources import RESOURCES, Resource, resources_of
from proxylab.control.kubeapi.selectors import Selection

_PATH: Final = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[a-z0-9.-]+/[a-z0-9]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/[^/]))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?/?"
)
_WATCH_SECONDS: Final = 3600
_EXACT, _NOT_OLDER = "Exact", "NotOlderThan"


class Collection(Struct, frozen=True):
    """The selected objects of one kind, in one namespace or in all (empty).

    Attributes:
        form: equal for collections that hold the same objects because requests say the same.
    """

    resource: Resource
    namespace: str
    selection: Selection
    form: tuple[str, ...]

    def holds(self, thing: KubeObject) -> bool:
        """Whether an object belongs to the collection."""
        return (
            isinstance(thing, self.resource.cls)
            and thing.key.kind == self.resource.key_kind
            and self.namespace in ("", thing.key.namespace)
            and self.selection.accepts(labels_of(thing), self.resource.fields_of(thing, self.selection.field_names))
        )


class Discover(Struct, frozen=True):
    """A discovery document."""

    path: str


class Get(Struct, frozen=True):
    """One object."""

    resource: Resource
    namespace: str
    name: str


class List(Struct, frozen=True):
    """A collection as it is now.

    Attributes:
        revision: the oldest acceptable state; 0 for any.
        exact: whether only the state at ``revision`` is acceptable.
    """

    collection: Collection
    revision: int = 0
    exact: bool = False


class CollectionWatch(Struct, frozen=True):
    """The changes of a collection.

    Attributes:
        revision: the state that the client knows; ``None`` if it knows none.
        initial: begin with the current objects, as ADDED.
        announce: send a bookmark after the current objects (KEP-3157, streaming lists).
        bookmarks: send bookmarks from time to time.
        seconds: how long the watch lasts.
    """

    collection: Collection
    revision: int | None
    initial: bool
    announce: bool
    bookmarks: bool
    seconds: float


class Report(Struct, frozen=True):
    """An object that a client creates (``POST``) or changes (``PATCH``, with its ``name``)."""

    resource: Resource
    namespace: str
    name: str = ""


Request = Discover | Get | List | CollectionWatch | Report


def read_request(method: str, path: str, query: str, kept: Callable[[], Iterable[Unstructured]]) -> Request:
    """Read a request. ``kept`` gives the unstructured objects, whose kinds may be custom. Raises ``Refusal``."""
    parts = _PATH.fullmatch(path)
    if parts is None:
        return _only_read(method, Discover(path))
    wanted = (parts["core"] or parts["group"], parts["plural"])
    found = [each for each in RESOURCES if (each.group_version, each.plural) == wanted]
    found = found or [each for each in resources_of(kept()) if (each.group_version, each.plural) == wanted]
    if not found:
        return _only_read(method, Discover(path))
    resource, namespace, name = found[0], parts["namespace"] or "", parts["name"] or ""
    if namespace and not resource.namespaced:
        raise Refusal.not_found("the server could not find the requested resource")
    if method in ("POST", "PATCH") and resource.accepts and bool(name) is (method == "PATCH"):
        return Report(resource, namespace, name)
    if name:
        return _only_read(method, Get(resource, namespace, name))
    return _only_read(method, _collection_request(resource, namespace, _Options.of(query)))


def _only_read(method: str, request: Request) -> Request:
    if method not in ("GET", "HEAD"):
        raise Refusal(
            HTTPStatus.METHOD_NOT_ALLOWED,
            "MethodNotAllowed",
            f"{method} is not supported here: change the objects of a lab through its scenario",
        )
    return request


class _Options(Struct, frozen=True):
    """``metav1.ListOptions``."""

    values: dict[str, str]

    @classmethod
    def of(cls, query: str) -> "_Options":
        try:
            read = parse_qs(query, keep_blank_values=True, max_num_fields=50)
        except ValueError as error:
            raise Refusal.bad_request(str(error)) from None
        return cls({key: values[0] for key, values in read.items()})

    def text(self, key: str) -> str:
        return self.values.get(key, "")

    def flag(self, key: str) -> bool | None:
        """``None`` where it is not given."""
        match self.values.get(key, "").lower():
            case "":
                return None
            case "1" | "true" | "t":
                return True
            case "0" | "false" | "f":
                return False
            case other:
                raise Refusal.bad_request(f"{key} must be true or false, is {other!r}")

    def number(self, key: str) -> int | None:
        """``None`` where it is not given."""
        text = self.values.get(key, "")
        if not text:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", text):
            raise Refusal.bad_request(f"{key} must be a number, is {text!r}")
        return int(text)


def _collection_request(resource: Resource, namespace: str, options: _Options) -> List | CollectionWatch:
    labels, fields = options.text("labelSelector"), options.text("fieldSelector")
    selection = Selection.of(labels, fields)
    for name in sorted(selection.field_names - resource.field_names):
        raise Refusal.bad_request(f"field label not supported: {name}")
    form = (resource.group_version, resource.plural, namespace, labels, fields)
    collection = Collection(resource, namespace, selection, form)
    revision, match = options.number("resourceVersion"), options.text("resourceVersionMatch")
    if match not in ("", _EXACT, _NOT_OLDER):
        raise _invalid(f"resourceVersionMatch: {match!r} is not supported")
    if options.flag("watch"):
        return _watch(collection, revision, match, options)
    if options.flag("sendInitialEvents") is not None:
        raise _invalid("sendInitialEvents is forbidden for list")
    if match and revision is None:
        raise _invalid("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match == _EXACT and revision == 0:
        raise _invalid('resourceVersionMatch "Exact" is forbidden for resourceVersion "0"')
    return List(collection, revision or 0, exact=match == _EXACT)


def _watch(collection: Collection, revision: int | None, match: str, options: _Options) -> CollectionWatch:
    announced = options.flag("sendInitialEvents")
    if announced is not None and match != _NOT_OLDER:
        raise _invalid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    if announced is None and match:
        raise _invalid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    seconds = options.number("timeoutSeconds")
    return CollectionWatch(
        collection,
        revision or None,
        # Without a revision a watch begins with the current objects; so does one from "0", which means any state.
        initial=not revision if announced is None else announced,
        announce=announced is True,
        bookmarks=options.flag("allowWatchBookmarks") is True,
        seconds=float(_WATCH_SECONDS if seconds is None else min(seconds, _WATCH_SECONDS)),
    )


def _invalid(message: str) -> Refusal:
    return Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", message)
