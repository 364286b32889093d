"""A web site of a few pages, on loopback."""

import http.server
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Site", "served"]


@dataclass
class Site:
    """What it serves at this moment.

    Attributes:
        address: where, as ``http://HOST:PORT``.
        pages: contents by path.
        torn: the paths of pages that break off before their end.
        asked: the paths that were asked for, in order.
    """

    address: str
    pages: dict[str, bytes]
    torn: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)


@contextmanager
def served(pages: Mapping[str, bytes]) -> Iterator[Site]:
    """Serve pages for the length of the block; what is not among them is not found."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            page = site.pages.get(self.path)
            self.send_response(200 if page is not None else 404)
            self.send_header("Content-Length", str(len(page or b"")))
            self.end_headers()
            self.wfile.write((page or b"")[: -5 if self.path in site.torn else None])

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site = Site(f"http://127.0.0.1:{server.server_address[1]}", dict(pages))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
