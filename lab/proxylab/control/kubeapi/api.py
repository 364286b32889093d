"""The API of one cluster: the response to each request.

The response to a watch is an ``OpenWatch``, from which the owner of the socket takes lines. Events are the only objects
that clients create and change.
"""

from http import HTTPStatus
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from proxylab.cluster.objects import ClusterEvent, ObjectKey, Unstructured
from proxylab.cluster.store import Store
from proxylab.control.kubeapi.following import OpenWatch
from proxylab.control.kubeapi.manifest import Encoder
from proxylab.control.kubeapi.refusal import Refusal
from proxylab.control.kubeapi.request import CollectionWatch, Discover, Get, List, Report, read_request
from proxylab.control.kubeapi.resources import RESOURCES, discovery, resources_of

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
            event = _with_series(known, _document(body, content_type))
            code = HTTPStatus.OK
        return ApiReply(code, self._encoder.known(event, self.store.apply(event)))


def refused(refusal: Refusal) -> ApiReply:
    """A refusal as a Status."""
    headers = (("Retry-After", str(refusal.retry_after)),) if refusal.retry_after else ()
    return ApiReply(refusal.code, encode(refusal.status), headers=headers)


def _created_event(body: bytes, content_type: str, namespace: str) -> ClusterEvent:
    """The event of a ``POST``. Raises ``Refusal``."""
    document = _document(body, content_type)
    metadata, regarding = _part(document, "metadata"), _part(document, "regarding")
    name = _text(metadata, "name")
    if not name:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", "metadata.name: Required value")
    event = ClusterEvent(
        namespace=namespace or _text(metadata, "namespace") or "default",
        name=name,
        regarding=ObjectKey(_text(regarding, "kind"), _text(regarding, "namespace"), _text(regarding, "name")),
        reason=_text(document, "reason"),
        reporter=_text(document, "reportingController"),
        reporting_instance=_text(document, "reportingInstance"),
        action=_text(document, "action"),
        time=_text(document, "eventTime"),
    )
    return _with_series(event, document)


def _with_series(event: ClusterEvent, document: dict[str, Any]) -> ClusterEvent:
    series = _part(document, "series")
    count = series.get("count", event.count)
    return replace(
        event,
        note=_text(document, "note") or event.note,
        type=_text(document, "type") or event.type,
        count=count if isinstance(count, int) else event.count,
    )


def _document(body: bytes, content_type: str) -> dict[str, Any]:
    if "json" not in content_type:
        message = f"the body of the request is {content_type or 'of no content type'}, and must be JSON"
        raise Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise Refusal.bad_request("the body of the request is not a JSON object") from None


def _part(document: dict[str, Any], key: str) -> dict[str, Any]:
    part = document.get(key)
    return part if isinstance(part, dict) else {}


def _text(document: dict[str, Any], key: str) -> str:
    text = document.get(key)
    return text[:_TEXT_LIMIT] if isinstance(text, str) else ""
