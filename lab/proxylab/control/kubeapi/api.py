"""The API of one cluster: the response to each request.

The response to a watch is an ``OpenWatch``, from which the owner of the socket takes lines. Events are the only objects
that clients create and change.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import fields, replace

from proxylab.cluster.documents import Document, document_of, object_of
from proxylab.cluster.objects import (
    ClusterEvent,
    Endpoints,
    EndpointSlice,
    KubeObject,
    ObjectKey,
    Pod,
    Unstructured,
)
from proxylab.cluster.slices import endpoints_of_slices
from proxylab.cluster.store import Store
from proxylab.control.kubeapi.encoder import Encoder
from proxylab.control.kubeapi.following import OpenWatch
from proxylab.control.kubeapi.refusal import Refusal
from proxylab.control.kubeapi.request import CollectionWatch, Discover, Get, List, Report, read_request
from proxylab.control.kubeapi.resources import RESOURCES, Resource, discovery, resources_of
from proxylab.control.kubeapi.tables import TableOptions, table_of
from proxylab.encoding import MisfitError

_VERSION: Final = "v1.34.0"
"""The version at ``/version``; kubectl uses it for little but a warning."""

_MOST_EVENTS: Final = 1000
_TEXT_LIMIT: Final = 1024  # apiserver's noteLengthLimit (pkg/apis/core/validation/events.go)
_ALIVE: Final = ("/healthz", "/livez", "/readyz")


class ApiReply(Struct, frozen=True):
    """A complete response."""

    code: int
    body: bytes
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()


class WatchReply(Struct, frozen=True):
    """A streaming response: the lines of ``open_watch``, for as long as ``watch`` allows."""

    watch: CollectionWatch
    open_watch: OpenWatch


class KubeApi:
    """The API over a store.

    Args:
        since: the creation time of all objects, in the format of RFC 3339.
    """

    def __init__(self, store: Store, since: str) -> None:
        self.store = store
        self._encoder = Encoder(since)

    def answer(
        self, method: str, path: str, query: str, body: bytes, content_type: str, accept: str = ""
    ) -> ApiReply | WatchReply:
        """The response to one request; no request makes it raise."""
        try:
            return self._answer(method, path, query, body, content_type, accept)
        except Refusal as refusal:
            return refused(refusal)

    def _answer(
        self, method: str, path: str, query: str, body: bytes, content_type: str, accept: str
    ) -> ApiReply | WatchReply:
        table = TableOptions.read(accept, query)
        match read_request(method, path, query, self._kept):
            case Discover(path):
                return self._discovered(path)
            case Get() as get:
                return self._object(get, table)
            case List() as wanted:
                return self._listed(wanted, table)
            case CollectionWatch(collection) as watch:
                as_table = None if table is None else partial(self._table_of_one, collection.resource, table)
                return WatchReply(watch, OpenWatch(watch, self.store, self._encoder, as_table))
            case Report() as report:
                return self._reported(report, body, content_type)

    def _discovered(self, path: str) -> ApiReply:
        if path in _ALIVE:
            return ApiReply(HTTPStatus.OK, b"ok", "text/plain; charset=utf-8")
        document = discovery(path, _VERSION, (*RESOURCES, *resources_of(self._kept())))
        if document is None:
            raise Refusal.not_found("the server could not find the requested resource")
        return ApiReply(HTTPStatus.OK, encode(document))

    def _kept(self) -> tuple[Unstructured, ...]:
        return self.store.list(Unstructured)

    def _things(self, resource: Resource) -> Iterable[tuple[KubeObject, int]]:
        """The objects of a resource with their revisions; Endpoints follow from the slices where no proxy needs any."""
        found = self.store.list(resource.cls)
        if resource.cls is Endpoints and not found:
            return ((each, self.store.revision) for each in endpoints_of_slices(self.store.list(EndpointSlice)))
        return ((each, self.store.revision_of(each.key)) for each in found)

    def _object(self, get: Get, table: TableOptions | None) -> ApiReply:
        resource, key = get.resource, ObjectKey(get.resource.key_kind, get.namespace, get.name)
        if resource.cls is Endpoints:
            known = {each.key: (each, revision) for each, revision in self._things(resource)}.get(key)
        else:
            thing = self.store.get(key)
            known = None if thing is None else (thing, self.store.revision_of(key))
        if known is None:
            raise Refusal.not_found(f'{resource.plural} "{key.name}" not found')
        if table is not None:
            return ApiReply(HTTPStatus.OK, self._table_of_one(resource, table, *known))
        return ApiReply(HTTPStatus.OK, self._encoder.known(resource, *known))

    def _table_of_one(self, resource: Resource, table: TableOptions, thing: KubeObject, revision: int) -> bytes:
        return self._table(resource, table, [(thing, revision)], revision)

    def _table(
        self, resource: Resource, table: TableOptions, things: Iterable[tuple[KubeObject, int]], revision: int
    ) -> bytes:
        rows = [(thing, self._encoder.read(resource, thing, own)) for thing, own in things]
        metadata = {"resourceVersion": str(revision)}
        return encode(table_of(resource.kind, rows, self.store.list(Pod), datetime.now(UTC), table, metadata))

    def _listed(self, wanted: List, table: TableOptions | None) -> ApiReply:
        revision, collection = self.store.revision, wanted.collection
        if wanted.revision > revision:
            raise Refusal.too_new(wanted.revision, revision)
        if wanted.exact and wanted.revision != revision:
            raise Refusal.expired(wanted.revision)
        resource = collection.resource
        head = {
            "kind": f"{resource.kind}List",
            "apiVersion": resource.group_version,
            "metadata": {"resourceVersion": str(revision)},
        }
        found = ((thing, own) for thing, own in self._things(resource) if collection.holds(thing))
        if table is not None:
            return ApiReply(HTTPStatus.OK, self._table(resource, table, found, revision))
        items = (self._encoder.known(resource, thing, own) for thing, own in found)
        return ApiReply(HTTPStatus.OK, b'%s,"items":[%s]}' % (encode(head)[:-1], b",".join(items)))

    def _reported(self, report: Report, body: bytes, content_type: str) -> ApiReply:
        key = ObjectKey(report.resource.kind, report.namespace, report.name)
        if not report.name:
            if len(self.store.list(ClusterEvent)) >= _MOST_EVENTS:
                raise Refusal(HTTPStatus.TOO_MANY_REQUESTS, "TooManyRequests", "too many events", retry_after=60)
            event = _created_event(body, content_type, report.namespace)
            code = HTTPStatus.CREATED
        else:
            known = self.store.get(key)
            if not isinstance(known, ClusterEvent):
                raise Refusal.not_found(f'{report.resource.plural} "{report.name}" not found')
            event = _changed_event(known, body, content_type)
            code = HTTPStatus.OK
        return ApiReply(code, self._encoder.known(report.resource, event, self.store.apply(event)))


def refused(refusal: Refusal) -> ApiReply:
    """A refusal as a Status."""
    headers = (("Retry-After", str(refusal.retry_after)),) if refusal.retry_after else ()
    return ApiReply(refusal.code, encode(refusal.status), headers=headers)


def _created_event(body: bytes, content_type: str, namespace: str) -> ClusterEvent:
    """The event of a ``POST``. Raises ``Refusal``."""
    document = _document(body, content_type)
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", "metadata.name: Required value")
    return _event({**document, "metadata": {**metadata, **({"namespace": namespace} if namespace else {})}})


def _changed_event(event: ClusterEvent, body: bytes, content_type: str) -> ClusterEvent:
    """The event of a ``PATCH``, in which the keys of mappings replace those of before. Raises ``Refusal``."""
    before = document_of(event, 0, "")
    patch = {
        key: {**before[key], **value} if isinstance(value, dict) and isinstance(before.get(key), dict) else value
        for key, value in _document(body, content_type).items()
    }
    return _event({**before, **patch, "metadata": before["metadata"]})


def _event(document: Document) -> ClusterEvent:
    """The event of a document, with its texts as long as the API server allows. Raises ``Refusal``."""
    try:
        event = object_of(ClusterEvent, document)
    except MisfitError as error:
        raise Refusal.bad_request(str(error)) from None
    texts = {
        each.name: text[:_TEXT_LIMIT] for each in fields(event) if isinstance(text := getattr(event, each.name), str)
    }
    return replace(event, **texts, regarding=ObjectKey(*(text[:_TEXT_LIMIT] for text in event.regarding)))


def _document(body: bytes, content_type: str) -> Document:
    if "json" not in content_type:
        message = f"the body of the request is {content_type or 'of no content type'}, and must be JSON"
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    try:
        return msgspec.json.decode(body, type=Document)
    except (msgspec.DecodeError, RecursionError):
        raise Refusal.bad_request("the body of the request is not a JSON object") from None
