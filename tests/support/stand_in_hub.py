"""A stand-in for the hub on loopback: the few endpoints that huggingface_hub asks to upload, and what it was sent."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class StandInHub:
    """What came in."""

    url: str = ""
    asked: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    repos: dict[str, dict[str, Any]] = field(default_factory=dict)  # by type and name
    files: dict[str, bytes] = field(default_factory=dict)  # by type, name and path
    refuses: bool = False


@contextmanager
def stand_in_hub() -> Iterator[StandInHub]:
    """Serve an empty hub until the end of the block."""
    hub = StandInHub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            hub.asked.append(self.path)
            hub.tokens.add(self.headers.get("Authorization", ""))
            status, reply = (403, {"error": "Forbidden"}) if hub.refuses else (200, answer(self.path, body))
            content = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *given: Any) -> None:
            pass

    def answer(path: str, body: bytes) -> Any:
        if path == "/api/repos/create":
            asked = json.loads(body)
            kind = asked.get("type") or "model"
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            is_private = asked["private"] if "private" in asked else asked["visibility"] == "private"
            hub.repos[f"{kind}s/{name}"] = {**asked, "is_private": is_private}
            return {"url": f"{hub.url}/{name}", "id": name, "name": name}
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": []}
        _, _, kind, owner, name, what, *_ = path.split("/")
        home = f"{kind}/{owner}/{name}"
        if what == "preupload":
            return {
                "files": [
                    {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                    for each in json.loads(body)["files"]
                ]
            }
        if what == "commit":
            for line in map(json.loads, body.decode().splitlines()):
                if line["key"] == "file":
                    assert line["value"]["encoding"] == "base64"
                    hub.files[f"{home}/{line['value']['path']}"] = base64.b64decode(line["value"]["content"])
            return {"success": True, "commitUrl": f"{hub.url}/{owner}/{name}/commit/{'0' * 40}", "commitOid": "0" * 40}
        raise AssertionError(path)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
