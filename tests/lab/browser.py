"""A headless Chromium, as far as a test of one page needs it: its DevTools protocol over a web socket."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --remote-debugging-port=0"
).split()


class Page:
    """The one page of a browser."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A method of the protocol; what happens meanwhile is kept in `events`."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = self._receive()
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv(timeout=30))
        if "method" in message:
            self.events.append(message)
        return message

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript gives."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def load(self, file: Path) -> None:
        """Opens a file, and waits until it is loaded."""
        self.events.clear()
        self.call("Page.navigate", url=file.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def show(self, width: int, theme: str, medium: str = "screen") -> None:
        """As wide as this, in "light" or "dark", on a "screen" or in "print"."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        features = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", media=medium, features=features)

    def complaints(self) -> list[dict[str, Any]]:
        """Errors and warnings that the console has shown since the page was opened."""
        return [
            event
            for event in self.events
            if event["method"] == "Runtime.exceptionThrown"
            or (event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] != "info")
            or event["method"] == "Runtime.consoleAPICalled"
        ]


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Chromium with an empty profile in `folder`, gone at the end."""
    profile = folder / "profile"
    # A session of its own: whatever it starts is ended with it.
    process = subprocess.Popen(
        [shutil.which("chromium") or "chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        with connect(_socket_of(profile, process), max_size=None, proxy=None) as socket:
            page = Page(socket)
            for domain in ("Page", "Runtime", "Log"):
                page.call(f"{domain}.enable")
            yield page
    finally:
        os.killpg(process.pid, 9)
        process.wait(timeout=10)


def _socket_of(profile: Path, process: subprocess.Popen[bytes]) -> str:
    """The address of the page, once the browser has written where it listens."""
    deadline = time.monotonic() + 30
    place = profile / "DevToolsActivePort"
    while time.monotonic() < deadline and process.poll() is None:
        if place.exists() and (text := place.read_text()):
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"http://127.0.0.1:{text.split()[0]}/json/list", timeout=10) as answer:
                pages = [each for each in json.load(answer) if each["type"] == "page"]
            if pages:
                address: str = pages[0]["webSocketDebuggerUrl"]
                return address
        time.sleep(0.05)
    raise AssertionError("Chromium did not start")
