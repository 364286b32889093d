"""Reads the Event documents that clients create and change."""

import json
from http import HTTPStatus
from typing import Any, Final

from msgspec.structs import replace

from proxylab.cluster.objects import ClusterEvent, Key
from proxylab.control.kubeapi.refusal import Refusal

__all__ = ["changed_event", "created_event"]

_TEXT_LIMIT: Final = 1024  # apiserver's noteLengthLimit (pkg/apis/core/validation/events.go)


def created_event(body: bytes, content_type: str, namespace: str) -> ClusterEvent:
    """The event of a ``POST``. Raises ``Refusal``."""
    document = _document(body, content_type)
    metadata, regarding = _part(document, "metadata"), _part(document, "regarding")
    name = _text(metadata, "name")
    if not name:
        raise Refusal(HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid", "metadata.name: Required value")
    event = ClusterEvent(
        namespace=namespace or _text(metadata, "namespace") or "default",
        name=name,
        regarding=Key(_text(regarding, "kind"), _text(regarding, "namespace"), _text(regarding, "name")),
        reason=_text(document, "reason"),
        reporter=_text(document, "reportingController"),
        reporting_instance=_text(document, "reportingInstance"),
        action=_text(document, "action"),
        time=_text(document, "eventTime"),
    )
    return _changed(event, document)


def changed_event(event: ClusterEvent, body: bytes, content_type: str) -> ClusterEvent:
    """The event after a ``PATCH``, which counts up its series. Raises ``Refusal``."""
    return _changed(event, _document(body, content_type))


def _changed(event: ClusterEvent, document: dict[str, Any]) -> ClusterEvent:
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
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal.bad_request("the body of the request is not valid JSON") from None
    if not isinstance(document, dict):
        raise Refusal.bad_request("the body of the request is not a JSON object")
    return document


def _part(document: dict[str, Any], key: str) -> dict[str, Any]:
    part = document.get(key)
    return part if isinstance(part, dict) else {}


def _text(document: dict[str, Any], key: str) -> str:
    text = document.get(key)
    return text[:_TEXT_LIMIT] if isinstance(text, str) else ""
