"""An agent over TCP, which wants a token."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import holdall


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.headers["Authorization"] == "Bearer secret"
        problem = {"type": "urn:holdall:problem:unauthenticated", "detail": "no token that is known"}
        body = json.dumps({"you": "token:ci"} if known else problem).encode()
        self.send_response(200 if known else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_with_its_token(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert holdall.Client(url=url, token="secret").agent() == {"you": "token:ci"}
    monkeypatch.setenv("HOLDALL_URL", url)
    monkeypatch.setenv("HOLDALL_TOKEN", "secret")
    assert holdall.Client().agent() == {"you": "token:ci"}


def test_a_token_from_a_file_has_an_end_of_line_and_is_never_shown(url: str) -> None:
    assert holdall.Client(url=url, token="secret\n").agent() == {"you": "token:ci"}
    with pytest.raises(ValueError) as told:
        holdall.Client(url=url, token="sec\nret")
    assert "sec" not in str(told.value).replace("seconds", "")


def test_without(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDALL_TOKEN", raising=False)
    for token in (None, "wrong"):
        with pytest.raises(holdall.Denied, match="no token"):
            holdall.Client(url=url, token=token).agent()
