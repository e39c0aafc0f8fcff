"""A stub of the W&B server: enough of its HTTP interface for a client to start a run, send history and finish."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Server(ThreadingHTTPServer):
    """Answers on loopback and remembers what it was asked; nothing but errors once it is `dead`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.queries: list[dict[str, Any]] = []
        self.dead = False
        self.streamed: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.dead:
            self.send_error(500)
            return
        try:
            body = json.loads(content or b"{}")
        except ValueError:  # telemetry, compressed
            body = {}
        if self.path.endswith("/graphql"):
            self.server.queries.append(body)
            self._answer({"data": _data(self.server.url, body.get("query", ""), body.get("variables") or {})})
        else:
            self.server.streamed.append(body)
            self._answer({})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer({})

    def do_GET(self) -> None:
        self._answer({})

    def _answer(self, value: Any) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _data(url: str, query: str, variables: dict[str, Any]) -> dict[str, Any]:
    project = {"id": "p", "name": variables.get("project") or "erasure-mdl", "entity": {"id": "e", "name": "lab"}}
    if "upsertBucket" in query or "UpsertBucket" in query:
        bucket = {"id": "b", "name": variables.get("name"), "displayName": variables.get("name"), "historyLineCount": 0,
                  "config": "{}", "sweepName": None, "project": project}  # fmt: skip
        return {"upsertBucket": {"bucket": bucket, "inserted": True}}
    if "CreateRunFiles" in query:
        files = [{"name": name, "uploadUrl": f"{url}/upload/{name}"} for name in variables["files"]]
        return {"createRunFiles": {"runID": "b", "uploadHeaders": [], "files": files}}
    return {
        "viewer": {
            "id": "v",
            "entity": "lab",
            "username": "lab",
            "flags": "{}",
            "teams": {"edges": []},
            "apiKeys": {"edges": []},
        },
        "serverInfo": {"cliVersionInfo": {}, "latestLocalVersionInfo": None, "features": []},
        "model": {"bucket": None, "id": "p"},
        "project": {"run": None},
    }


@contextmanager
def serve() -> Iterator[Server]:
    """A running server."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
