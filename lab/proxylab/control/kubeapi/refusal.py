"""The API's refusal of a request: a Status as an exception, with the reasons of apimachinery's ``StatusReason``."""

from http import HTTPStatus
from typing import Any


class Refusal(Exception):  # noqa: N818 - a response, not an error of the lab
    """A Status in response to a request.

    Args:
        code: the HTTP status.
        reason: a ``metav1.StatusReason``, which clients read.
        message: for a human.
        causes: more reasons, which clients read in some cases (``metav1.CauseType``).
        retry_after: seconds after which a client may ask again; 0 for no advice.
    """

    def __init__(
        self, code: HTTPStatus, reason: str, message: str, *, causes: tuple[str, ...] = (), retry_after: int = 0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after = retry_after

    @classmethod
    def bad_request(cls, message: str) -> "Refusal":
        """The request is malformed."""
        return cls(HTTPStatus.BAD_REQUEST, "BadRequest", message)

    @classmethod
    def not_found(cls, message: str) -> "Refusal":
        """There is no such path or object."""
        return cls(HTTPStatus.NOT_FOUND, "NotFound", message)

    @classmethod
    def expired(cls, revision: int) -> "Refusal":
        """The revision is too old for the history: the client must list again (410)."""
        return cls(HTTPStatus.GONE, "Expired", f"too old resource version: {revision}")

    @classmethod
    def too_new(cls, wanted: int, current: int) -> "Refusal":
        """The revision is newer than the store; client-go retries after a second (``IsTooLargeResourceVersion``)."""
        return cls(
            HTTPStatus.GATEWAY_TIMEOUT,
            "Timeout",
            f"Too large resource version: {wanted}, current: {current}",
            causes=("ResourceVersionTooLarge",),
            retry_after=1,
        )

    @property
    def status(self) -> dict[str, Any]:
        """The Status document."""
        details: dict[str, Any] = {}
        if self.causes:
            details["causes"] = [{"reason": cause, "message": self.message} for cause in self.causes]
        if self.retry_after:
            details["retryAfterSeconds"] = self.retry_after
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": int(self.code),
            **({"details": details} if details else {}),
        }
