"""yaml-language-server as an editor speaks to it: JSON-RPC over its standard input and output.

The language server protocol (3.17) frames each message with an HTTP-like header.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self


class LanguageServer:
    """A server that has been initialized; documents are opened under the paths that they are said to have."""

    def __init__(self, process: subprocess.Popen[bytes], settings: Mapping[str, Any]) -> None:
        self._process = process
        self._settings = settings
        self._number = 0
        self._diagnostics: dict[str, list[dict[str, Any]]] = {}

    @classmethod
    @contextmanager
    def started(cls, command: Sequence[str], root: Path, schemas: Mapping[str, str]) -> Iterator[Self]:
        with subprocess.Popen(
            [*command, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=root
        ) as process:
            settings: dict[str, Any] = {"hover": True, "completion": True, "validate": True, "schemas": dict(schemas)}
            server = cls(process, {**settings, "schemaStore": {"enable": False}})
            try:
                markdown = ["markdown", "plaintext"]
                completion = {"completionItem": {"documentationFormat": markdown, "snippetSupport": True}}
                capabilities = {"textDocument": {"completion": completion, "hover": {"contentFormat": markdown}}}
                server.ask("initialize", processId=None, rootUri=root.as_uri(), capabilities=capabilities)
                server._tell("initialized")
                server._tell("workspace/didChangeConfiguration", settings={"yaml": server._settings})
                yield server
            finally:
                process.kill()

    def open(self, path: Path, text: str) -> list[dict[str, Any]]:
        """Open a document, and wait for what the server finds wrong with it."""
        item = {"uri": path.as_uri(), "languageId": "yaml", "version": 1, "text": text}
        self._tell("textDocument/didOpen", textDocument=item)
        while path.as_uri() not in self._diagnostics:
            self._take(self._next())
        return self._diagnostics[path.as_uri()]

    def complete(self, path: Path, line: int, column: int) -> dict[str, dict[str, Any]]:
        """What is offered at a place, both counted from 0, by label."""
        answer = self.ask("textDocument/completion", **self._at(path, line, column))
        return {item["label"]: item for item in answer["items"]}

    def hover(self, path: Path, line: int, column: int) -> str:
        """What is told of a place."""
        answer = self.ask("textDocument/hover", **self._at(path, line, column))
        return str(answer["contents"]["value"])

    def ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        while True:
            message = self._next()
            if message.get("id") == self._number and "method" not in message:
                return message["result"]
            self._take(message)

    def _at(self, path: Path, line: int, column: int) -> dict[str, Any]:
        return {"textDocument": {"uri": path.as_uri()}, "position": {"line": line, "character": column}}

    def _take(self, message: dict[str, Any]) -> None:
        """What the server says of its own accord. When it asks for settings, it gets ours."""
        if message.get("method") == "textDocument/publishDiagnostics":
            self._diagnostics[message["params"]["uri"]] = message["params"]["diagnostics"]
        elif "id" in message and "method" in message:
            items = message.get("params", {}).get("items", [])
            answers = [self._settings if item.get("section") == "yaml" else None for item in items]
            self._send({"id": message["id"], "result": answers or None})

    def _tell(self, method: str, **params: Any) -> None:
        self._send({"method": method, "params": params})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._process.stdin.flush()

    def _next(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        headers = {}
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            headers[name.lower()] = value
        assert headers, "the language server has ended"
        message: dict[str, Any] = json.loads(self._process.stdout.read(int(headers[b"content-length"])))
        return message
