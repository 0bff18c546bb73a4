"""The page at "/" in headless Chromium, against a server whose replies each test prescribes.
PAGE_DATA is the file that the build made of the page (tools/embed-page.cmake); screenshots go to SCREENSHOTS."""
import base64, hashlib, json, os, pathlib, re, sys, tempfile, time, traceback
import browser
from cases import HOSTILE, LINES, MARKDOWN, SAMPLE
from mock import Mock, Reply

SOURCE = pathlib.Path(os.environ.get("MILLET_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
PAGE_DATA = pathlib.Path(os.environ.get("PAGE_DATA", SOURCE / "build" / "page_data.c"))
SCREENSHOTS = pathlib.Path(os.environ.get("SCREENSHOTS", SOURCE / "build" / "screenshots"))
PAGE = (SOURCE / "share" / "web" / "index.html").read_bytes()
POLICY = re.search(r'page_policy\[\] = "(.*)";', PAGE_DATA.read_text())[1]
STATE = "JSON.stringify(document.querySelector('#talk').innerText)"


class Desk:
    """A server and a tab that shows its page."""

    def __init__(self, chromium, **options):
        self.server = Mock(PAGE, POLICY)
        self.key = options.pop("key", None)
        self.server.key = self.key
        self.page = chromium.page(self.server.address, **options)
        if not self.key:
            self.page.until("models.length")

    def __enter__(self):
        return self.server, self.page

    def __exit__(self, kind, *_):
        complaints = self.page.complaints() if kind is None else []
        self.page.close()
        self.server.close()
        # what the server refuses is reported as an error by the browser itself
        complaints = [c for c in complaints if not c.startswith("Failed to load resource")]
        assert not complaints, complaints


def ask(server, page, text, *replies):
    """Sends a message as one who types; returns when the reply has ended."""
    server.replies += replies
    page.run("document.querySelector('#draft').focus()")
    page.type(text)
    page.click("#send")
    page.until("!running")


def said(page, which=-1):
    return page.run(f"[...document.querySelectorAll('article .text')].at({which}).innerText")


def shot(page, name):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(SCREENSHOTS / (name + ".png"))


def test_policy(chromium):
    for tag in ("style", "script"):
        inner = re.search(rf"<{tag}>(.*?)</{tag}>".encode(), PAGE, re.S)[1]
        assert f"{tag}-src 'sha256-{base64.b64encode(hashlib.sha256(inner).digest()).decode()}'" in POLICY, tag
    assert f'"{hashlib.sha256(PAGE).hexdigest()}\\"' in PAGE_DATA.read_text()
    for word in ("default-src 'none'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"):
        assert word in POLICY, word
    outside = re.findall(rb"""(?:src|href)\s*=\s*["'](?!data:|#)[^"']+|url\((?!data:)|@import|innerHTML|insertAdjacentHTML|\beval\b""", PAGE)
    assert not outside, outside
    with Desk(chromium) as (_, page):
        page.run("""(() => { const s = document.createElement("script"); s.setAttribute("nonce", "x");
            document.body.append(Object.assign(document.createElement("img"), {src: "/x.png"})); })()""")
        refused = page.run("""(() => { try { document.body.innerHTML = "<b>x</b>"; return false; } catch { return true; } })()""")
        assert refused, "the policy lets text become elements"
        page.browser.events.clear()


def test_streaming(chromium):
    text = "Grüße, 世界 🌾! A second sentence follows here. And a third one."
    for newline, cut in (("\r\n", 1), ("\n", 7)):
        with Desk(chromium) as (server, page):
            server.replies.append(Reply(text, pause=0.05, cut=cut, newline=newline))
            page.type("Hello")
            page.key("Enter")
            part = page.until("running && document.querySelector('article .text')?.innerText")
            assert text.startswith(part) and len(part) < len(text), part
            assert page.run("!$('stop').hidden && $('send').hidden")
            page.until("!running")
            assert said(page) == text, said(page)
            assert page.run("$('stop').hidden && !$('send').hidden && document.activeElement.id === 'draft'")
            facts = page.run("document.querySelector('article .facts').innerText")
            assert re.search(r"\d+ tokens\s+[\d.]+ tokens/s\s+prompt 7, 3 cached\s+first after [\d.]+ s", facts), facts
            heard = page.run("[...$('spoken').children].map((p) => p.textContent)")
            assert heard[0] == "Waiting for the reply." and heard[-1] == "The reply is complete.", heard
            assert " ".join(heard[1:-1]) == text and all(h[-1] in ".!" for h in heard[1:-1]), heard
            request = server.requests[0]
            assert request == {"model": "tiny-millet", "messages": [{"role": "user", "content": "Hello"}], "stream": True,
                               "stream_options": {"include_usage": True}}, request


def test_event_reader(chromium):
    """Every way to cut a stream in two, and single characters, gives the events of the whole."""
    with Desk(chromium) as (_, page):
        for newline in ("\n", "\r\n", "\r"):
            stream = newline.join([": comment", "data: one", "", "data:two", "data: lines", "", "event: x", "id: 7", "data: {\"a\": \"b: c\"}", "", "data", "data: last", "", ""])
            found = page.run(f"""(() => {{ const text = {json.dumps(stream)}, all = [];
                const read = (pieces) => {{ const got = [], take = eventReader((d) => got.push(d)); pieces.forEach((p) => take(p)); take("", true); return JSON.stringify(got); }};
                for (let i = 0; i <= text.length; i++) for (let j = i; j <= text.length; j++) all.push(read([text.slice(0, i), text.slice(i, j), text.slice(j)]));
                all.push(read([...text])); return [...new Set(all)]; }})()""")
            assert [json.loads(f) for f in found] == [["one", "two\nlines", '{"a": "b: c"}', "\nlast"]], (newline, found)


def test_markdown(chromium):
    with Desk(chromium) as (_, page):
        for source, expected in MARKDOWN:
            found = page.run(f"(() => {{ const n = make('div'); render(n, {json.dumps(source)}); return n.outerHTML; }})()")[5:-6]
            found = re.sub(r' (target="_blank"|rel="noopener noreferrer nofollow")', "", found)
            assert found == expected, f"{source!r}\n  gives    {found}\n  not      {expected}"
        # drawn piece by piece, the result is that of the whole
        same = page.run(f"""(() => {{ const text = {json.dumps(SAMPLE)}, whole = make("div"), grown = make("div"); render(whole, text);
            for (let i = 1; i <= text.length; i++) render(grown, text.slice(0, i)); return whole.innerHTML === grown.innerHTML; }})()""")
        assert same


def test_hostile_text(chromium):
    with Desk(chromium) as (server, page):
        for source in HOSTILE:
            ask(server, page, source, Reply(source, reasoning=source))
        page.run("document.querySelectorAll('details').forEach((d) => (d.open = true))")
        page.run("document.querySelectorAll('article a').forEach((a) => a.dispatchEvent(new MouseEvent('mouseover')))")
        found = page.run("""(() => { const inside = [...document.querySelectorAll("article *")];
            const links = [...document.querySelectorAll("article a")];
            return { hit: window.hit === undefined, tags: [...new Set(inside.map((e) => e.localName))],
                handlers: inside.flatMap((e) => [...e.attributes]).filter((a) => a.name.startsWith("on") || a.name === "style" || a.name === "srcdoc").length,
                links: links.map((a) => a.protocol), rel: links.every((a) => a.rel === "noopener noreferrer nofollow" && a.target === "_blank") }; })()""")
        assert found["hit"] and not found["handlers"], found
        assert not {"script", "iframe", "img", "object", "embed", "style", "base", "meta", "math", "marquee"} & set(found["tags"]), found
        assert found["rel"] and set(found["links"]) <= {"http:", "https:", "mailto:"}, found
        # the words are there, as words
        for source in HOSTILE:
            for tag in re.findall(r"<script.*?>|<img.*?>", source):
                assert page.run(f"document.querySelector('#talk').textContent.includes({json.dumps(tag)})"), tag


def test_long_lines(chromium):
    """What would take quadratic time comes back at all."""
    with Desk(chromium) as (_, page):
        for unit, tail in LINES:
            page.run(f"(() => {{ const n = make('div'); render(n, {json.dumps(unit)}.repeat(20000) + {json.dumps(tail)}); }})()")


def test_thinking(chromium):
    with Desk(chromium) as (server, page):
        server.replies.append(Reply("The answer is 4.", reasoning="Two and two\nmake four.", pause=0.2))
        page.type("2 + 2?")
        page.key("Enter")
        page.until("document.querySelector('.thought summary')?.innerText === 'Thinking…'")
        page.until("!running")
        assert page.run("!document.querySelector('.thought').open && !document.querySelector('.thought div').checkVisibility()")
        assert re.fullmatch(r"Thought for [\d.]+ s", page.run("document.querySelector('.thought summary').innerText"))
        assert said(page) == "The answer is 4."
        page.click(".thought summary")
        assert page.run("document.querySelector('.thought div').innerText") == "Two and two\nmake four."
        ask(server, page, "And 3 + 3?", Reply("6"))
        assert page.run("document.querySelector('.thought').open"), "what was unfolded stays so"
        # what was thought goes back, so that the server can find the conversation in its cache
        assert server.requests[1]["messages"][1] == {"role": "assistant", "content": "The answer is 4.", "reasoning_content": "Two and two\nmake four."}


def test_stop(chromium):
    for how in ("click", "key"):
        with Desk(chromium) as (server, page):
            server.replies.append(Reply("word " * 2000, pause=0.02))
            page.type("Talk")
            page.key("Enter")
            page.until("document.querySelector('article .text')?.innerText.length > 20")
            page.click("#stop") if how == "click" else page.key("Escape")
            page.until("!running")
            assert page.run("document.querySelector('article .cut').innerText") == "Stopped."
            part = said(page)
            assert 20 < len(part) < 5000
            deadline = time.monotonic() + 20
            while not server.closed_early and time.monotonic() < deadline:
                time.sleep(0.05)
            assert server.closed_early == 1, "the connection was not closed"
            ask(server, page, "Go on", Reply("More."))
            assert server.requests[1]["messages"][1]["content"].strip() == part
            assert said(page) == "More."


def test_kept_over_reload(chromium):
    with Desk(chromium) as (server, page):
        ask(server, page, "First question\nwith a second line", Reply("First **answer**"))
        page.click("#new")
        ask(server, page, "Another", Reply("Second answer"))
        page.reload()
        page.until("models.length")
        titles = "[...document.querySelectorAll('#chats .open')].map((b) => b.innerText)"
        assert page.run(titles) == ["Another", "First question"]
        assert said(page) == "Second answer" and page.run("document.title") == "Another"
        page.click("#chats li:nth-child(2) .open")
        assert said(page) == "First answer" and page.run("document.querySelector('article strong').innerText") == "answer"
        ask(server, page, "Go on", Reply("Third"))
        assert [m["content"] for m in server.requests[-1]["messages"]] == ["First question\nwith a second line", "First **answer**", "Go on"]
        # renamed
        page.click("#chats li.now .plain")
        page.click("#menu [data-do=rename]")
        page.run("document.activeElement.select()")
        page.type("Renamed")
        page.key("Enter")
        assert page.run(titles) == ["Renamed", "Another"] and page.run("$('title').innerText") == "Renamed"
        # deleted, and brought back
        page.click("#chats li.now .plain")
        page.click("#menu [data-do=remove]")
        assert page.run(titles) == ["Another"] and page.run("!now.messages.length")
        assert page.run("Object.keys(localStorage).filter((k) => k.startsWith('millet:chat:')).length") == 1
        page.click("#toast button")
        assert page.run(titles) == ["Renamed", "Another"] and said(page) == "Third"
        page.reload()
        assert page.run(titles) == ["Renamed", "Another"]
        export(page)


def export(page):
    with tempfile.TemporaryDirectory() as folder:
        page.browser.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder, browserContextId=page.context)
        for what, name in (("json", "Renamed.json"), ("markdown", "Renamed.md")):
            page.click("#chats li.now .plain")
            page.click(f"#menu [data-do={what}]")
            file, deadline = pathlib.Path(folder) / name, time.monotonic() + 20
            while not file.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        saved = json.loads((pathlib.Path(folder) / "Renamed.json").read_text())
        assert saved["title"] == "Renamed" and saved["messages"][1] == {"role": "assistant", "content": "First **answer**"}, saved
        assert "## Reply\n\nFirst **answer**\n" in (pathlib.Path(folder) / "Renamed.md").read_text()


def test_interrupted(chromium):
    """A reply that was under way when the page was left is kept as far as it came."""
    with Desk(chromium) as (server, page):
        server.replies.append(Reply("word " * 2000, pause=0.02))
        page.type("Talk")
        page.key("Enter")
        page.until("Object.values(localStorage).some((v) => v.includes('word word'))")
        page.reload()
        assert page.run("document.querySelector('article .cut').innerText") == "Cut off before its end."
        assert said(page).startswith("word word")


def test_regenerate_and_edit(chromium):
    with Desk(chromium) as (server, page):
        ask(server, page, "Question", Reply("One"))
        server.replies.append(Reply("Two"))
        page.run("[...document.querySelectorAll('article button')].find((b) => b.innerText === 'Regenerate').click()")
        page.until("!running")
        assert said(page) == "Two" and page.run("document.querySelectorAll('article').length") == 2
        assert server.requests[1]["messages"] == [{"role": "user", "content": "Question"}]
        page.run("$('draft').focus()")
        page.key("ArrowUp")
        assert page.run("document.activeElement.value") == "Question"
        page.key("Escape")
        assert page.run("document.querySelector('.said').innerText") == "Question"
        server.replies.append(Reply("Three"))
        page.run("[...document.querySelectorAll('article button')].find((b) => b.innerText === 'Edit').click()")
        page.run("document.activeElement.select()")
        page.type("Better question")
        page.key("Enter")
        page.until("!running && now.messages.length === 2")
        assert server.requests[2]["messages"] == [{"role": "user", "content": "Better question"}] and said(page) == "Three"


def test_settings(chromium):
    with Desk(chromium) as (server, page):
        page.click("#open-settings")
        for name, value in (("system", "Be brief."), ("temperature", "0.3"), ("top_p", "0.9"), ("max", "64"), ("seed", "7")):
            page.run(f"$('set-{name}').focus()")
            page.type(value)
        page.run("document.querySelector('[name=thinking][value=off]').click()")
        page.key("Escape")
        assert not page.run("$('settings').open")
        ask(server, page, "Hi", Reply("Hello"))
        request = server.requests[0]
        assert request["messages"][0] == {"role": "system", "content": "Be brief."}
        assert (request["temperature"], request["top_p"], request["max_completion_tokens"], request["seed"]) == (0.3, 0.9, 64, 7), request
        assert request["chat_template_kwargs"] == {"enable_thinking": False}
        page.click("#open-settings")
        page.run("$('set-temperature').focus(); $('set-temperature').select()")
        page.type("9")
        assert page.run("$('set-temperature').matches('[aria-invalid]') && settings.temperature === '0.3'")
        page.reload()
        ask(server, page, "Again", Reply("Yes"))
        assert server.requests[1]["temperature"] == 0.3 and server.requests[1]["messages"][0]["content"] == "Be brief."


def test_errors(chromium):
    fault = "document.querySelector('article .fault')?.innerText"
    with Desk(chromium) as (server, page):
        ask(server, page, "1", Reply(status=400, error="This model's longest context is 2048 tokens; the messages have 3000."))
        assert page.run(fault) == "This model's longest context is 2048 tokens; the messages have 3000."
        shot(page, "error")
        server.replies.append(Reply("Fine now."))
        page.run("[...document.querySelectorAll('article button')].find((b) => b.innerText === 'Try again').click()")
        page.until("!running")
        assert said(page) == "Fine now." and not page.run(fault) and page.run("document.querySelectorAll('article').length") == 2
        page.click("#new")
        ask(server, page, "2", Reply(status=429, error="busy", headers={"Retry-After": "3"}))
        assert page.run(fault) == "The server is busy; try again in 3 seconds."
        page.click("#new")
        ask(server, page, "3", Reply("Half of a sen", broken=True))
        assert said(page) == "Half of a sen" and page.run("document.querySelector('.cut').innerText") == "Cut off before its end."
        page.click("#new")
        ask(server, page, "4", Reply("Long", finish="length"))
        assert page.run("document.querySelector('.cut').innerText") == "Ended at the limit of tokens."
        server.close()
        page.click("#new")
        ask(server, page, "5")
        assert page.run(fault) == "The server can't be reached."
        page.run("loadModels()")
        assert page.until("!$('alert').hidden && $('alert').innerText").startswith("The server can't be reached.")


def test_key(chromium):
    with Desk(chromium, key="sk-good") as (server, page):
        page.until("$('ask').open")
        assert page.run("document.activeElement.id") == "key"
        shot(page, "key")
        page.type("sk-bad")
        page.key("Enter")
        page.until("$('ask').open && $('ask-title').innerText === 'The server does not know this key'")
        page.type("sk-good")
        page.key("Enter")
        page.until("models.length && !$('ask').open")
        ask(server, page, "Hi", Reply("Hello"))
        assert said(page) == "Hello"
        page.reload()
        page.until("models.length")
        assert not page.run("JSON.stringify(localStorage).includes('sk-good')"), "the key is kept only for the tab unless one asks for more"
        server.key = "sk-other"
        server.replies.append(Reply("With another key"))
        page.run("$('draft').focus()")
        page.type("Again")
        page.key("Enter")
        page.until("$('ask').open")
        page.run("$('keep-key').click(); $('key').focus()")
        page.type("sk-other")
        page.key("Enter")
        page.until("!running && now.messages.length === 4")
        assert said(page) == "With another key" and page.run("localStorage.getItem('millet:key')") == "sk-other"


def test_keyboard(chromium):
    with Desk(chromium) as (server, page):
        page.run("$('draft').focus()")
        page.type("one")
        page.key("Enter", shift=True)
        page.type("two")
        assert page.run("$('draft').value") == "one\ntwo" and not server.requests
        server.replies.append(Reply("`code`\n\n```c\nint x;\n```"))
        page.key("Enter")
        page.until("!running && now.messages.length === 2")
        assert server.requests[0]["messages"][0]["content"] == "one\ntwo"
        page.run("document.activeElement.blur()")
        order = []
        for _ in range(24):
            page.key("Tab")
            found = page.run("""(() => { const e = document.activeElement, s = getComputedStyle(e), c = e.closest("#compose");
                const seen = s.outlineStyle !== "none" || (c && getComputedStyle(c).outlineStyle !== "none"), r = e.getBoundingClientRect();
                return [e.id || e.getAttribute("aria-label") || e.innerText, !!seen, r.width > 0 && r.bottom > 0 && r.top < innerHeight]; })()""")
            if page.run("document.activeElement === document.body"):  # between the last and the first
                continue
            if order and found[0] == order[0]:
                break
            order.append(found[0])
            assert found[1], f"focus on {found[0]} is not visible"
            assert found[2], f"focus on {found[0]} is out of sight"
        expected = ["Skip to the message field", "new", "one", "Actions for one", "theme", "open-settings", "talk", "Copy", "Edit", "Copy", "Code, c", "Copy", "Regenerate", "draft"]
        assert [o for o in order if o] [:len(expected)] == expected, order
        page.run("document.activeElement.blur()")
        page.run("document.querySelector('.skip').focus()")
        page.key("Enter")
        assert page.run("document.activeElement.id") == "draft"


def test_names_and_contrast(chromium):
    """Everything that one can operate has a name; text has the contrast of WCAG 2.1 AA (4.5, or 3 for large text)."""
    for dark in (False, True):
        with Desk(chromium, dark=dark) as (server, page):
            empty = page.run(CONTRAST)
            ask(server, page, "Show", Reply(SAMPLE, reasoning="Hm."), )
            page.click(".thought summary")
            ask(server, page, "Fail", Reply(status=500, error="No."))
            names(page)
            poor = empty + page.run(CONTRAST)
            page.click("#open-settings")
            names(page)
            poor += page.run(CONTRAST)
            assert not poor, poor
            assert page.run("document.documentElement.lang") == "en"


def names(page):
    nodes = page.send("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "textbox", "link", "radio", "spinbutton", "checkbox", "combobox", "dialog", "navigation", "article", "region", "form",
             "image", "heading", "list", "listitem", "group"}
    named = {"button", "textbox", "link", "radio", "spinbutton", "checkbox", "combobox", "dialog", "navigation", "article", "region", "form", "image"}
    found = [n for n in nodes if not n["ignored"] and n.get("role", {}).get("value") in roles]
    without = [n["role"]["value"] for n in found if n["role"]["value"] in named and not n.get("name", {}).get("value")]
    assert not without, f"without a name: {without}"
    assert len(found) > 10


CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] === 255) return c; } return [255, 255, 255]; };
  const bad = [];
  const dialog = document.querySelector("dialog[open]");
  for (const e of (dialog || document.body).querySelectorAll("*")) {
    const texts = [...e.childNodes].filter((n) => n.nodeType === 3 && n.data.trim());
    const field = e.matches("input:not([type=radio], [type=checkbox]), textarea");
    if (!(texts.length || field) || !e.checkVisibility() || e.closest(".unseen, .skip, script, style, symbol, :disabled")) continue;
    const style = getComputedStyle(e, field && !e.value ? "::placeholder" : null), over = ground(e);
    const [a, b] = [light(rgba(style.color).slice(0, 3)), light(over.slice(0, 3))].sort((x, y) => y - x), ratio = (a + 0.05) / (b + 0.05);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) bad.push([e.localName, (e.innerText || e.placeholder).slice(0, 40), ratio.toFixed(2)]);
  }
  return bad;
})()"""


def test_phone(chromium):
    long_word = "x" * 300 + " [" + "y" * 200 + "](https://example.org/" + "z" * 300 + ") `" + "c" * 200 + "`\n\n# " + "H" * 100
    for width in (320, 360):
        with Desk(chromium, width=width, height=640, phone=True) as (server, page):
            fits = """(() => { const wide = [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility() && !e.closest("pre, .table, .unseen, .skip, svg") && e.getBoundingClientRect().right > innerWidth + 0.5);
                return { page: document.documentElement.scrollWidth <= innerWidth && $("talk").scrollWidth <= $("talk").clientWidth, wide: wide.map((e) => e.outerHTML.slice(0, 80)) }; })()"""
            for text in (SAMPLE, long_word):
                ask(server, page, "W" * 120, Reply(text, reasoning=long_word))
                page.run("document.querySelectorAll('details').forEach((d) => (d.open = true))")
                found = page.run(fits)
                assert found["page"] and not found["wide"], found
            bottom = page.run("$('compose').getBoundingClientRect().bottom")
            assert bottom <= 640, bottom
            small = page.run("[...document.querySelectorAll('button')].filter((b) => b.checkVisibility()).map((b) => [b.getAttribute('aria-label') || b.innerText, b.offsetWidth, b.offsetHeight]).filter(([, w, h]) => w < 24 || h < 24)")
            assert not small, f"too small to touch: {small}"
            page.run("$('draft').focus()")
            page.type("one")
            page.key("Enter")
            assert page.run("$('draft').value") == "one\n", "on glass, Enter is a new line"
            page.click("#drawer")
            assert page.run("$('side').matches(':popover-open') && document.querySelector('#chats .open').checkVisibility()")
            assert page.run(fits)["page"]
            page.click("#chats .open")
            assert not page.run("$('side').checkVisibility()")
            page.click("#open-settings")
            found = page.run(fits)
            assert found["page"] and not found["wide"] and page.run("$('settings').scrollWidth <= $('settings').clientWidth"), found


def test_appearance(chromium):
    ground = "getComputedStyle(document.body).backgroundColor"
    with Desk(chromium) as (_, page):
        light = page.run(ground)
        page.dark(True)
        dark = page.until(f"{ground} !== {json.dumps(light)} && {ground}")
        page.click("#theme")
        assert page.run(ground) == light and page.run("$('theme').ariaLabel") == "Appearance: light. Change to dark"
        page.reload()
        assert page.run(ground) == light
        page.click("#theme")
        page.dark(False)
        assert page.run(ground) == dark


def test_scrolling(chromium):
    """The end is followed while one is there, and not when one reads further up."""
    with Desk(chromium) as (server, page):
        ask(server, page, "Long", Reply("A paragraph of text.\n\n" * 60, size=40))
        at_end = "$('talk').scrollHeight - $('talk').scrollTop - $('talk').clientHeight < 60"
        assert page.run(at_end)
        server.replies.append(Reply("Another paragraph.\n\n" * 60, size=20, pause=0.02))
        page.type("More")
        page.key("Enter")
        page.until("document.querySelectorAll('article p').length > 80")
        page.run("$('talk').scrollTop = 100")
        page.until("!$('down').hidden")
        page.until("!running")
        assert page.run("$('talk').scrollTop") == 100
        page.click("#down")
        assert page.run(at_end) and page.run("$('down').hidden")


def test_screenshots(chromium):
    for name, options in (("desktop", {"width": 1280, "height": 860}), ("phone", {"width": 360, "height": 740, "phone": True})):
        for dark in (False, True):
            with Desk(chromium, dark=dark, **options) as (server, page):
                shade = f"{name}-{'dark' if dark else 'light'}"
                shot(page, shade + "-empty")
                ask(server, page, "Show me what you can write: lists, tables, code", Reply(SAMPLE, reasoning="Of each kind one.", size=9))
                shot(page, shade + "-end")
                page.run("$('talk').scrollTop = 0")
                page.until("!$('down').hidden")
                shot(page, shade + "-top")
                page.click("#open-settings")
                shot(page, shade + "-settings")
                page.key("Escape")
                if "phone" in options:
                    page.click("#drawer")
                    shot(page, shade + "-list")


def main():
    if not browser.find():
        print("skipped: no Chromium (tools/setup test installs it)")
        return 77
    tests = [f for name, f in globals().items() if name.startswith("test_") and (len(sys.argv) < 2 or name in sys.argv[1:])]
    chromium, failed = browser.Browser(), 0
    try:
        for test in tests:
            start = time.monotonic()
            try:
                test(chromium)
                print(f"{test.__name__}: ok, {time.monotonic() - start:.1f} s", flush=True)
            except AssertionError:
                failed += 1
                traceback.print_exc(file=sys.stdout)
                print(f"{test.__name__}: FAILED", flush=True)
    finally:
        chromium.close()
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
