"""The server as a thing on a network: clients that leave, stall, lie, drip, or are too many; keys, hosts, origins; the end."""
import concurrent.futures, json, re, select, signal, socket, subprocess, tempfile, threading, time
import openai
from serving import DEMO, MILLET, SLOW, Server, alone, events, read_all, run_tests, serving

LONG = {"prompt": "Once upon a time", "max_tokens": 1900, "temperature": 1, "seed": 1, "ignore_eos": True}
SHORT = {"prompt": "The little dog", "max_tokens": 8, "temperature": 0}


def http(method, path, body=b"", headers=""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


def test_malformed():
    """Whatever comes, the server answers or closes, and serves the next one."""
    rows = [b"", b"\r\n", b"GARBAGE\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70000 + b"\r\n\r\n", b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx",
            b"GET /%00%ff/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\0" * 5000]
    with serving("--receive-timeout", 1) as s:
        for row in rows:
            with s.connect() as c:
                try:
                    c.sendall(row)
                    c.shutdown(socket.SHUT_WR)
                except OSError:  # closed already
                    pass
                answer = read_all(c)
                assert answer[:9] in (b"", b"HTTP/1.1 ", b"HTTP/1.0 ") and b"root:" not in answer, (row[:60], answer[:100])
                assert not answer or b" 200 " not in answer.split(b"\r\n")[0] or row.startswith(b"GET /health"), row[:60]
        assert s.post("/v1/completions", SHORT)[0] == 200
        # methods, paths
        status, headers, body = s.request("GET", "/v1/completions")
        assert status == 405 and "POST" in headers["allow"] and json.loads(body)["error"]["code"] == "method_not_allowed"
        assert s.request("DELETE", "/v1/models")[0] == 405 and s.request("POST", "/v1/nothing", "{}")[0] == 404
        status, headers, body = s.request("HEAD", "/health")
        assert status == 200 and body == b""
        status, headers, body = s.request("GET", "/")
        assert status == 200 and headers["content-type"].startswith("text/html") and "content-security-policy" in headers
        assert s.request("GET", "/", headers={"If-None-Match": headers["etag"]})[0] == 304
        # a target in absolute form, as for a proxy
        assert s.raw(b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        assert s.raw(b"GET http://localhost HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 404 ")


def test_refused_below():
    """What isn't HTTP is refused in one answer, in the API's form, logged and counted; then the connection is closed."""
    post = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    chunked = post + b"Transfer-Encoding: chunked\r\n\r\n"
    get = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    rows = [(b"GET / HTTP/9.9\r\n\r\n", 505, "unsupported_version"), (b"GET / HTTP/0.9\r\n\r\n", 505, "unsupported_version"),
            (b"GET / HTTX/1.1\r\n\r\n", 400, "invalid_request"), (get + b"no colon\r\n\r\n", 400, "invalid_request"),
            (get + b"Content-Length: 4\r\nno colon\r\n\r\n", 400, "invalid_request"),
            (get + b"X: " + b"a" * 270000 + b"\r\n\r\n", 431, "request_header_too_large"),
            (get + b"Cookie: " + b"a=b;" * 20000 + b"\r\n\r\n", 431, "request_header_too_large"),
            (b"GET /" + b"a" * 270000 + b" HTTP/1.1\r\n\r\n", 414, "request_header_too_large"),
            *((post + b"Content-Length: " + n + b"\r\n\r\n", 400, "invalid_header") for n in (b"x", b"-5", b"5x", b"0x5", b"")),
            (post + b"Content-Length: 99999999999999999999999\r\n\r\n", 413, "request_too_large"),
            (chunked + b"zz\r\n", 400, "invalid_chunk"), (chunked + b"5\r\nabcdefg\r\n", 400, "invalid_chunk"),
            (chunked + b"f" * 17 + b"\r\nx", 413, "request_too_large"), (chunked + b"f" * 300000 + b"\r\nx", 413, "request_too_large"),
            (chunked + b"0" * 300000 + b"\r\nx", 400, "invalid_chunk")]
    with serving() as s:
        for data, status, code in rows:
            head, _, body = s.raw(data).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status) and head.count(b"\r\nDate: ") == 1 and b"\r\nConnection: close" in head, (data[:80], head)
            assert b"\r\nContent-Type: application/json" in head and b"\r\nContent-Length: %d" % len(body) in head, head
            assert json.loads(body)["error"]["code"] == code, (data[:80], body)
        # behind what was answered, and where nobody reads the answer
        answer = s.raw(get + b"\r\n" + get + b"no colon\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ") and answer.count(b"HTTP/1.1 400 ") == 1 and answer.endswith(b"}}\n"), answer
        for _ in range(50):
            with s.connect() as c:
                c.sendall(rows[0][0])
        s.until(lambda: s.metric('responses_total{status="5xx"}') == 52 and s.metric("connections") <= 1)
        assert s.metric('responses_total{status="4xx"}') == len(rows) - 2 + 1
        lines = s.errors().splitlines()
        for status in (505, 400, 431, 414, 413):
            assert any(re.fullmatch(rf"[\d-]+T[\d:]+Z - - {status} total=[\d.]+s", line) for line in lines), status
        assert any(f" POST /v1/completions 400 " in line for line in lines) and s.post("/v1/completions", SHORT)[0] == 200


def test_sizes():
    """A body that is too large is refused as soon as that is known, and read to its end, so that its sender sees why."""
    def refused(answer):
        head, _, body = answer.partition(b"\r\n\r\n")
        return head.startswith(b"HTTP/1.1 413 ") and json.loads(body)["error"]["code"] == "request_too_large"
    with serving("--max-body", 2000) as s:
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        for n, chunked in ((2500, False), (9000, False), (10_000_000, False), (2500, True), (9000, True), (10_000_000, True)):
            body, step = json.dumps({"prompt": "x" * n}).encode(), max(500, n // 100)
            if chunked:
                data = head + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(
                    b"%x\r\n%s\r\n" % (len(body[i : i + step]), body[i : i + step]) for i in range(0, len(body), step)) + b"0\r\n\r\n"
            else:
                data = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
            assert refused(s.raw(data)), (n, chunked)
        # of which the rest never comes
        for data in (b"Content-Length: 10000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 15 + b"\r\n" + b"x" * 3000):
            assert refused(s.raw(head + data, 5)), data[:40]
        c = s.client()
        try:
            c.completions.create(model="demo", prompt="x" * 3000)
            assert False
        except openai.APIStatusError as e:
            assert e.status_code == 413
        # asked for first: refused without being sent
        answer = s.raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n\r\n", 5)
        assert answer.startswith(b"HTTP/1.1 413")


def test_heads():
    """A head is refused in the API's form when it is larger than --max-header by a byte, and up to a few times that."""
    most = 4096
    with serving("--max-header", most) as s:
        def head(method, n, more=b""):
            fixed = method + b" /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + more + b"X: \r\n\r\n"
            return fixed.replace(b"X: ", b"X: " + b"a" * (n - len(fixed)))
        assert s.raw(head(b"GET", most)).startswith(b"HTTP/1.1 200 ")
        for data, size in ((head(b"GET", most + 1), most + 1), (head(b"GET", 3 * most), 3 * most), (head(b"PUT", 2 * most, b"Content-Length: 3\r\n") + b"abc", 2 * most)):
            first, _, body = s.raw(data).partition(b"\r\n\r\n")
            got = json.loads(body)["error"]
            assert first.startswith(b"HTTP/1.1 431 ") and got["code"] == "request_header_too_large" and f"has {size}." in got["message"], (first, body)
        assert s.raw(head(b"GET", 100_000)).startswith(b"HTTP/1.1 431 ")
        for i in range(3):  # who asks again on the same connection gets the same
            assert s.request("GET", "/health", headers={"X": "a" * 3800})[0] == 200


def test_pipelining():
    with serving() as s:
        text = alone(SHORT["prompt"], 8)["text"]
        data = http("POST", "/v1/completions", SHORT) * 3 + http("GET", "/health") + http("POST", "/v1/completions", {**SHORT, "stream": True}, "Connection: close\r\n")
        answer = s.raw(data)
        assert answer.count(b"HTTP/1.1 200 OK") == 5 and answer.count(json.dumps(text)[1:-1].encode()) == 3 and answer.rstrip().endswith(b"0")


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


def test_framing():
    """What a request's head must say: one answer, with one head, as the API has errors; then the connection is closed."""
    body = b"\r\n" + json.dumps(SHORT).encode()
    length = b"Content-Length: %d\r\n" % (len(body) - 2)
    with serving() as s:
        for head, status, code in (
                (HEAD.replace(b"Host: localhost\r\n", length), 400, "invalid_header"), (HEAD + b"Host: localhost\r\n" + length, 400, "invalid_header"),
                (HEAD + length + b"Content-Length: 3\r\n", 400, "invalid_header"), (HEAD + length + b"Transfer-Encoding: chunked\r\n", 400, "invalid_header"),
                (HEAD + length.replace(b":", b" :"), 400, "invalid_header"), (HEAD + length.replace(b": ", b":\r\n "), 400, "invalid_header"),
                (HEAD + length.replace(b": ", b":\r\n\t"), 400, "invalid_header"),
                (HEAD + length + b"F(o: 1\r\n", 400, "invalid_header"), (HEAD + length + b"Foo: a\x01b\r\n", 400, "invalid_header"),
                (HEAD + length + b"Foo: a\r\n b\r\nBar: c\r\n", 400, "invalid_header"), (HEAD + length + b"Transfer-Encoding : chunked\r\n", 400, "invalid_header"),
                (HEAD + b"Transfer-Encoding: gzip\r\n", 501, "unsupported_encoding"), (HEAD + b"Transfer-Encoding: gzip, chunked\r\n", 501, "unsupported_encoding"),
                (HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 501, "unsupported_encoding")):
            answer = s.raw(head + body)
            assert answer.startswith(b"HTTP/1.1 %d " % status) and answer.count(b"\r\nDate: ") == 1 and b"Connection: close" in answer, answer
            assert json.loads(answer.split(b"\r\n\r\n")[1])["error"]["code"] == code, answer
        assert s.raw(b"GET /health HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")  # HTTP/1.0 has no Host
        for size in (b"f" * 17, b"f" * 5000):  # of a chunk
            assert s.raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + size + b"\r\nx").startswith(b"HTTP/1.1 413 ")


def test_gone_in_the_middle():
    """A client that leaves inside of a request leaves nothing behind, however the end comes together with the rest."""
    with serving("--receive-timeout", 600, "--idle-timeout", 600, "--connections", 40) as s:
        for i in range(200):
            with s.connect() as c:
                c.sendall((HEAD, HEAD + b"Content-Length: 100\r\n\r\nabc", b"", b"PO", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab")[i % 5])
        s.until(lambda: s.metric("connections") <= 1)


def test_half_open_lock_nobody_out():
    """Where there are too many connections the one that has sent no whole request for longest goes; those being served stay."""
    with serving("--receive-timeout", 600, "--idle-timeout", 600, "--connections", 20) as s:
        with s.connect() as served:
            served.sendall(http("POST", "/v1/completions", {**LONG, "max_tokens": 400}, "Connection: close\r\n"))
            s.until(lambda: s.metric("sessions_active") == 1)
            half = [s.connect() for _ in range(60)]
            for c in half[::2]:
                c.sendall(HEAD)
            text = alone(SHORT["prompt"], 8)["text"]
            status, got = s.post("/v1/completions", SHORT)
            assert status == 200 and got["choices"][0]["text"] == text
            assert s.metric("connections") <= 21
            assert read_all(half[0]) == b"" and b" 200 OK" in read_all(served)
            [c.close() for c in half]


def test_half_closed():
    """A client that closes its side of the connection behind a request has left: nothing more is made for it, running or waiting."""
    with serving("--sessions", 1) as s:
        for stream in (False, True):
            before, tokens = s.metric("clients_left_total"), s.metric("generated_tokens_total")
            with s.connect() as c, s.connect() as waiting:
                c.sendall(http("POST", "/v1/completions", {**LONG, "stream": stream}))
                s.until(lambda: s.metric("sessions_active") == 1)
                waiting.sendall(http("POST", "/v1/completions", {**SHORT, "stream": stream}))
                s.until(lambda: s.metric("requests_waiting") == 1)
                for one in (waiting, c):
                    one.shutdown(socket.SHUT_WR)
                s.until(lambda: s.metric("clients_left_total") == before + 2)
                assert b"[DONE]" not in read_all(c) and read_all(waiting) == b""
            assert s.metric("generated_tokens_total") - tokens < LONG["max_tokens"]
            assert s.metric("sessions_active") + s.metric("requests_waiting") == 0
        with s.connect() as c:  # what needs no model is answered still
            c.sendall(http("GET", "/health", b""))
            c.shutdown(socket.SHUT_WR)
            assert read_all(c).endswith(b'{"status":"ok"}\n')
        assert s.post("/v1/completions", SHORT)[0] == 200


def test_costly_schemas():
    """A schema that takes long to compile keeps nobody waiting but who sent it."""
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string", "pattern": f"^(a|b)*a(a|b){{9}}q{{{i}}}$"} for i in range(400)}}
    ask = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1,
           "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}
    with serving() as s:
        with s.connect() as costly:
            costly.sendall(http("POST", "/v1/chat/completions", ask, "Connection: close\r\n"))
            assert s.request("GET", "/health")[0] == 200
            assert s.post("/v1/completions", SHORT)[0] == 200
            assert not select.select([costly], [], [], 0)[0]
            assert b"60000 states" in read_all(costly)


def test_half_open_and_dripping():
    """Connections that send nothing, or a byte now and then, are closed."""
    with serving("--receive-timeout", 1.5, "--connections", 20) as s:
        idle = [s.connect() for _ in range(20)]
        for c in idle:
            assert read_all(c) == b"" and not c.close()
        with s.connect() as c:
            start, closed = time.monotonic(), False
            for byte in http("POST", "/v1/completions", SHORT):
                try:
                    c.sendall(bytes([byte]))
                    c.setblocking(False)
                    try:
                        closed = c.recv(100) == b""
                    except BlockingIOError:
                        pass
                    c.setblocking(True)
                except (BrokenPipeError, ConnectionResetError):
                    closed = True
                if closed:
                    break
                time.sleep(0.1)
            assert closed and time.monotonic() - start < 15 * SLOW
        s.until(lambda: s.metric("connections") <= 2)


def test_clients_that_leave():
    """A session is free within a token of its client's leaving: streamed, not streamed, waiting."""
    with serving("--sessions", 1) as s:
        for stream in (True, False):
            before = s.metric("clients_left_total")
            with s.connect() as c:
                c.sendall(http("POST", "/v1/completions", {**LONG, "stream": stream}))
                if stream:
                    c.recv(2000)
                else:
                    s.until(lambda: s.metric("sessions_active") == 1)
            s.until(lambda: s.metric("clients_left_total") == before + 1)
            assert s.post("/v1/completions", SHORT)[0] == 200
        with s.connect() as c, s.connect() as waiting:
            c.sendall(http("POST", "/v1/completions", {**LONG, "stream": True}))
            c.recv(2000)
            waiting.sendall(http("POST", "/v1/completions", LONG))
            s.until(lambda: s.metric("requests_waiting") == 1)
            waiting.close()
            s.until(lambda: s.metric("requests_waiting") == 0)
        # OpenAI's own client stops in the middle
        with s.client().completions.create(model="demo", prompt="One", max_tokens=1500, stream=True, extra_body={"ignore_eos": True}) as answer:
            next(iter(answer))
        s.until(lambda: s.metric("sessions_active") == 0)
        # and runs out of patience
        try:
            s.client(timeout=0.05).completions.create(model="demo", prompt="One", max_tokens=1900, extra_body={"ignore_eos": True})
            assert False
        except openai.APITimeoutError:
            pass
        s.until(lambda: s.metric("sessions_active") == 0)


def test_slow_readers():
    """One that doesn't read waits alone, and is dropped in the end."""
    with serving("--sessions", 2, "--idle-timeout", 2) as s:
        with s.connect(receive=2048) as c:
            c.sendall(http("POST", "/v1/completions", {**LONG, "stream": True, "logprobs": 20}))
            text = alone(SHORT["prompt"], 8)["text"]
            for _ in range(4):
                status, got = s.post("/v1/completions", SHORT)
                assert status == 200 and got["choices"][0]["text"] == text
            s.until(lambda: s.metric("sessions_active") == 0, 60)
        assert s.metric("clients_left_total") == 1


def test_the_queue():
    """Beyond the queue: 429 and when to come back; OpenAI's client comes back by itself."""
    with serving("--sessions", 1, "--queue", 2) as s:
        busy = [s.connect() for _ in range(3)]
        for i, c in enumerate(busy):
            c.sendall(http("POST", "/v1/completions", {**LONG, "stream": True}))
            s.until(lambda: s.metric("sessions_active") + s.metric("requests_waiting") == i + 1)
        status, headers, body = s.request("POST", "/v1/completions", SHORT)
        assert status == 429 and int(headers["retry-after"]) >= 1 and json.loads(body)["error"]["code"] == "queue_full"
        try:
            s.client().completions.create(model="demo", prompt="x")
            assert False
        except openai.RateLimitError:
            pass
        with concurrent.futures.ThreadPoolExecutor() as pool:
            later = pool.submit(lambda: s.client(max_retries=8).completions.create(model="demo", prompt=SHORT["prompt"], max_tokens=8, temperature=0))
            time.sleep(0.3)
            [c.close() for c in busy]
            assert later.result().choices[0].text == alone(SHORT["prompt"], 8)["text"]
        assert s.metric("refused_total") >= 2


def test_fair():
    """A request of many choices doesn't keep others waiting for all of them."""
    with serving("--sessions", 1) as s:
        with s.connect() as c:
            c.sendall(http("POST", "/v1/completions", {**LONG, "n": 20, "max_tokens": 150, "stream": True}))
            c.recv(500)
            assert s.post("/v1/completions", SHORT)[0] == 200
            assert s.metric("sessions_active") + s.metric("requests_waiting") > 0  # the other is still at it


def test_time_limit():
    with serving("--time-limit", 0.3) as s:
        status, got = s.post("/v1/completions", LONG)
        assert status == 504 and got["error"]["code"] == "timeout"
        body = s.request("POST", "/v1/completions", {**LONG, "stream": True})[2]
        assert json.loads(body.decode().strip().split("\n")[-1].removeprefix("data: "))["error"]["code"] == "timeout"
        try:
            for _ in s.client().completions.create(model="demo", prompt="x", max_tokens=1900, stream=True, extra_body={"ignore_eos": True}):
                pass
            assert False
        except openai.APIError as e:
            assert "more than" in e.message


def test_keys_hosts_origins():
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write("# ours\nsecret-one\n\nsecret-two\r\n")
        keys.flush()
        with serving("--api-key-file", keys.name, "--cors-origin", "http://app.example") as s:
            for key in ("secret-one", "secret-two"):
                assert s.client(api_key=key).completions.create(model="demo", prompt="x", max_tokens=1).choices
            for value in ("Bearer secret-on", "Bearer secret-one2", "Bearer ", "Bearer", "Basic secret-one", "secret-one", "Bearer # ours"):
                assert s.request("POST", "/v1/completions", SHORT, {"Authorization": value})[0] == 401, value
            try:
                s.client(api_key="wrong-key").models.list()
                assert False
            except openai.AuthenticationError as e:
                assert e.code == "invalid_api_key"
            assert s.request("GET", "/metrics")[0] == 401 and s.request("GET", "/health")[0] == 200 and s.request("GET", "/")[0] == 200
            status, headers, _ = s.request("OPTIONS", "/v1/completions", headers={"Origin": "http://app.example"})
            assert status == 204 and headers["access-control-allow-origin"] == "http://app.example"
            errors = s.errors()
            assert "secret" not in errors and "wrong-key" not in errors and "little dog" not in errors and "POST /v1/completions 200" in errors
        for arguments, text in ((["--host", "0.0.0.0"], "--api-key-file"), (["--host", "no.such.host.invalid"], "no.such.host"),
                                (["--api-key-file", "/dev/null"], "not a regular file"), (["--port", "70000"], "port")):
            done = subprocess.run([MILLET, "serve", DEMO, *arguments], capture_output=True, text=True, timeout=60 * SLOW)
            assert done.returncode and text in done.stderr and done.stderr.count("\n") == 1, done.stderr
    with serving("--allow-host", "box.local") as s:
        for host, status in (("localhost", 200), ("127.0.0.1:80", 200), ("[::1]:1", 200), ("box.local", 200), ("evil.example", 403),
                             ("localhost.evil.example", 403), ("127.0.0.1.evil.example", 403)):
            assert s.request("GET", "/v1/models", headers={"Host": host})[0] == status, host
        for origin, status in ((f"http://localhost:{s.port}", 200), ("http://evil.example", 403), ("null", 403)):
            assert s.request("POST", "/v1/completions", SHORT, {"Host": f"localhost:{s.port}", "Origin": origin})[0] == status, origin
        busy = subprocess.run([MILLET, "serve", DEMO, "--port", str(s.port)], capture_output=True, text=True, timeout=60 * SLOW)
        assert busy.returncode == 1 and "can't listen" in busy.stderr


def test_logs_tell_nothing():
    """Lines on standard error have a form without room for what anybody said, whatever becomes of the request."""
    said, chat = "xyzzy-secret", "/v1/chat/completions"
    messages = [{"role": "user", "content": said}]
    tool = {"type": "function", "function": {"name": said, "parameters": {"type": "object", "properties": {said: {"type": "string"}}}}}
    schema = {"type": "json_schema", "json_schema": {"name": said, "schema": {"type": said, "description": said}}}
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write(said + "-key\n")
        keys.flush()
        with serving("--template", "qwen3", "--api-key-file", keys.name, "--sessions", 1, "--queue", 1) as s:
            key = {"Authorization": f"Bearer {said}-key"}
            for more in ({}, {"stream": True}, {"tools": [tool], "tool_choice": "required"}, {"response_format": schema}, {"stop": said},
                         {"user": said, "metadata": {said: said}}, {said: said}, {"model": said}, {"max_tokens": said}):
                s.request("POST", chat, {"messages": messages, "max_tokens": 4, **more}, key)
            for path, body, headers in ((chat, '{"messages": "' + said, key), ("/v1/completions?" + said, {"prompt": said, "max_tokens": 1}, key),
                                        (chat, {"messages": messages}, {"Authorization": "Bearer wrong-" + said}), (chat, {}, {**key, "Origin": "http://" + said}),
                                        (chat, {}, {**key, "Host": said}), (chat, {}, {**key, "Transfer-Encoding": said}), (chat, {}, {**key, "Cookie": said})):
                s.request("POST", path, body, headers)
            with s.connect() as c:
                c.sendall(http("POST", "/v1/completions", {**LONG, "prompt": said, "stream": True}, f"Authorization: Bearer {said}-key\r\n"))
                c.recv(100)
            with s.connect() as c:
                c.sendall(http("POST", "/v1/completions", {"prompt": said})[:-5])
        lines = s.errors().splitlines()
        form = re.compile(r"[\d-]+T[\d:]+Z (GET|POST) /[\w/]+ (\d{3}|-)( prompt=\d+ cached=\d+ new=\d+ first=[\d.]+s)? total=[\d.]+s|millet: ending.*")
        assert len(lines) >= 18 and all(form.fullmatch(line) for line in lines) and said not in s.errors(), lines


def test_logs_obey_nobody():
    """Whatever a client calls its method and path, they are two words of printable ASCII in the log."""
    requests = (b"G\x1b[31mT /health", b"G\xff\x9b31m /x", b"GET /a%1b%5b31mred", b"GET /\xc2\x9b31mx", b"GET /%0a2026-11-30T00:00:00Z%20GET%20/fake%20200", b"GET /a%20b",
                b"GET /" + b"\xe2\x80\xae" * 100)
    with serving() as s:
        for request in requests:
            assert s.raw(request + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").startswith(b"HTTP/1.1 40")
        lines = s.errors().splitlines()
    assert len(lines) == len(requests) and all(re.fullmatch(r"[\d-]+T[\d:]+Z [!-~]+ /[!-~]* 40[45] total=[\d.]+s", line) for line in lines), lines


def test_the_end():
    """SIGTERM: what runs is finished within the grace, or cut; what waits is refused."""
    for grace, whole in ((60, True), (0.2, False)):
        s = Server(DEMO, "--sessions", "1", "--grace", grace)
        ask = {**LONG, "max_tokens": 150 if whole else 1900}
        with s.connect() as plain, s.connect() as waiting:
            plain.sendall(http("POST", "/v1/completions", {**ask, "stream": True}, "Connection: close\r\n"))
            plain.recv(10, socket.MSG_PEEK)
            waiting.sendall(http("POST", "/v1/completions", SHORT, "Connection: close\r\n"))
            s.until(lambda: s.metric("requests_waiting") == 1)
            s.process.send_signal(signal.SIGTERM)
            answer, refused = read_all(plain), read_all(waiting)
        assert refused.startswith(b"HTTP/1.1 503") and b"shutting_down" in refused
        assert (b"[DONE]" in answer) == whole and (b"shutting_down" in answer) == (not whole)
        assert s.process.wait(30 * SLOW) == 0
        s.process.stdout.close()
    s = Server(DEMO)
    assert s.stop(signal.SIGINT) == 0 and s.errors() == "millet: ending\n"
    # told twice, what runs is cut at once
    s = Server(DEMO, "--sessions", "1", "--grace", 600)
    with s.connect() as c, s.connect() as waiting:
        c.sendall(http("POST", "/v1/completions", {**LONG, "stream": True}, "Connection: close\r\n"))
        c.recv(10, socket.MSG_PEEK)
        waiting.sendall(http("POST", "/v1/completions", SHORT, "Connection: close\r\n"))
        s.until(lambda: s.metric("requests_waiting") == 1)
        s.process.send_signal(signal.SIGINT)
        assert read_all(waiting).startswith(b"HTTP/1.1 503")
        s.process.send_signal(signal.SIGTERM)
        assert b"shutting_down" in read_all(c)
    assert s.process.wait(30 * SLOW) == 0
    said = [line for line in s.errors().splitlines() if line.startswith("millet: ")]
    assert len(said) == 2 and "in the making: 1 " in said[0] and "600 s" in said[0] and "again" in said[1], said
    s.process.stdout.close()


run_tests(globals())
