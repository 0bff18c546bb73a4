"""The page that `millet serve` shows, in headless Chromium, with that server behind it."""
import pathlib, sys, tempfile, time, traceback
import browser

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from serving import SLOW, serving

ASKED = "Once upon a time"


def open_page(chromium, s):
    page = chromium.page(s.url + "/")
    page.until("models.length", 60 * SLOW)
    return page


def set_greedy(page, tokens):
    page.run(f"set('temperature', '0'); set('max', '{tokens}')")


def ask(page, text):
    page.run("$('draft').focus()")
    page.type(text)
    page.key("Enter")


def test_reply(chromium):
    """What the page shows is what the API gives in one piece; the usage too."""
    with serving() as s:
        page = open_page(chromium, s)
        set_greedy(page, 24)
        ask(page, ASKED)
        page.until("!running && now.messages.length === 2", 120 * SLOW)
        status, want = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": ASKED}], "temperature": 0, "max_completion_tokens": 24})
        assert status == 200, want
        got = page.run("now.messages[1]")
        message = want["choices"][0]["message"]
        assert got["content"] == (message["content"] or ""), (got, message)
        assert got["reasoning"] == (message.get("reasoning_content") or ""), (got, message)
        assert got["finish"] == want["choices"][0]["finish_reason"] and got["usage"]["reply"] == want["usage"]["completion_tokens"]
        assert got["usage"]["prompt"] == want["usage"]["prompt_tokens"]
        # the second turn sends the first along
        ask(page, "And then?")
        page.until("!running && now.messages.length === 4", 120 * SLOW)
        assert page.run("now.messages[3].state") == "done", page.run("now.messages[3]")
        assert page.run("now.messages[3].usage.prompt") > want["usage"]["prompt_tokens"]
        # thinking can be switched
        for how in ("on", "off"):
            page.run(f"set('thinking', '{how}'); begin()")
            ask(page, ASKED)
            page.until("!running && now.messages.length === 2", 120 * SLOW)
            assert page.run("now.messages[1].state") == "done", page.run("now.messages[1]")
        assert not page.complaints(), page.complaints()
        page.close()


def test_stop(chromium):
    """Stopping frees the session."""
    with serving("--sessions", 1) as s:
        page = open_page(chromium, s)
        set_greedy(page, 1500)
        page.run("set('max', '')")
        ask(page, ASKED)
        page.until("running?.pieces > 3 || !running", 120 * SLOW)
        page.key("Escape")
        page.until("!running")
        page.run("begin(); set('max', '4')")
        ask(page, ASKED)
        page.until("!running && now.messages.length === 2", 60 * SLOW)
        assert page.run("now.messages[1].state") == "done", page.run("now.messages[1]")
        page.close()


def test_errors(chromium):
    with serving() as s:
        page = open_page(chromium, s)
        ask(page, "word " * 5000)
        page.until("!running && now.messages.length === 2", 60 * SLOW)
        assert page.run("now.messages[1].state") == "failed" and "tokens" in page.run("now.messages[1].error"), page.run("now.messages[1]")
        page.close()


def test_key(chromium):
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write("sk-one-long-enough-key\n")
        keys.flush()
        with serving("--api-key-file", keys.name) as s:
            page = chromium.page(s.url + "/")
            page.until("$('ask').open", 60 * SLOW)
            page.type("sk-one-long-enough-key")
            page.key("Enter")
            page.until("models.length", 60 * SLOW)
            set_greedy(page, 4)
            ask(page, ASKED)
            page.until("!running && now.messages.length === 2", 60 * SLOW)
            assert page.run("now.messages[1].state") == "done", page.run("now.messages[1]")
            assert "sk-one" not in s.errors()
            page.close()


def main():
    if not browser.find():
        print("skipped: no Chromium (tools/setup test installs it)")
        return 77
    chromium, failed = browser.Browser(), 0
    try:
        for name, test in [t for t in globals().items() if t[0].startswith("test_") and (len(sys.argv) < 2 or t[0] in sys.argv[1:])]:
            start = time.monotonic()
            try:
                test(chromium)
                print(f"{name}: ok, {time.monotonic() - start:.1f} s", flush=True)
            except AssertionError:
                failed += 1
                traceback.print_exc(file=sys.stdout)
                print(f"{name}: FAILED", flush=True)
    finally:
        chromium.close()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
