"""Debian's chromium without a window, driven over its DevTools protocol through two pipes."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic",
    "--remote-debugging-pipe",
)  # fmt: skip
# Chromium reads commands from descriptor 3 and answers on 4.
LAUNCH = """
import fcntl, os, sys
read, write = (fcntl.fcntl(int(number), fcntl.F_DUPFD_CLOEXEC, 10) for number in sys.argv[1:3])
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Chromium:
    """A browser with an empty profile in a folder; a context manager."""

    def __init__(self, profile):
        reads, self._commands = os.pipe()
        answers, writes = os.pipe()
        flags = (*FLAGS, f"--user-data-dir={profile}", "about:blank")
        command = [sys.executable, "-c", LAUNCH, str(reads), str(writes), PROGRAM, *flags]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, pass_fds=(reads, writes), **quiet)
        os.close(reads)
        os.close(writes)
        self._answers = open(answers, "rb")
        self._text, self._number = b"", 0
        self.events: list[dict] = []
        self.target: str | None = None  # the open tab

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, *exception) -> None:
        # It may be gone already.
        with contextlib.suppress(OSError, EOFError):
            self.send("Browser.close")
        os.close(self._commands)
        self._answers.close()
        self._process.wait()

    def send(self, method: str, session: str | None = None, **parameters) -> dict:
        """Send a command and return its result; what else arrives meanwhile goes to ``events``."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        self._write(json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._commands, data) :]

    def _receive(self) -> dict:
        while b"\0" not in self._text:
            arrived = self._answers.read1()
            if not arrived:
                raise EOFError(f"chromium ended with exit code {self._process.wait()}")
            self._text += arrived
        message, _, self._text = self._text.partition(b"\0")
        return json.loads(message)


class Tab:
    """A page in a new tab, loaded; the tab before it is closed. What it reported is in ``events()``."""

    def __init__(self, browser: Chromium, url: str, width: int = 1200, dark: bool = False):
        self.browser = browser
        if browser.target:
            browser.send("Target.closeTarget", targetId=browser.target)
        browser.target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.send("Target.attachToTarget", targetId=browser.target, flatten=True)
        self.session = attached["sessionId"]
        self.send("Emulation.setFocusEmulationEnabled", enabled=True)
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.send("Emulation.setDeviceMetricsOverride", **size)
        self.emulate(dark=dark)
        self.send("Page.navigate", url=url)  # answered when the new document is there
        self.until("document.readyState === 'complete'")

    def send(self, method: str, **parameters) -> dict:
        """A command to this page."""
        return self.browser.send(method, self.session, **parameters)

    def emulate(self, dark: bool = False, medium: str = "") -> None:
        """Prefer dark or light colours; ``medium`` may be "print"."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=medium, features=[feature])

    def run(self, expression: str):
        """The value of a JavaScript expression, as JSON data; RuntimeError if it throws."""
        result = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        while not self.run(expression):
            time.sleep(0.02)

    def key(self, name: str, code: int) -> None:
        """Press a key, e.g. ("Tab", 9)."""
        text = {"text": "\r"} if name == "Enter" else {}
        key = {"key": name, "code": name, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **key, **text)
        self.send("Input.dispatchKeyEvent", type="keyUp", **key)

    def write(self, text: str) -> None:
        """Text into what has the focus, as if typed."""
        self.send("Input.insertText", text=text)

    def events(self, *methods: str) -> list[dict]:
        """What the page has reported by now, of these kinds."""
        self.run("new Promise(done => setTimeout(done, 50))")
        actual = [e for e in self.browser.events if e.get("sessionId") == self.session]
        return [e["params"] for e in actual if e["method"] in methods]
