"""Many clients at once against one server: replies plain and streamed, cancelled, refused, too large, half sent, unread.
    python3 tests/soak/soak.py MILLET ARTIFACT [--seconds 600] [--clients 32] [--sessions 8] [--seed 1] [--json FILE]
Every reply must equal the one that the same request got alone, and that `millet run` gives; the server must neither end nor grow, in
memory or open files. Prints the time to the first token of streamed replies."""
import argparse, collections, http.client, json, os, pathlib, random, re, signal, socket, struct, subprocess, sys, tempfile, threading, time

MAX_BODY, MAX_HEADER, RECEIVE = 65536, 16384, 4
PROMPTS = ["Once upon a time", "The little dog", "One day, a girl named Lily", "In the garden there was", "Grüße, 世界 🌾", "a",
           "A long prompt that goes on and on. " * 6]


class Wrong(Exception):
    """The server did something that it must not."""


def jobs():
    """Requests whose replies are determined: greedy, or by a seed."""
    found = []
    for i, prompt in enumerate(PROMPTS):
        found.append(("/v1/completions", {"prompt": prompt, "max_tokens": 8 + 9 * i, "temperature": 0}))
        found.append(("/v1/completions", {"prompt": prompt, "max_tokens": 40 - 4 * i, "temperature": 1.2, "seed": 100 + i, "top_p": 0.9}))
        messages = [{"role": "system", "content": "Be brief."}] * (i % 2) + [{"role": "user", "content": prompt}]
        found.append(("/v1/chat/completions", {"messages": messages, "max_completion_tokens": 6 + 7 * i, "temperature": 0}))
    found.append(("/v1/completions", {"prompt": PROMPTS[:3], "n": 2, "max_tokens": 10, "temperature": 1, "seed": 3}))
    found.append(("/v1/chat/completions", {"messages": [{"role": "user", "content": "Say it as JSON."}], "max_completion_tokens": 60, "temperature": 0,
                                           "response_format": {"type": "json_object"}}))
    schema = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}, "age": {"type": "integer", "maximum": 30}}, "required": ["kind", "age"], "additionalProperties": False}
    found.append(("/v1/chat/completions", {"messages": [{"role": "user", "content": "A pet."}], "max_completion_tokens": 60, "temperature": 1, "seed": 4,
                                           "response_format": {"type": "json_schema", "json_schema": {"name": "pet", "schema": schema}}}))
    for choice in ("auto", "required"):
        found.append(("/v1/chat/completions", {"messages": [{"role": "user", "content": "Which pet?"}], "max_completion_tokens": 70, "temperature": 0, "tool_choice": choice,
                                               "tools": [{"type": "function", "function": {"name": "pet", "parameters": schema}}]}))
    found.append(("/v1/completions", {"prompt": PROMPTS[0], "max_tokens": 12, "temperature": 0, "logprobs": 3, "echo": True}))
    return found


# (what it is, method, path, body or None, statuses that are right)
BAD = [("no JSON", "POST", "/v1/completions", b"{\"prompt\": ", {400}),
       ("deep JSON", "POST", "/v1/completions", b"[" * 5000, {400}),
       ("no object", "POST", "/v1/completions", b"[1]", {400}),
       ("no prompt", "POST", "/v1/completions", {"max_tokens": 3}, {400}),
       ("unknown field", "POST", "/v1/completions", {"prompt": "a", "tempreature": 1}, {400}),
       ("wrong type", "POST", "/v1/completions", {"prompt": "a", "max_tokens": "3"}, {400}),
       ("out of range", "POST", "/v1/completions", {"prompt": "a", "temperature": 9}, {400}),
       ("too much to generate", "POST", "/v1/completions", {"prompt": "a", "max_tokens": 10**6}, {400}),
       ("prompt too long", "POST", "/v1/completions", {"prompt": "one two " * 4000}, {400}),
       ("unknown model", "POST", "/v1/completions", {"model": "gpt-4", "prompt": "a"}, {404}),
       ("no messages", "POST", "/v1/chat/completions", {"messages": []}, {400}),
       ("unknown role", "POST", "/v1/chat/completions", {"messages": [{"role": "king", "content": "a"}]}, {400}),
       ("bad schema", "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "response_format": {
           "type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "thing"}}}}, {400}),
       ("embeddings", "POST", "/v1/embeddings", {"input": "a"}, {400}),
       ("wrong method", "PUT", "/v1/completions", {"prompt": "a"}, {405}),
       ("unknown path", "GET", "/v2/models", None, {404}),
       ("up the path", "GET", "/../etc/passwd", None, {400, 404})]

# (first bytes of a connection, statuses; None: it may just be closed)
RAW = [(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)), {400, None}),
       (b"GET / HTTP/9.9\r\n\r\n", {400, 505, None}),
       (b"GET /" + b"a" * 2 * MAX_HEADER + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 413, 414, 431, None}),
       (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"y" * 2 * MAX_HEADER + b"\r\n\r\n", {400, 413, 431, None}),
       (b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", {200}),
       (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", {400, None}),
       (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", {400, None}),
       (b"\r\n" * 50, {400, 408, None}), (b"\0" * 100, {400, 408, None})]


class Server:
    def __init__(self, millet, artifact, sessions, options=()):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([millet, "serve", artifact, "--port", "0", "--template", "qwen3", "--sessions", str(sessions), "--queue", "20", "--max-body", str(MAX_BODY),
                                         "--max-header", str(MAX_HEADER), "--receive-timeout", str(RECEIVE), *options], stdout=subprocess.PIPE, stderr=self.log, text=True)
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.process.stdout.readline())
        if not found:
            sys.exit(f"the server doesn't start: {self.errors()}")
        self.port = int(found[1])

    def errors(self):
        self.log.seek(0)
        return self.log.read()[-4000:]

    def resident(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", text)[1]) * 1024

    def files(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def connection(self, seconds=300):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)

    def socket(self, seconds=60):
        return socket.create_connection(("127.0.0.1", self.port), timeout=seconds)


def essence(choices):
    """What of an answer must not depend on anything but the request: all but the ids."""
    for call in [call for c in choices for call in c.get("message", {}).get("tool_calls") or []]:
        del call["id"]
    return [{k: v for k, v in sorted(c.items()) if k in ("index", "text", "message", "finish_reason", "logprobs")} for c in choices]


def send(c, path, body, **more):
    c.request("POST", path, json.dumps({**body, **more}).encode(), {"Content-Type": "application/json"})
    return c.getresponse()


class Load:
    def __init__(self, server, expected, seconds, seed):
        self.server, self.expected, self.jobs = server, expected, jobs()
        self.end, self.seed = time.monotonic() + seconds, seed
        self.lock, self.count, self.first, self.wrong, self.ids, self.tokens = threading.Lock(), collections.Counter(), [], [], set(), 0
        self.longest = collections.Counter()

    def note(self, what):
        with self.lock:
            self.count[what] += 1

    def took(self, id, tokens, first=None):
        with self.lock:
            if id in self.ids:
                raise Wrong(f"two answers have the id {id}")
            self.ids.add(id)
            self.tokens += tokens
            if first is not None:
                self.first.append(first)

    def client(self, number):
        r = random.Random(self.seed * 1000 + number)
        kinds = [(self.plain, 26), (self.streamed, 30), (self.kept, 6), (self.cancelled, 14), (self.bad, 9), (self.large, 4), (self.half, 4), (self.unread, 3), (self.raw, 4)]
        actions, weights = zip(*kinds)
        while time.monotonic() < self.end:
            [action] = r.choices(actions, weights)
            start = time.monotonic()
            try:
                action(r)
            except Wrong as e:
                self.wrong.append(f"{action.__name__}: {e}")
            except (OSError, http.client.HTTPException) as e:
                self.wrong.append(f"{action.__name__}: {type(e).__name__} {e}")
            if len(self.wrong) > 20:
                return
            with self.lock:
                self.longest[action.__name__] = max(self.longest[action.__name__], round(time.monotonic() - start, 1))
            time.sleep(r.random() * 0.02)

    def busy(self, response, r):
        """Refused because too many wait: that must be said properly, and is waited for."""
        if response.status != 429:
            return False
        data, wait = json.loads(response.read()), response.getheader("Retry-After")
        if not wait or not wait.isdigit() or "message" not in data["error"]:
            raise Wrong(f"429 without Retry-After or message: {wait} {data}")
        self.note("429")
        time.sleep(min(float(wait), 1) * (0.5 + r.random()))
        return True

    def plain(self, r, c=None):
        i = r.randrange(len(self.jobs))
        own = c or self.server.connection()
        start = time.monotonic()
        response = send(own, *self.jobs[i])
        own.asked = start
        if not self.busy(response, r):
            self.whole(i, response)
        if not c:
            own.close()

    def whole(self, i, response):
        data = json.loads(response.read())
        if response.status != 200:
            raise Wrong(f"status {response.status}: {data} for {self.jobs[i]}")
        if essence(data["choices"]) != self.expected[i]:
            raise Wrong(f"{self.jobs[i]}\n  gave  {essence(data['choices'])}\n  alone {self.expected[i]}")
        self.took(data["id"], data["usage"]["completion_tokens"])
        self.note("plain")

    def kept(self, r):
        """Several on one connection."""
        c = self.server.connection()
        c.asked = time.monotonic()
        for _ in range(r.randrange(2, 5)):
            try:
                self.plain(r, c)
            except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
                if time.monotonic() - c.asked < RECEIVE:
                    raise
                c.close()  # the server, which may have answered long before that was read here, ended it, as it should
                self.note("connection kept for too long")
        c.close()
        self.note("connection kept")

    def streamed(self, r):
        i = r.randrange(len(self.jobs))
        c, start, first, parts, ids, usage = self.server.connection(), time.monotonic(), None, {}, set(), None
        response = send(c, *self.jobs[i], stream=True, stream_options={"include_usage": True})
        if self.busy(response, r):
            return c.close()
        if response.status != 200 or not response.getheader("Content-Type").startswith("text/event-stream"):
            raise Wrong(f"status {response.status}: {response.read()[:300]}")
        for event in events(response):
            ids.add(event["id"])
            usage = event.get("usage") or usage
            for choice in event["choices"]:
                delta = choice.get("delta", {})
                if first is None and (choice.get("text") or delta.get("content") or delta.get("reasoning_content") or delta.get("tool_calls")):
                    first = time.monotonic() - start
                collect(parts, choice)
        c.close()
        compare_stream(self.jobs[i], parts, self.expected[i])
        if len(ids) != 1 or not usage:
            raise Wrong(f"{len(ids)} ids, usage {usage}")
        self.took(ids.pop(), usage["completion_tokens"], first)
        self.note("streamed")

    def cancelled(self, r):
        """Closed, or reset, before or within the answer."""
        path, body = r.choice(self.jobs)
        s = self.server.socket(300)
        data = json.dumps({**body, "stream": r.random() < 0.8}).encode()
        s.sendall(head(path, len(data)) + data)
        if r.random() < 0.8:
            for _ in range(r.randrange(1, 8)):
                if not s.recv(r.choice([1, 100, 400])):
                    break
        if r.random() < 0.4:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
        self.note("cancelled")

    def bad(self, r):
        what, method, path, body, statuses = r.choice(BAD)
        c = self.server.connection()
        c.request(method, path, json.dumps(body).encode() if isinstance(body, dict) else body)
        response = c.getresponse()
        data = response.read()
        c.close()
        if response.status not in statuses:
            raise Wrong(f"{what}: status {response.status}, not {statuses}: {data[:300]}")
        if response.status != 405 and "message" not in json.loads(data)["error"]:
            raise Wrong(f"{what}: {data[:300]}")
        self.note("bad")

    def large(self, r):
        """A body above the limit, announced or in chunks; the answer may come before all is sent."""
        s, announced = self.server.socket(), r.random() < 0.5
        size = MAX_BODY * r.choice([2, 20])
        try:
            if announced:
                s.sendall(head("/v1/completions", size) + b"x" * size)
            else:
                s.sendall(head("/v1/completions", None) + b"1000\r\n" + b"x" * 4096 + b"\r\n")
                for _ in range(size // 4096):
                    s.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")
                s.sendall(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        status = status_of(s)
        if status not in (413, None):
            raise Wrong(f"status {status} for a body of {size} bytes")
        self.note("too large" if status else "too large, closed")

    def half(self, r):
        """Stops in the middle of a request; the server must end that by itself."""
        body = json.dumps({"prompt": "a"}).encode()
        whole = head("/v1/completions", len(body)) + body
        s = self.server.socket(RECEIVE * 5 + 30)
        s.sendall(whole[: r.randrange(0, len(whole) - 1)])
        if r.random() < 0.3:
            s.shutdown(socket.SHUT_WR)
        elif r.random() < 0.5:
            time.sleep(r.random() * 2)
            s.close()
            return self.note("half, left")
        status = status_of(s)
        if status not in (400, 408, None):
            raise Wrong(f"status {status} for half a request")
        self.note("half, ended")

    def unread(self, r):
        """Reads little and late, with small buffers: nobody else may wait for that."""
        i = r.randrange(len(self.jobs))
        path, body = self.jobs[i]
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        s.settimeout(60)
        s.connect(("127.0.0.1", self.server.port))
        data = json.dumps({**body, "stream": True}).encode()
        s.sendall(head(path, len(data)) + data)
        for _ in range(r.randrange(2, 12)):
            time.sleep(0.2)
            if not s.recv(64):
                break
        s.close()
        self.note("slow reader")

    def raw(self, r):
        data, statuses = r.choice(RAW)
        s = self.server.socket(RECEIVE * 5 + 30)
        try:
            s.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        status = status_of(s)
        if status not in statuses:
            raise Wrong(f"status {status}, not {statuses}, for {data[:60]}")
        self.note("garbage")


def head(path, length):
    how = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{how}\r\n\r\n".encode()


def status_of(s):
    """The status of what comes, None if the connection is just closed; closes it."""
    data = b""
    try:
        while b"\r\n" not in data:
            piece = s.recv(4096)
            if not piece:
                break
            data += piece
    except ConnectionResetError:
        pass
    except socket.timeout:
        raise Wrong("the server leaves the connection open")
    finally:
        s.close()
    found = re.match(rb"HTTP/1\.[01] (\d+) ", data)
    return int(found[1]) if found else None


def events(response):
    """The data of server-sent events; they must end as they should."""
    for line in response:
        line = line.strip()
        if line == b"data: [DONE]":
            response.read()
            return
        if line.startswith(b"data: "):
            event = json.loads(line[6:])
            if "error" in event:
                raise Wrong(f"error in the stream: {event}")
            yield event
    raise Wrong("the stream has no end")


def collect(parts, choice):
    part = parts.setdefault(choice["index"], collections.defaultdict(str))
    part["text"] += choice.get("text") or ""
    for name in ("content", "reasoning_content"):
        part[name] += choice.get("delta", {}).get(name) or ""
    for call in choice.get("delta", {}).get("tool_calls") or []:
        for name in ("name", "arguments"):
            part[f"{name} {call['index']}"] += call["function"].get(name) or ""
    part["finish_reason"] = choice.get("finish_reason") or part["finish_reason"]


def compare_stream(job, parts, expected):
    for want in expected:
        got = parts.get(want["index"], collections.defaultdict(str))
        message = want.get("message", {})
        pairs = [("text", want.get("text")), ("content", message.get("content")), ("reasoning_content", message.get("reasoning_content")), ("finish_reason", want["finish_reason"])]
        for i, call in enumerate(message.get("tool_calls") or []):
            pairs += [(f"{name} {i}", call["function"][name]) for name in ("name", "arguments")]
        for name, value in pairs:
            if got[name] != (value or ""):
                raise Wrong(f"{job}, streamed\n  {name}: {got[name]!r}\n  alone {value!r}")
    if len(parts) != len(expected):
        raise Wrong(f"{job}: {len(parts)} choices, not {len(expected)}")


def alone(server):
    """Every job by itself, one after another."""
    found = []
    for path, body in jobs():
        c = server.connection()
        response = send(c, path, body)
        data = json.loads(response.read())
        if response.status != 200:
            sys.exit(f"{path} {body}: {response.status} {data}")
        found.append(essence(data["choices"]))
        c.close()
    return found


def compare_with_run(millet, artifact, expected, most):
    """Completions of one prompt are what `millet run` prints."""
    plain = [(j[1], want) for j, want in zip(jobs(), expected) if j[0] == "/v1/completions" and isinstance(j[1]["prompt"], str) and not j[1].get("echo")]
    for body, want in plain[:most]:
        sampling = ["-t", str(body["temperature"]), "-s", str(body["seed"]), "--top-p", str(body["top_p"])] if "seed" in body else ["-t", "0"]
        done = subprocess.run([millet, "run", artifact, "--prompt", body["prompt"], "-n", str(body["max_tokens"]), "--json", *sampling], capture_output=True, text=True)
        text = json.loads(done.stdout)["text"] if done.returncode == 0 else done.stderr
        if text != want[0]["text"]:
            sys.exit(f"{body}: the server gives {want[0]['text']!r}, millet run {text!r}")


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


def soak(arguments):
    server = Server(arguments.millet, arguments.artifact, arguments.sessions)
    expected = alone(server)
    compare_with_run(arguments.millet, arguments.artifact, expected, 4 if arguments.seconds < 60 else None)
    files, load = server.files(), Load(server, expected, arguments.seconds, arguments.seed)
    threads = [threading.Thread(target=load.client, args=(i,)) for i in range(arguments.clients)]
    start, memory, pause, stall = time.monotonic(), [], min(1, arguments.seconds / 20), 0
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads) and server.process.poll() is None:
        memory.append(server.resident())
        before = time.monotonic()
        time.sleep(pause)
        stall = max(stall, time.monotonic() - before - pause)  # what the machine itself kept from us
    for t in threads:
        t.join()
    seconds = time.monotonic() - start
    wrong = list(load.wrong)
    if server.process.poll() is None:
        wrong += after(server, expected, files)
        server.process.send_signal(signal.SIGTERM)
    code = server.process.wait(120)
    if code:
        wrong.append(f"the server ended with {code}: {server.errors()}")
    report = {"seconds": round(seconds, 1), "clients": arguments.clients, "sessions": arguments.sessions, "answers": len(load.ids), "tokens": load.tokens,
              "tokens_per_second": round(load.tokens / seconds, 1), **{f"first_token_p{int(p * 100)}_s": round(percentile(load.first, p), 3) for p in (0.5, 0.9, 0.99)},
              "memory_MiB": {"after a third": round(max(memory[: len(memory) // 3] or [0]) / 2**20, 1), "last third": round(max(memory[len(memory) * 2 // 3 :] or [0]) / 2**20, 1)},
              "longest_s": dict(load.longest), "longest_stall_of_this_program_s": round(stall, 1), "requests": dict(load.count.most_common())}
    grown = report["memory_MiB"]["last third"] - report["memory_MiB"]["after a third"]
    if not arguments.sanitized and grown > max(4, 0.05 * report["memory_MiB"]["after a third"]):
        wrong.append(f"memory grew by {grown:.1f} MiB")
    return report, wrong


def after(server, expected, files):
    """Nothing is left of the load: files are closed, and replies are what they were."""
    wrong, deadline = [], time.monotonic() + 60 + RECEIVE
    while server.files() > files and time.monotonic() < deadline:
        time.sleep(0.1)
    if server.files() > files:
        wrong.append(f"{server.files()} open files, not {files}")
    if alone(server) != expected:
        wrong.append("replies differ from those before the load")
    return wrong


def main():
    p = argparse.ArgumentParser()
    p.add_argument("millet")
    p.add_argument("artifact")
    p.add_argument("--seconds", type=float, default=600)
    p.add_argument("--clients", type=int, default=32)
    p.add_argument("--sessions", type=int, default=8)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json", help="file for the report")
    p.add_argument("--sanitized", action="store_true", help="the server has a sanitizer, whose own memory grows")
    arguments = p.parse_args()
    report, wrong = soak(arguments)
    print(json.dumps(report, indent=1))
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(report))
    for line in wrong:
        print("WRONG:", line)
    missing = [k for k in ("plain", "streamed", "cancelled", "bad") if not report["requests"].get(k)]
    if missing and not wrong:
        print("WRONG: no request of the kind", missing)
    sys.exit(1 if wrong or missing else 0)


if __name__ == "__main__":
    main()
