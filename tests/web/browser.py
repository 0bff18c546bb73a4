"""Drives a headless Chromium through its DevTools protocol over a pipe; the standard library suffices."""
import base64, fcntl, json, os, select, shutil, subprocess, tempfile, time

KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, ""), "ArrowUp": (38, "")}


def find():
    """The browser's path, or None."""
    return shutil.which(os.environ.get("CHROMIUM", "chromium"))


class Failure(AssertionError):
    pass


class Browser:
    def __init__(self, width=1200, height=800):
        self.profile = tempfile.mkdtemp(prefix="millet-web-")
        read_commands, self.commands = (_high(fd) for fd in os.pipe())
        self.answers, write_answers = (_high(fd) for fd in os.pipe())

        def at_3_and_4():  # where Chromium looks for its pipe
            os.dup2(read_commands, 3)
            os.dup2(write_answers, 4)

        arguments = ["--headless", "--remote-debugging-pipe", "--user-data-dir=" + self.profile, "--no-first-run", "--disable-gpu",
                     "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
                     "--disable-extensions", "--hide-scrollbars", "--lang=en-US", f"--window-size={width},{height}", "about:blank"]
        if os.getuid() == 0:
            arguments.insert(0, "--no-sandbox")
        environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "ASAN_OPTIONS")}
        self.process = subprocess.Popen([find()] + arguments, pass_fds=(3, 4), preexec_fn=at_3_and_4, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        os.close(read_commands)
        os.close(write_answers)
        self.rest, self.number, self.events = b"", 0, []

    def close(self):
        os.close(self.commands)  # the browser ends with its pipe
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.answers)
        shutil.rmtree(self.profile, ignore_errors=True)

    def send(self, method, session=None, seconds=60, **parameters):
        """Calls a method; the result, or Failure with the protocol's words."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + seconds
        while True:
            answer = self._receive(deadline, method)
            if answer.get("id") != self.number:
                self.events.append(answer)
                continue
            if "error" in answer:
                raise Failure(f"{method}: {answer['error']['message']}")
            return answer["result"]

    def _receive(self, deadline, method):
        while b"\0" not in self.rest:
            left = deadline - time.monotonic()
            if left < 0 or not select.select([self.answers], [], [], left)[0]:
                raise Failure(f"{method}: no answer from the browser")
            piece = os.read(self.answers, 1 << 16)
            if not piece:
                raise Failure(f"{method}: the browser ended")
            self.rest += piece
        answer, self.rest = self.rest.split(b"\0", 1)
        return json.loads(answer)

    def page(self, address, width=1200, height=800, phone=False, dark=False):
        return Page(self, address, width, height, phone, dark)


class Page:
    """A tab with storage of its own."""

    def __init__(self, browser, address, width, height, phone, dark):
        self.browser = browser
        self.context = browser.send("Target.createBrowserContext")["browserContextId"]
        target = browser.send("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(domain + ".enable")
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if phone else 1, mobile=phone)
        if phone:
            self.send("Emulation.setTouchEmulationEnabled", enabled=True)
        self.dark(dark)
        self.open(address)

    def send(self, method, **parameters):
        return self.browser.send(method, session=self.session, **parameters)

    def open(self, address):
        self.send("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def reload(self):
        self.run("window.leaving = true")
        self.send("Page.reload")
        self.until("!window.leaving && document.readyState === 'complete'")

    def dark(self, on):
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])

    def run(self, script):
        """The value of a JavaScript expression; a promise is waited for."""
        result = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise Failure(f"{script[:200]}: {details.get('exception', {}).get('description', details['text'])}")
        return result["result"].get("value")

    def until(self, condition, seconds=30):
        """Waits until an expression is true; its value."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                value = self.run(condition)
            except Failure:  # between two documents
                value = None
            if value:
                return value
            if time.monotonic() > deadline:
                raise Failure(f"not within {seconds} s: {condition}\n{self.run('document.body.innerText')}")
            time.sleep(0.02)

    def key(self, name, shift=False):
        code, text = KEYS[name]
        event = {"key": name, "code": name, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **event, **({"text": text} if text else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    def type(self, text):
        self.send("Input.insertText", text=text)

    def click(self, selector):
        """Clicks as a mouse does: what lies over the element gets it instead."""
        x, y = self.run(f"""(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: "nearest"}});
            const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()""")
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def screenshot(self, path):
        data = self.send("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def complaints(self):
        """Errors and refused resources so far, of this tab."""
        self.run("0")
        mine = [e for e in self.browser.events if e.get("sessionId") == self.session]
        found = [e["params"]["exceptionDetails"].get("exception", {}).get("description", "") for e in mine if e["method"] == "Runtime.exceptionThrown"]
        return found + [e["params"]["entry"]["text"] for e in mine if e["method"] == "Log.entryAdded" and e["params"]["entry"]["level"] == "error"]

    def close(self):
        self.browser.send("Target.disposeBrowserContext", browserContextId=self.context)


def _high(fd):
    """The same end of a pipe at a number that is not 3 or 4."""
    copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return copy
