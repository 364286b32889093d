"""A Docker engine as far as ``ImageSource`` uses one: images that it has or pulls, and containers that never start."""

import base64
import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, unquote, urljoin, urlsplit

from container_images import ContainerImage

__all__ = ["FakeDocker", "fake_docker"]


def _without_tag(reference: str) -> str:
    """A digest names an image, whatever tag stands before it."""
    return re.sub(r":[^:/@]+(?=@)", "", reference)


@dataclass
class FakeDocker:
    """The images by their references; ``containers`` holds what was created and not removed, with its volumes."""

    here: dict[str, ContainerImage]
    registry: Mapping[str, ContainerImage]
    host: str = ""
    containers: dict[str, ContainerImage] = field(default_factory=dict)

    def answer(self, method: str, words: list[str], query: Mapping[str, str], body: bytes) -> tuple[int, bytes, str]:
        """The status, the body, and what the engine says of the file in an archive."""
        match method, words:
            case "GET", ["version"]:
                return 200, json.dumps({"ApiVersion": "1.44"}).encode(), ""
            case "GET", ["images", *name, "json"] if (reference := _without_tag("/".join(name))) in self.here:
                return 200, json.dumps({"Id": reference, "Config": self.here[reference].settings}).encode(), ""
            case "POST", ["images", "create"]:
                return self._pulled(query["fromImage"], query.get("tag", ""))
            case "POST", ["containers", "create"]:
                self.containers["made"] = self.here[json.loads(body)["Image"]]
                return 201, json.dumps({"Id": "made"}).encode(), ""
            case "GET", ["containers", "made", "json"]:
                return 200, json.dumps({"Id": "made"}).encode(), ""
            case "GET", ["containers", "made", "archive"]:
                return self._archive(query["path"])
            case "DELETE", ["containers", "made"] if query.get("v") == "True":
                del self.containers["made"]
                return 204, b"", ""
        return 404, json.dumps({"message": f"No such image: {'/'.join(words)}"}).encode(), ""

    def _pulled(self, name: str, tag: str) -> tuple[int, bytes, str]:
        reference = name + (("@" if tag.startswith("sha256:") else ":") + tag if tag else "")
        if reference not in self.registry:
            return 404, json.dumps({"message": f"{reference} is not in the registry"}).encode(), ""
        self.here[reference] = self.registry[reference]
        return 200, json.dumps({"status": "done"}).encode(), ""

    def _archive(self, path: str) -> tuple[int, bytes, str]:
        """One file, or a link with the end of the links that it begins, as the engine says it."""
        image, end = self.containers["made"], path
        while end in image.links:
            end = urljoin(end, image.links[end])
        if end not in image.files:
            return 404, json.dumps({"message": f"no file {path}"}).encode(), ""
        member, buffer = tarfile.TarInfo(path.rpartition("/")[2]), io.BytesIO()
        if end != path:
            member.type, member.linkname = tarfile.SYMTYPE, image.links[path]
        else:
            member.size = len(image.files[path])
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.addfile(member, io.BytesIO(image.files[end]) if end == path else None)
        said = json.dumps({"name": member.name, "linkTarget": end if end != path else ""})
        return 200, buffer.getvalue(), base64.b64encode(said.encode()).decode()


@contextmanager
def fake_docker(here: Mapping[str, ContainerImage], registry: Mapping[str, ContainerImage]) -> Iterator[FakeDocker]:
    engine = FakeDocker(dict(here), registry)

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            url = urlsplit(self.path)
            words = [word for word in unquote(url.path).split("/") if word and not word.startswith("v1.")]
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, data, stat = engine.answer(self.command, words, query, body)
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if stat:
                self.send_header("X-Docker-Container-Path-Stat", stat)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = _answer  # noqa: N815

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever)
        thread.start()
        engine.host = f"tcp://127.0.0.1:{server.server_port}"
        try:
            yield engine
        finally:
            server.shutdown()
            thread.join()
