"""http, against a server in this process whose answers each test chooses."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from targets.base.errors import InputError, TargetError
from targets.catalogue import LoadedTarget, load_target
from targets.drawn_pictures import drawn_faces
from targets.scoring import call_target
from tests.targets.http_server import ABOUT, Handler
from tests.targets.tools import conforms, facedelta, pairs_folder


class Chosen(Handler):
    """Answers what the test put into ``about`` and ``answers``; keeps the headers it was sent."""

    about: dict = ABOUT
    answers: object = None
    status = 200
    headers_seen: list[str | None]

    def do_GET(self):  # noqa: N802
        self.headers_seen.append(self.headers["Authorization"])
        self.answer(self.about)

    def do_POST(self):  # noqa: N802
        if self.answers is None:
            super().do_POST()
            return
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.status != 200:
            self.send_response(self.status)
            self.send_header("Content-Length", "12")
            self.end_headers()
            self.wfile.write(b"out of paper")
        else:
            self.answer(self.answers)


@pytest.fixture
def handler() -> type[Chosen]:
    return type("OfThisTest", (Chosen,), {"headers_seen": []})


@pytest.fixture
def url(handler: type[Chosen]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/score"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_conforms_in_a_process_of_its_own(example_server: str) -> None:
    conforms(f"http:{example_server}")


@pytest.fixture
def example_server() -> Iterator[str]:
    import subprocess
    import sys

    server = Path(__file__).resolve().parent.parent / "http_server.py"
    with subprocess.Popen([sys.executable, str(server)], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def test_the_card_is_what_the_server_says(url: str, handler: type[Chosen]) -> None:
    handler.about = {**ABOUT, "weights": {"net.bin": "00ff"}, "licence": "MIT"}
    loaded = load_target(f"http:{url}")
    loaded.close()
    assert loaded.card.concepts == ("bright", "red")
    assert (loaded.card.weights, loaded.card.licence, loaded.batch_size) == ({"net.bin": "00ff"}, "MIT", 8)


def test_a_bare_url_is_a_spec_too(url: str) -> None:
    loaded = load_target(url)
    assert np.isfinite(loaded.target.score(drawn_faces(2)).values).all()
    loaded.close()


def test_a_null_row_is_no_answer_with_the_servers_reason(url: str, handler: type[Chosen]) -> None:
    handler.answers = {"scores": [[0.5, 1], None, None], "reasons": [None, "no_face", None]}
    loaded = load_target(f"http:{url}")
    scores = loaded.target.score(drawn_faces(3))
    loaded.close()
    assert scores.reasons == (None, "no_face", "no_answer")
    assert np.isnan(scores.values[1:]).all()


def test_a_server_says_what_a_null_row_means(url: str, handler: type[Chosen]) -> None:
    handler.about = {**ABOUT, "nan_means": "no_face"}
    handler.answers = {"scores": [[0.5, 1], None, [None, None]]}
    loaded = load_target(f"http:{url}")
    assert call_target(loaded, drawn_faces(3), ["a", "b", "c"]).reasons == (None, "no_face", "no_face")
    handler.answers = {"scores": [[0.5, 1], None, None], "reasons": [None, None, "no_answer"]}
    assert call_target(loaded, drawn_faces(3), ["a", "b", "c"]).reasons == (None, "no_face", "no_answer")
    loaded.close()


def test_an_embedder(url: str, handler: type[Chosen]) -> None:
    handler.about = {"name": "Vectors", "embedding": True}
    handler.answers = {"scores": [[1, 2, 3], [4, 5, 6]]}
    loaded = load_target(f"http:{url}")
    assert loaded.card.kind == "embedding"
    assert loaded.target.embed(drawn_faces(2)).values.tolist() == [[1, 2, 3], [4, 5, 6]]
    loaded.close()


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"scores": [[1, 2]]}, "must answer 2 rows of 'scores', got 1"),
        ({"score": []}, "must answer 2 rows of 'scores', got none"),
        (
            {"scores": [[1, 2], [1]]},
            "must answer 2 numbers for each picture, or null, got 1 values for picture 2",
        ),
        ({"scores": [[1, 2], [1, "2"]]}, "must answer 2 numbers"),
        ({"scores": [[1, 2], [1, True]]}, "must answer 2 numbers"),
        ({"scores": [[1, 2], 3]}, "got int for picture 2 of 2"),
        ({"scores": [[1, 2], None], "reasons": ["no_face"]}, "must give 2 'reasons'"),
        ({"scores": [[1, 2], None], "reasons": [None, "asleep"]}, "got 'asleep'"),
    ],
)
def test_an_answer_that_breaks_the_protocol(
    url: str, handler: type[Chosen], answers: dict, words: str
) -> None:
    handler.answers = answers
    loaded = load_target(f"http:{url}")
    with pytest.raises(TargetError) as caught:
        loaded.target.score(drawn_faces(2))
    loaded.close()
    assert words in str(caught.value)


def test_another_status_ends_the_run_with_the_servers_line(url: str, handler: type[Chosen]) -> None:
    handler.answers, handler.status = {}, 507
    loaded = load_target(f"http:{url}")
    with pytest.raises(TargetError, match="must answer 200, got 507 out of paper"):
        loaded.target.score(drawn_faces(1))
    loaded.close()


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({"name": "x"}, 'must have either "concepts" or "embedding": true'),
        ({"name": "x", "concepts": ["a"], "embedding": True}, "must have either"),
        ({"name": "x", "concept": ["a"]}, "did you mean 'concepts'"),
        ([1], "must describe itself as a JSON object"),
    ],
)
def test_a_description_that_does_not_fit(url: str, handler: type[Chosen], about: object, words: str) -> None:
    handler.about = about
    with pytest.raises(InputError) as caught:
        load_target(f"http:{url}")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("http", "name the server"),
        ("http:ftp://there/x", "needs a URL"),
        ("http:http://me:secret@127.0.0.1:9/x", "must not hold credentials"),
        ("http:http://127.0.0.1:9/x", "is it running?"),
    ],
)
def test_no_server(spec: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_target(spec)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_token_comes_from_the_environment_and_goes_nowhere_else(
    url: str, handler: type[Chosen], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="MY_TOKEN, which is not set"):
        load_target(f"http:{url}", {"token_env": "MY_TOKEN"})
    monkeypatch.setenv("MY_TOKEN", "tok-123")
    loaded = load_target(f"http:{url}", {"token_env": "MY_TOKEN"})
    loaded.close()
    assert handler.headers_seen == ["Bearer tok-123"]
    assert "tok-123" not in loaded.card.model_dump_json()


def test_a_connection_that_was_dropped_is_opened_again(url: str) -> None:
    loaded = load_target(f"http:{url}")
    first = loaded.target.score(drawn_faces(1)).values
    loaded.target._server._connection.sock.shutdown(2)
    assert np.array_equal(loaded.target.score(drawn_faces(1)).values, first)
    loaded.close()


def test_an_audit_through_the_command_line(tmp_path: Path, example_server: str) -> None:
    pairs = pairs_folder(tmp_path / "data")
    done = facedelta("audit", pairs, "--target", f"http:{example_server}", "--out", "run", cwd=tmp_path)
    assert done.status == 0, done.err
    record = json.loads((tmp_path / "run/record.json").read_text())
    bright = [cell for cell in record["cells"] if cell["concept"] == "bright"]
    assert bright
    assert all(cell["delta"] < 0 for cell in bright)


def served(url: str, **settings: object) -> LoadedTarget:
    return load_target(f"http:{url}", settings)


def dripping(part: bytes) -> Callable[[Chosen], None]:
    """A handler that sends one byte at a time, each well within a socket's time-out, and never ends."""

    def answer(self: Chosen) -> None:
        with suppress(OSError):
            self.wfile.write(part)
            while True:
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.02)

    return answer


@pytest.mark.parametrize(
    "part", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Slow: "], ids=["body", "head"]
)
def test_a_server_that_sends_byte_by_byte_has_one_deadline(
    url: str, handler: type[Chosen], part: bytes
) -> None:
    handler.do_GET = dripping(part)
    with pytest.raises(InputError, match=r"the whole answer took more than timeout = 0.3 s"):
        served(url, timeout=0.3)


def test_a_body_without_end_is_cut(url: str, handler: type[Chosen], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("targets.adapters.http.MOST_BYTES", 1 << 20)
    handler.about = {**ABOUT, "detection": "x" * (2 << 20)}
    with pytest.raises(TargetError, match="must answer at most 1 MB, got more"):
        served(url)


def test_a_server_may_not_declare_any_number_of_outputs(url: str, handler: type[Chosen]) -> None:
    handler.about = {**ABOUT, "concepts": [f"c{n}" for n in range(10_001)]}
    with pytest.raises(InputError, match="at most 10000 items"):
        served(url)
    handler.about = {"name": "E", "embedding": True}
    handler.answers = {"scores": [[0.5] * 10_001]}
    loaded = served(url)
    with pytest.raises(TargetError, match="may answer 10,000 numbers a picture, got 10,001"):
        call_target(loaded, drawn_faces(1), ["x"])
    loaded.close()


def test_what_a_server_says_is_cut_and_told_without_secrets(
    url: str, handler: type[Chosen], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUR_TOKEN", "sesame-sesame")

    def refuse(self: Chosen) -> None:
        body = f"no \x1b[31m {self.headers['Authorization']} X-Api-Key: other {'long ' * 100}".encode()
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    handler.do_GET = refuse
    with pytest.raises(TargetError) as caught:
        served(f"{url}?sig=signed", token_env="OUR_TOKEN")  # noqa: S106
    text = str(caught.value)
    assert "got 403 no" in text
    assert not any(part in text for part in ("sesame", "other", "\x1b", "signed"))
    assert len(text) < 320


def test_a_query_string_is_sent_and_not_told(url: str, handler: type[Chosen]) -> None:
    paths = []
    handler.do_GET = lambda self: (paths.append(self.path), self.answer(ABOUT))
    loaded = served(f"{url}?sig=signed")
    assert paths == ["/score?sig=signed"]
    assert "signed" not in loaded.card.model_dump_json()
    loaded.close()
