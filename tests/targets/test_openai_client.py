"""The client of OpenAI-compatible servers: an answer that never ends, or that is too large, is none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from targets import openai_client
from targets.openai_client import Endpoint, Server

pytest.importorskip("openai", reason="the extra 'vlm' is not installed")


@contextmanager
def endless(pause: float) -> Iterator[str]:
    """A server that sends one byte of its answer after the other, with a pause, until nobody listens."""
    ended = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.recv(1 << 16)
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{")
                    while not ended.wait(pause):
                        connection.sendall(b" ")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        ended.set()
        # A blocked accept wakes when the socket is shut down, not when it is closed.
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize(("seconds", "pause", "reason"), [(0.5, 0.05, "timeout"), (600.0, 0.0, "connection")])
def test_an_answer_without_end(
    seconds: float, pause: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setattr(openai_client, "LARGEST_ANSWER", 2000)
    with endless(pause) as url:
        endpoint = Endpoint("m", url, "OPENAI_API_KEY", timeout=seconds, retries=0, backoff=0.01)
        server = Server(endpoint, "a test")
        exchange = server.complete({"model": "m", "messages": [{"role": "user", "content": "?"}]})
        server.close()
    assert (exchange.reply, exchange.reason) == (None, reason)
