"""The first process in the namespaces of a Docker engine (``docker_engine`` starts it, as pid 1 of all that follows).

It mounts what the engine needs, and runs the engine and the registry that it can pull from. It ends when its standard
input closes. With it ends everything in its pid namespace, and with that every mount and link.

The engine may write in its own folder and nowhere else: the machine's files are there to be read, its /run and /etc are
not there at all (a Docker that is installed keeps its settings and its socket there). Its PATH leads to the unpacked
programs alone, so that it finds no modprobe.
"""

import asyncio
import http.client
import http.server
import json
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

from proxylab.timing import Deadline, wait_until

_SECONDS = 60
_PATH = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs)/(?P<reference>[\w.:-]+)")


class Registry(http.server.BaseHTTPRequestHandler):
    """Serves NAME/manifests/REFERENCE and NAME/blobs/DIGEST of a folder, by the pulling half of the distribution API.

    https://distribution.github.io/distribution/spec/api/
    """

    folder: Path

    def do_GET(self) -> None:
        self._answer(send=True)

    def do_HEAD(self) -> None:
        self._answer(send=False)

    def _answer(self, *, send: bool) -> None:
        parts = _PATH.fullmatch(self.path)
        file = self.folder / parts["name"] / parts["kind"] / parts["reference"] if parts else None
        found = file is not None and file.is_file()
        content = file.read_bytes() if file is not None and found else b"{}"
        self.send_response(200 if found or self.path == "/v2/" else 404)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Content-Length", str(len(content)))
        manifest = bool(parts) and parts["kind"] == "manifests" and found
        self.send_header("Content-Type", json.loads(content)["mediaType"] if manifest else "application/octet-stream")
        self.end_headers()
        if send:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


def shut_in(folder: Path) -> None:
    """Leave ``folder`` as the only place that can be written."""
    mount("-t", "proc", "proc", "/proc")
    mount("-t", "tmpfs", "tmpfs", "/run")
    mount("-t", "tmpfs", "tmpfs", "/etc")
    # An engine does not start without a cgroup file system. Of version 2 there is always one to be had, whatever the
    # machine itself has; it is to look at only, and no container runs.
    mount("-t", "cgroup2", "cgroup2", "/sys/fs/cgroup")
    mount("-o", "remount,bind,ro", "/sys/fs/cgroup")
    mount("--bind", str(folder), str(folder))
    mount("-o", "remount,bind,ro", "/")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def start_engine(programs: Path, folder: Path) -> subprocess.Popen[bytes]:
    libraries = {str(file.parent) for file in programs.rglob("lib*.so*")}
    path = f"{programs}/usr/sbin:{programs}/usr/bin"
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [
                "dockerd",
                f"--host=unix://{folder}/socket",
                f"--data-root={folder}/data",
                f"--exec-root={folder}/exec",
                f"--pidfile={folder}/pid",
                "--bridge=none",
                "--iptables=false",
                "--ip6tables=false",
                "--ip-forward=false",
                "--storage-driver=vfs",
                "--insecure-registry=127.0.0.0/8",
            ],
            env={
                "PATH": path,
                "LD_LIBRARY_PATH": ":".join(sorted(libraries)),
                "TMPDIR": str(folder),
                # A profile of AppArmor is the whole kernel's. A process of a container here loads none.
                "container": "proxylab",
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def answers(path: Path) -> bool:
    """Whether an engine does, at its socket."""
    with socket.socket(socket.AF_UNIX) as plain:
        plain.settimeout(5)
        try:
            plain.connect(str(path))
            plain.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
            answer = http.client.HTTPResponse(plain)
            answer.begin()
        except (OSError, http.client.HTTPException):
            return False
        return answer.status == 200


def main() -> None:
    programs, folder = map(Path, sys.argv[1:])
    shut_in(folder)
    Registry.folder = folder / "registry"
    registry = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=registry.serve_forever, daemon=True).start()
    engine = start_engine(programs, folder)
    ready = wait_until(
        lambda: engine.poll() is not None or answers(folder / "socket"), Deadline.after(_SECONDS), "a Docker engine"
    )
    asyncio.run(ready)
    if engine.poll() is not None:
        sys.exit(f"dockerd ended with {engine.returncode}")
    sys.stdout.write(json.dumps({"registry": f"127.0.0.1:{registry.server_address[1]}"}) + "\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
