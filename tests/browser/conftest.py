"""A real browser without a window, spoken to over its debugging pipe: no driver, no port, no package."""

import json
import os
import select
import signal
import subprocess
import time

import pytest

from tests.programs import program

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
#: Seconds after which a browser that says nothing has failed: it starts in one or two.
_PATIENCE = 120


class Browser:
    """One page of a headless Chromium: commands of the DevTools protocol over a pipe."""

    def __init__(self, program, profile):
        mine, its_out = os.pipe()
        its_in, self.ours = os.pipe()
        self.mine, self.buffer, self.number, self.events = mine, b"", 0, []
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += ["--disable-background-networking", "--disable-extensions", "--force-device-scale-factor=1", "--hide-scrollbars"]
        # The protocol is spoken on 3 and 4; a shell puts the pipe's ends there.
        line = [f'exec "$@" 3<&{its_in} 4>&{its_out} 2>/dev/null', "browser", program, "--remote-debugging-pipe", *flags]
        silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "start_new_session": True}
        line = ["bash", "-c", *line, f"--user-data-dir={profile}"]
        self.process = subprocess.Popen(line, pass_fds=(its_in, its_out), **silent)
        os.close(its_in)
        os.close(its_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.tell(f"{domain}.enable")

    def call(self, method, session=None, **params):
        """A command and its answer; events on the way are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self.ours, json.dumps(message).encode() + b"\0")
        return self._until(lambda said: said.get("id") == self.number)["result"]

    def tell(self, method, **params):
        """A command to the page."""
        return self.call(method, self.session, **params)

    def open(self, path, width=1280, height=800, dark=False):
        """Show a file or an address; what it said and asked for is in `events` from then on."""
        self.events = []
        url = path if isinstance(path, str) else path.as_uri()
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.tell("Emulation.setEmulatedMedia", features=[scheme])
        self.tell("Page.navigate", url=url)
        self.until(f"location.href + ' ' + document.readyState === {json.dumps(url + ' complete')}")
        self.do("document.fonts.ready.then(() => 1)")

    def do(self, script):
        """The value of an expression in the page."""
        found = self.tell("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, condition):
        """Wait until an expression in the page is true."""
        end = time.monotonic() + _PATIENCE
        while not self.do(condition):
            assert time.monotonic() < end, (condition, self.do("location.href + document.body?.innerText"))
            time.sleep(0.05)

    def press(self, key, times=1):
        """Press a key; more than once: it is held down and repeats."""
        code = {"Tab": 9, "Enter": 13, "Escape": 27}.get(key) or ord(key.upper())
        typed = {"Enter": "\r", "Tab": "", "Escape": ""}.get(key, key)
        event = {"key": key, "windowsVirtualKeyCode": code}
        for number in range(times):
            text = {"text": typed} if typed else {}
            self.tell("Input.dispatchKeyEvent", type="keyDown", autoRepeat=number > 0, **event, **text)
        self.tell("Input.dispatchKeyEvent", type="keyUp", **event)

    def complaints(self):
        """Errors and warnings of the console, exceptions, and every address asked for besides the page itself."""
        said = []
        for event in self.events:
            method, params = event["method"], event["params"]
            if method in {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}:
                said.append(json.dumps(params))
            elif method == "Network.requestWillBeSent" and params["type"] != "Document":
                said.append(params["request"]["url"])
        return said

    def close(self):
        """End the browser and all that it started."""
        os.close(self.ours)
        os.close(self.mine)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _until(self, wanted):
        until = time.monotonic() + _PATIENCE
        while True:
            while b"\0" in self.buffer:
                line, _, self.buffer = self.buffer.partition(b"\0")
                said = json.loads(line)
                assert "error" not in said, said
                if "method" in said:
                    self.events.append(said)
                if wanted(said):
                    return said
            assert select.select([self.mine], [], [], max(0, until - time.monotonic()))[0], "the browser does not answer"
            found = os.read(self.mine, 1 << 16)
            assert found, "the browser ended"
            self.buffer += found


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """One browser for all pages."""
    program("bash")
    started = Browser(program(*BROWSERS), tmp_path_factory.mktemp("profile"))
    yield started
    started.close()
