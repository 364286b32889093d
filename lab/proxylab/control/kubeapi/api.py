"""The API of one cluster: the response to each request.

The response to a watch is an ``OpenWatch``, from which the owner of the socket takes lines. Events are the only objects
that clients create and change.
"""

from http import HTTPStatus
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import fields, replace

from proxylab.cluster.documents import Document, document_of, object_of
from proxylab.cluster.objects import ClusterEvent, ObjectKey, Unstructured
from proxylab.cluster.store import Store
from proxylab.control.kubeapi.encoder import Encoder
from proxylab.control.kubeapi.following import OpenWatch
from proxylab.control.kubeapi.refusal import Refusal
from proxylab.control.kubeapi.request import CollectionWatch, Discover, Get, List, Report, read_request
from proxylab.control.kubeapi.resources import RESOURCES, discovery, resources_of
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

    def answer(self, method: str, path: str, query: str, body: bytes, content_type: str) -> ApiReply | WatchReply:
        """The response to one request; no request makes it raise."""
        try:
            return self._answer(method, path, query, body, content_type)
        except Refusal as refusal:
            return refused(refusal)

    def _answer(self, method: str, path: str, query: str, body: bytes, content_type: str) -> ApiReply | WatchReply:
        match read_request(method, path, query, self._kept):
            case Discover(path):
                return self._discovered(path)
            case Get() as get:
                return self._object(ObjectKey(get.resource.key_kind, get.namespace, get.name), get.resource.plural)
            case List() as wanted:
                return self._listed(wanted)
            case CollectionWatch() as watch:
                return WatchReply(watch, OpenWatch(watch, self.store, self._encoder))
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

    def _object(self, key: ObjectKey, plural: str) -> ApiReply:
        thing = self.store.get(key)
        if thing is None:
            raise Refusal.not_found(f'{plural} "{key.name}" not found')
        return ApiReply(HTTPStatus.OK, self._encoder.known(thing, self.store.revision_of(key)))

    def _listed(self, wanted: List) -> ApiReply:
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
        items = (
            self._encoder.known(thing, self.store.revision_of(thing.key))
            for thing in self.store.list(resource.cls)
            if collection.holds(thing)
        )
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
        return ApiReply(code, self._encoder.known(event, self.store.apply(event)))


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
