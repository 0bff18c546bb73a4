"""The parts of the API that the page calls, with replies that a test prescribes."""
import http.server, json, threading, time


class Reply:
    """What the next call of chat/completions gets: deltas, each with a pause before it, cut into pieces of bytes."""

    def __init__(self, content="", reasoning="", pause=0.0, size=4, cut=None, status=200, error=None, headers=None, finish="stop",
                 newline="\n", broken=False, usage=(7, 3)):
        self.content, self.reasoning, self.pause, self.size, self.cut = content, reasoning, pause, size, cut
        self.status, self.error, self.headers, self.finish, self.newline, self.broken = status, error, headers or {}, finish, newline, broken
        self.usage = usage

    def events(self):
        pieces = [self.reasoning[i:i + self.size] for i in range(0, len(self.reasoning), self.size)]
        for piece in pieces:
            yield {"choices": [{"index": 0, "delta": {"reasoning_content": piece}}]}
        pieces = [self.content[i:i + self.size] for i in range(0, len(self.content), self.size)]
        for piece in pieces:
            yield {"choices": [{"index": 0, "delta": {"content": piece}}]}
        if self.broken:
            return
        yield {"choices": [{"index": 0, "delta": {}, "finish_reason": self.finish}]}
        prompt, cached = self.usage
        yield {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": len(pieces), "prompt_tokens_details": {"cached_tokens": cached}}}


class Mock:
    def __init__(self, page, policy):
        self.page, self.policy, self.key = page, policy, None
        self.replies, self.requests, self.headers, self.closed_early = [], [], [], 0
        mock = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                mock.get(self)

            def do_POST(self):
                mock.post(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def get(self, request):
        if request.path == "/":
            self.answer(request, 200, self.page, {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": self.policy})
        elif request.path != "/v1/models":
            self.fail(request, 404, "not found")
        elif self.allowed(request):
            self.json(request, 200, {"object": "list", "data": [{"id": "tiny-millet", "object": "model"}]})

    def post(self, request):
        body = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        if not self.allowed(request):
            return
        self.requests.append(body)
        reply = self.replies.pop(0)
        if reply.status != 200:
            return self.fail(request, reply.status, reply.error, reply.headers)
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream")
        request.send_header("Connection", "close")
        request.end_headers()
        request.close_connection = True
        try:
            self.stream(request, reply)
        except (BrokenPipeError, ConnectionResetError):
            self.closed_early += 1

    def stream(self, request, reply):
        end = reply.newline
        for event in reply.events():
            time.sleep(reply.pause)
            data = f": a comment{end}data: {json.dumps(event, ensure_ascii=False)}{end}{end}".encode()
            for i in range(0, len(data), reply.cut or len(data)):
                request.wfile.write(data[i:i + (reply.cut or len(data))])
                request.wfile.flush()
                if reply.cut:
                    time.sleep(0.0005)  # so that pieces arrive as pieces
        if not reply.broken:
            request.wfile.write(f"data: [DONE]{end}{end}".encode())

    def allowed(self, request):
        if self.key is None or request.headers.get("Authorization") == "Bearer " + self.key:
            return True
        self.fail(request, 401, "Incorrect API key provided.")
        return False

    def fail(self, request, status, message, headers=None):
        self.json(request, status, {"error": {"message": message, "type": "error", "param": None, "code": None}}, headers)

    def json(self, request, status, value, headers=None):
        self.answer(request, status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def answer(self, request, status, data, headers):
        request.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(data)
