"""A browser without a screen, driven over HTTP. Source: W3C WebDriver.

with Browser(folder) as browser:
    browser.open(url)
    browser.until("document.querySelector('h1')?.textContent === 'Topics'")
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from compat_tests.waiting import DEADLINE, until

FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
    *("--window-size=1280,860", "--force-color-profile=srgb", "--lang=en"),
]
ENTER, ESCAPE = "\ue007", "\ue00c"
_STARTS = 3
_KEY = "element-6066-11e4-a52e-4f735466cecf"


class BrowserError(Exception):
    """A request that the browser refuses, or a script that fails in it."""


class Browser:
    """One window. The end of the block closes it and its process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Self:
        port = next(filter(None, (self._start() for _ in range(_STARTS))), None)
        if port is None:
            raise BrowserError(f"chromedriver does not start: {self._said}")
        try:
            self._root = f"http://127.0.0.1:{port}"
            flags = [*FLAGS, f"--user-data-dir={self._folder}"]
            asked = {"goog:chromeOptions": {"args": flags}, "goog:loggingPrefs": {"browser": "ALL"}}
            told = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": asked}})
        except BaseException:
            self._end()
            raise
        self._root += f"/session/{told['sessionId']}"
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._ask("DELETE", "")
        finally:
            self._end()

    def _start(self) -> int | None:
        """Start chromedriver; gives its port. It may end at once: another process took the port that it had chosen."""
        self._process = subprocess.Popen(
            ["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self._said = ""
        for line in self._process.stdout:
            if found := re.search(r"successfully on port (\d+)", line):
                return int(found[1])
            self._said += line
        self._end()
        return None

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait(60)

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self._root + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            told = json.load(error)["value"]
            raise BrowserError(f"{told['error']}: {told['message'][:1000]}") from None

    def open(self, url: str) -> None:
        """Go to an address. What was shown before is gone at once, and is not taken for what is to come."""
        for each in ("about:blank", url):
            self._ask("POST", "/url", {"url": each})

    def run(self, script: str, *args: object) -> Any:
        """The value of a JavaScript expression in the page; `arguments` has the given values."""
        return self._ask("POST", "/execute/sync", {"script": f"return ({script});", "args": list(args)})

    def until(self, condition: str, *args: object) -> None:
        """Return when an expression is true in the page. Raises AssertionError, with the page's text."""
        try:
            until(lambda: self.run(condition, *args), condition)
        except AssertionError as error:
            raise AssertionError(f"{error}\nThe page:\n{self.text()[:3000]}\n{self.complaints()}") from None

    def until_text(self, text: str, where: str = "body") -> None:
        """Return when the page shows a text."""
        self.until("document.querySelector(arguments[1])?.innerText.includes(arguments[0])", text, where)

    def text(self) -> str:
        """The text of the page."""
        return str(self.run("document.body.innerText"))

    def _find(self, selector: str) -> str:
        found = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        return str(found[_KEY])

    def click(self, selector: str) -> None:
        """Click the first element of a selector, once it exists."""
        self.until("document.querySelector(arguments[0])", selector)
        self._ask("POST", f"/element/{self._find(selector)}/click")

    def click_text(self, text: str, selector: str = "button, a") -> None:
        """Click the element with this text, once it exists."""
        found = "[...document.querySelectorAll(arguments[1])].find(e => e.textContent.trim() === arguments[0])"
        self.until(found, text, selector)
        self.run(f"{found}.click()", text, selector)

    def fill(self, selector: str, text: str) -> None:
        """Type into a field, in place of its old text."""
        self.until("document.querySelector(arguments[0])", selector)
        element = self._find(selector)
        self._ask("POST", f"/element/{element}/clear")
        self._ask("POST", f"/element/{element}/value", {"text": text})

    def choose(self, selector: str, value: str) -> None:
        """Choose an option."""
        self.until("document.querySelector(arguments[0])", selector)
        set_value = "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
        tell = "for (const name of ['input', 'change']) e.dispatchEvent(new Event(name, {bubbles: true}));"
        self._ask("POST", "/execute/sync", {"script": set_value + tell, "args": [selector, value]})

    def keys(self, text: str) -> None:
        """Press keys in the focused element."""
        actions = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self._ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def complaints(self) -> list[str]:
        """The errors in the browser's log since the last call: failed scripts, and violations of the content policy."""
        logged = self._ask("POST", "/se/log", {"type": "browser"})
        return [each["message"] for each in logged if each["level"] in ("SEVERE", "WARNING")]

    def resize(self, width: int, height: int) -> None:
        """Set the window's size."""
        self._ask("POST", "/window/rect", {"width": width, "height": height})

    def screenshot(self, file: Path, selector: str | None = None) -> None:
        """A picture of the visible page, or of the first element of a selector."""
        where = "" if selector is None else f"/element/{self._find(selector)}"
        file.write_bytes(base64.b64decode(self._ask("GET", f"{where}/screenshot")))
