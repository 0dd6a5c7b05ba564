"""Debian's Chromium, headless, driven over the pipe of its DevTools protocol: nothing else is needed."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # root in a container has no other choice
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
)


def chromium() -> str | None:
    """The program, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One tab. What it says about itself (console, network) is kept in `events`."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        ours, theirs = _pipes()
        self._write, self._read = ours

        def take_pipes() -> None:  # the browser reads from 3 and writes to 4
            os.dup2(theirs[0], 3)
            os.dup2(theirs[1], 4)

        self._process = subprocess.Popen(
            [program, *OPTIONS, f"--user-data-dir={self._profile.name}", "about:blank"],
            preexec_fn=take_pipes,
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in theirs:
            os.close(end)
        self._unread, self._last, self._session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "DOM", "Accessibility"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        """End the browser and remove its profile."""
        self._process.terminate()
        self._process.wait(PATIENCE)
        for end in (self._write, self._read):
            os.close(end)
        self._profile.cleanup()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask, and wait for the answer."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def open(self, address: str) -> None:
        """Go to an address and wait until all of it is there."""
        self.events.clear()
        self.send("Page.navigate", url=address)
        deadline = time.monotonic() + PATIENCE
        while not self.seen("Page.loadEventFired"):
            assert time.monotonic() < deadline, f"{address} did not load"
            self._next()

    def seen(self, method: str) -> list[dict[str, Any]]:
        """What was reported since the page was opened."""
        return [event["params"] for event in self.events if event["method"] == method]

    def value(self, expression: str) -> Any:
        """A JavaScript expression evaluated in the page, from outside it."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def look(self, *, width: int, dark: bool, media: str = "") -> None:
        """Pretend to be a screen of this width and scheme."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=2 if width < 600 else 1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def screenshot(self, path: Path) -> None:
        """The whole page as a PNG."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        found = self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(found["data"]))

    def _next(self) -> dict[str, Any]:
        """The next message; events are kept."""
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._read], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self._read, 1 << 20) if ready else b""
            assert data, "the browser does not answer"
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


def _pipes() -> tuple[tuple[int, int], tuple[int, int]]:
    """Our ends (write, read) and the browser's (read, write), the latter out of the way of 3 and 4."""
    their_read, our_write = os.pipe()
    our_read, their_write = os.pipe()
    theirs = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (their_read, their_write))
    for end in (their_read, their_write):
        os.close(end)
    return (our_write, our_read), (theirs[0], theirs[1])
