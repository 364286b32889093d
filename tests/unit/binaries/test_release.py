"""Releases, from a site that the test serves itself."""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kube_proxies import PROGRAM

from lab.binaries import release
from lab.binaries.cache import Cache
from lab.binaries.release import ReleaseSource
from lab.errors import CapabilityError

CONTENT = PROGRAM.format(version="v1.34.2").encode()


class Site(http.server.BaseHTTPRequestHandler):
    pages: dict[str, bytes]
    torn: bool

    def do_GET(self) -> None:
        page = self.pages.get(self.path)
        self.send_response(200 if page is not None else 404)
        self.send_header("Content-Length", str(len(page or b"")))
        self.end_headers()
        self.wfile.write((page or b"")[: -5 if self.torn and page is CONTENT else None])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Site]]:
    monkeypatch.setattr(release.platform, "machine", lambda: "x86_64")
    path = "/release/v1.34.2/bin/linux/amd64/kube-proxy"
    pages = {
        "/release/stable.txt": b"v1.36.3\n",
        "/release/stable-1.35.txt": b"v1.35.4",
        "/release/stable-1.34.txt": b"v1.34.2",
        "/release/stable-1.33.txt": b"<html>",
        path: CONTENT,
        f"{path}.sha256": hashlib.sha256(CONTENT).hexdigest().encode(),
    }
    handler: type[Site] = type("Served", (Site,), {"pages": pages, "torn": False})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    handler.address = f"http://127.0.0.1:{server.server_address[1]}"  # type: ignore[attr-defined]
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


def source(site: type[Site]) -> ReleaseSource:
    return ReleaseSource(site.address)  # type: ignore[attr-defined]


def test_the_newest_of_each_minor_is_offered(site: type[Site]) -> None:
    assert source(site).versions() == ["v1.34.2", "v1.35.4", "v1.36.3"]


def test_a_release_is_kept_when_its_checksum_holds(site: type[Site], tmp_path: Path) -> None:
    binary = source(site).obtain("v1.34.2", Cache(tmp_path))
    assert binary.path.read_bytes() == CONTENT
    assert binary.path.parent.name == hashlib.sha256(CONTENT).hexdigest()
    assert binary.origin.endswith("/release/v1.34.2/bin/linux/amd64/kube-proxy")


def test_another_byte_is_another_kube_proxy(site: type[Site], tmp_path: Path) -> None:
    site.pages["/release/v1.34.2/bin/linux/amd64/kube-proxy"] = CONTENT + b"\n"
    with pytest.raises(CapabilityError, match=r"has SHA-256 .*, and should have "):
        source(site).obtain("v1.34.2", Cache(tmp_path))
    assert Cache(tmp_path).binaries() == []


def test_what_breaks_off_is_not_kept(site: type[Site], tmp_path: Path) -> None:
    site.torn = True
    with pytest.raises(CapabilityError):
        source(site).obtain("v1.34.2", Cache(tmp_path))
    assert Cache(tmp_path).binaries() == []


def test_what_is_not_there_is_said(site: type[Site], tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match=r"v1\.33\.9"):
        source(site).obtain("v1.33.9", Cache(tmp_path))
    with pytest.raises(CapabilityError, match="refused"):
        ReleaseSource("http://127.0.0.1:9").versions()
    site.pages["/release/stable.txt"] = b"<html>the page of a gateway"
    with pytest.raises(CapabilityError, match="says '<html>"):
        source(site).versions()


def test_a_machine_that_no_release_is_for(site: type[Site], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(release.platform, "machine", lambda: "vax")
    with pytest.raises(CapabilityError, match="for vax"):
        source(site).obtain("v1.34.2", Cache(tmp_path))
