"""Headless Chromium, controlled over a pair of pipes: pages as a user sees and uses them.

https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import Any

from proxylab.timing import Deadline

__all__ = ["Browser", "browser", "chromium"]

SECONDS = 60.0


def chromium() -> str | None:
    """The browser of this machine, if it has one. Ubuntu's is a snap, which sees neither our files nor our pipes."""
    found = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
    return None if found is None or "/snap/" in os.path.realpath(found) else found


class Browser:
    """One tab."""

    def __init__(self, orders: int, answers: int) -> None:
        self._orders = orders
        self._answers = answers
        self._number = 0
        self._buffer = b""
        self._session = ""
        self.errors: list[str] = []
        self.asked: list[str] = []
        target = self.order("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.order("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.order(f"{domain}.enable")

    def order(self, method: str, **parameters: Any) -> Any:
        """Ask for something and wait for the answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._orders, data) :]
        return self._wait(lambda heard: heard.get("id") == self._number, method)

    def open(self, page: Path) -> None:
        """Go to a file and wait until it is loaded."""
        self.order("Page.navigate", url=page.as_uri())
        self._wait(lambda heard: heard.get("method") == "Page.loadEventFired", "the page to be loaded")

    def tell(self, expression: str) -> Any:
        """What an expression comes to in the page."""
        told = self.order("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def look(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """Make the window so wide, in a light or a dark room."""
        self.order("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.order("Emulation.setEmulatedMedia", features=[scheme])

    def press(self, key: str, code: int = 0, text: str = "") -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.order("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def picture(self, file: Path) -> None:
        """What is seen in the window, as PNG."""
        file.write_bytes(base64.b64decode(self.order("Page.captureScreenshot", format="png")["data"]))

    def _wait(self, wanted: Any, why: str) -> Any:
        deadline = Deadline.after(SECONDS)
        while True:
            while b"\0" not in self._buffer:
                assert select([self._answers], [], [], max(0.0, deadline.remaining))[0], f"waited for {why}"
                more = os.read(self._answers, 1 << 20)
                assert more, f"the browser ended while it was waited for {why}"
                self._buffer += more
            line, _, self._buffer = self._buffer.partition(b"\0")
            heard = json.loads(line)
            self._note(heard)
            if wanted(heard):
                assert "error" not in heard, f"{why}: {heard['error']}"
                return heard.get("result")

    def _note(self, heard: Any) -> None:
        match heard.get("method"):
            case "Log.entryAdded":
                self.errors.append(heard["params"]["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(heard["params"]["exceptionDetails"]))
            case "Network.requestWillBeSent":
                self.asked.append(heard["params"]["request"]["url"])


@contextmanager
def browser(home: Path) -> Iterator[Browser]:
    """Start Chromium with a profile of its own in ``home``, and end it."""
    program = chromium()
    assert program is not None
    ours, theirs = os.pipe(), os.pipe()
    # It reads orders from descriptor 3 and answers on 4; a shell puts them there, since Python cannot.
    command = f'exec "$0" "$@" 3<&{ours[0]} 4>&{theirs[1]}'
    options = [
        "--headless",
        "--no-sandbox",  # it refuses to run as root with it; it opens no page but ours
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--remote-debugging-pipe",
        f"--user-data-dir={home}",
        "about:blank",
    ]
    process = subprocess.Popen(
        ["bash", "-c", command, program, *options],
        pass_fds=(ours[0], theirs[1]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(ours[0])
    os.close(theirs[1])
    try:
        yield Browser(ours[1], theirs[0])
    finally:
        os.close(ours[1])  # which tells it to go
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        os.close(theirs[0])
