"""What the server's tests share: a running server, what `millet run` says alone, raw connections."""
import contextlib, json, os, pathlib, re, select, signal, socket, subprocess, sys, tempfile, time

MILLET = pathlib.Path(os.environ["MILLET_BIN"])
DEMO = pathlib.Path(os.environ["DEMO"])
SLOW = 4 if any(word in str(MILLET) for word in ("debug", "tsan")) else 1  # sanitizers


class Server:
    def __init__(self, artifact=DEMO, *options):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen([MILLET, "serve", artifact, "--port", "0", *map(str, options)],
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"listening at http://(.*):(\d+)$", line)
        if not found:
            sys.exit(f"the server doesn't start: {line}{self.errors()}")
        self.host, self.port = found[1].strip("[]"), int(found[2])
        self.url = f"http://{found[1]}:{found[2]}"

    def errors(self):
        self.log.seek(0)
        return self.log.read()

    def client(self, **named):
        import openai
        return openai.OpenAI(**{"base_url": self.url + "/v1", "api_key": "none", "max_retries": 0, "timeout": 60 * SLOW, **named})

    def connect(self, receive=None):
        s = socket.socket()
        if receive:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        s.settimeout(30 * SLOW)
        s.connect((self.host, self.port))
        return s

    def raw(self, data, wait=None):
        """What comes back on a connection of its own until the server closes it."""
        with self.connect() as s:
            s.sendall(data)
            return read_all(s, wait)

    def request(self, method, path, body=None, headers={}):
        """(status, headers, body) of a request, its body given as bytes, text or JSON."""
        import http.client
        c = http.client.HTTPConnection(self.host, self.port, timeout=60 * SLOW)
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        c.request(method, path, data.encode() if isinstance(data, str) else data, headers)
        r = c.getresponse()
        text = r.read()
        c.close()
        return r.status, {k.lower(): v for k, v in r.getheaders()}, text

    def post(self, path, body, headers={}):
        status, _, text = self.request("POST", path, body, headers)
        return status, json.loads(text)

    def metric(self, name):
        text = self.request("GET", "/metrics")[2].decode()
        return float(re.search(rf"^millet_{re.escape(name)} (\S+)$", text, re.M)[1])

    def until(self, what, seconds=10):
        """Waits for what() to be true."""
        end = time.monotonic() + seconds * SLOW
        while not what():
            assert time.monotonic() < end, f"not within {seconds} s"
            time.sleep(0.02)

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        code = self.process.wait(60 * SLOW)
        self.process.stdout.close()
        return code


@contextlib.contextmanager
def serving(*options, artifact=DEMO):
    s = Server(artifact, *options)
    try:
        yield s
        assert s.process.poll() is None, f"the server ended: {s.errors()}"
    finally:
        if s.process.poll() is None:
            code = s.stop()
            assert code == 0, f"exit code {code}: {s.errors()}"
        errors = s.errors()
        assert "Sanitizer" not in errors and "runtime error" not in errors, errors


def read_all(s, seconds=None):
    s.settimeout(seconds or 30 * SLOW)
    data = b""
    while True:
        try:
            piece = s.recv(65536)
        except ConnectionResetError:
            return data
        if not piece:
            return data
        data += piece


def alone(prompt, n, *options, artifact=DEMO):
    """{ids, text, finish_reason} of `millet run`."""
    given = ["--prompt", prompt] if isinstance(prompt, str) else ["--raw-ids", "-"]
    done = subprocess.run([MILLET, "run", artifact, *given, "-n", str(n), "--json", *map(str, options)],
                          input=None if isinstance(prompt, str) else json.dumps(prompt), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def events(text):
    """The data of server-sent events."""
    found = [line[6:] for line in text.decode().split("\n") if line.startswith("data: ")]
    assert found[-1] == "[DONE]", found[-1]
    return [json.loads(line) for line in found[:-1]]


def run_tests(names):
    """Runs every test_* of the caller's, or those that the command line names."""
    for name, test in list(names.items()):
        if name.startswith("test_") and (len(sys.argv) < 2 or name in sys.argv[1:]):
            start = time.monotonic()
            test()
            print(f"{name} ok ({time.monotonic() - start:.1f} s)", flush=True)
