"""Downloads a file with the checksum that its site has beside it.

Python's HTTP client, with TLS and e-mail behind it, is imported where a download begins: most verbs import this module,
and few download.
"""

import hashlib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxylab.errors import CapabilityError

if TYPE_CHECKING:
    from http.client import HTTPResponse

_ANSWER_SECONDS: Final = 20.0
_CHUNK_BYTES: Final = 1 << 20
_MOST_BYTES: Final = 512 << 20


def text_at(url: str) -> str:
    """A short text. Raises ``CapabilityError`` where the site does not answer with it."""
    with closing(_open(url)) as answer:
        return str(answer.read(4096).decode(errors="replace").strip())


def leads_to(url: str) -> str:
    """The address to which a site redirects. Raises ``CapabilityError`` where it does not answer."""
    with closing(_open(url)) as answer:
        return answer.geturl()


def load(url: str, file: Path) -> None:
    """Download into ``file``.

    Raises:
        CapabilityError: the site does not have it, or its SHA-256 is not the one at ``URL.sha256``.
    """
    from http.client import HTTPException  # noqa: PLC0415 - see above

    wanted = text_at(f"{url}.sha256").partition(" ")[0].lower()
    digest, size = hashlib.sha256(), 0
    with closing(_open(url)) as answer, file.open("wb") as out:
        try:
            while chunk := answer.read(_CHUNK_BYTES):
                size += len(chunk)
                if size > _MOST_BYTES:
                    raise CapabilityError(f"a whole {file.name}: {url} does not end", "try again later")
                digest.update(chunk)
                out.write(chunk)
        except (OSError, HTTPException) as error:
            raise CapabilityError(f"a whole {url} ({error!r})", "try again later") from error
    if digest.hexdigest() != wanted:
        raise CapabilityError(
            f"a whole {file.name}: {url} has SHA-256 {digest.hexdigest()}, expected {wanted[:64]}",
            "try again; if the error stays, do not trust that site",
        )


def _open(url: str) -> "HTTPResponse":
    from http.client import HTTPException  # noqa: PLC0415 - see above
    from urllib.error import URLError  # noqa: PLC0415 - see above
    from urllib.request import urlopen  # noqa: PLC0415 - see above

    try:
        answer: HTTPResponse = urlopen(url, timeout=_ANSWER_SECONDS)  # noqa: S310
    except (OSError, HTTPException, ValueError) as error:
        reason = error.reason if isinstance(error, URLError) else error
        reason = getattr(reason, "strerror", None) or reason  # without the number before it
        raise CapabilityError(f"{url} ({reason})", "try where that can be reached") from error
    return answer
