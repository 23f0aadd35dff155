"""vlm, against a server in this process that speaks OpenAI's protocol."""

from __future__ import annotations

import base64
import io
import json
import math
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from targets.base.errors import InputError, TargetError
from targets.catalogue import load_target
from targets.drawn_pictures import drawn_faces
from tests.targets.tools import conforms, facedelta, pairs_folder

pytest.importorskip("openai", reason="needs the extra 'vlm'")

KEY = "sk-very-secret-0123456789"


def red_share(request: dict) -> float:
    """What the test's model answers by: the share of red in the picture."""
    parts = request["messages"][0]["content"]
    data = next(part["image_url"]["url"] for part in parts if part["type"] == "image_url")
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data.split(",", 1)[1]))), dtype=float)
    return float(pixels[:, :, 0].mean() / 255)


class Model(BaseHTTPRequestHandler):
    """Answers yes with the probability of the red share; a test may choose the text or a status."""

    protocol_version = "HTTP/1.1"
    text: str | None = None
    status = 200
    requests: list[dict]

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append(request)
        yes = red_share(request)
        choice = {"index": 0, "finish_reason": "stop", "logprobs": None}
        choice["message"] = {"role": "assistant", "content": self.text or ("Yes" if yes > 0.5 else "No.")}
        if self.text is None and request.get("logprobs"):
            chances = {"Yes": 0.9 * yes, " no": 0.9 * (1 - yes), "Maybe": 0.1}
            top = [{"token": t, "logprob": math.log(p), "bytes": None} for t, p in chances.items()]
            choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
        body = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        if self.status != 200:
            body = {"error": {"message": f"Incorrect API key provided: {self.headers['Authorization']}"}}
        data = json.dumps(body).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def model() -> type[Model]:
    return type("OfThisTest", (Model,), {"requests": []})


@pytest.fixture
def settings(model: type[Model], monkeypatch: pytest.MonkeyPatch) -> Iterator[dict]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = ThreadingHTTPServer(("127.0.0.1", 0), model)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/v1"
        yield {"base_url": url, "concepts": ["smile", "glasses"], "retries": 0, "parallel": 2}
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(settings: dict, count: int = 2):
    loaded = load_target("vlm:tiny", settings)
    try:
        return loaded.target.score(drawn_faces(count))
    finally:
        loaded.close()


def test_conforms(settings: dict) -> None:
    conforms("vlm:tiny", settings)


def test_the_score_is_the_probability_of_yes_against_no(settings: dict) -> None:
    expected = [np.asarray(face, float)[:, :, 0].mean() / 255 for face in drawn_faces(2)]
    assert np.allclose(asked(settings).values, np.array(expected)[:, None], atol=1e-6)


def test_without_logprobs_the_word_counts(settings: dict, model: type[Model]) -> None:
    values = asked({**settings, "logprobs": False}).values
    assert set(values.ravel()) <= {0.0, 1.0}
    assert "logprobs" not in model.requests[0]


@pytest.mark.parametrize("text", ["I can't help with that.", "Perhaps", "Yesterday", "  "])
def test_any_other_answer_is_no_answer(settings: dict, model: type[Model], text: str) -> None:
    model.text = text
    scores = asked(settings, 1)
    assert np.isnan(scores.values).all()
    assert scores.reasons == ("no_answer",)


@pytest.mark.parametrize(("text", "value"), [("YES!", 1.0), ("no, not at all", 0.0), ("'Yes'.", 1.0)])
def test_the_first_word_is_read_whatever_its_dress(
    settings: dict, model: type[Model], text: str, value: float
) -> None:
    model.text = text
    assert (asked(settings, 1).values == value).all()


def test_each_concept_is_one_question(settings: dict, model: type[Model]) -> None:
    asked({**settings, "concepts": {"smile": "a broad smile"}, "question": "Is there {}? yes or no"}, 1)
    texts = [part["text"] for part in model.requests[0]["messages"][0]["content"] if part["type"] == "text"]
    assert texts == ["Is there a broad smile? yes or no"]
    assert (model.requests[0]["temperature"], model.requests[0]["seed"]) == (0.0, 0)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "refuses the key in OPENAI_API_KEY (status 401)"),
        (400, "answers 400 (BadRequestError) for model 'tiny'; try --set logprobs=false"),
        (404, "answers 404 (NotFoundError) for model 'tiny'"),
        (500, "answers 500 (InternalServerError)"),
    ],
)
def test_a_refused_request_never_repeats_the_key(
    settings: dict, model: type[Model], status: int, words: str
) -> None:
    model.status = status
    with pytest.raises((InputError, TargetError)) as caught:
        asked(settings, 1)
    assert words in str(caught.value)
    assert KEY not in "".join(traceback.format_exception(caught.value))


def test_the_key_is_in_no_card_and_no_file_of_a_run(settings: dict, tmp_path: Path) -> None:
    pairs = pairs_folder(tmp_path / "data", identities=1)
    given = [f"base_url={settings['base_url']}", 'concepts=["smile"]']
    done = facedelta(
        *("audit", pairs, "--target", "vlm:tiny", "--out", "run"),
        *(part for item in given for part in ("--set", item)),
        cwd=tmp_path,
    )
    assert done.status == 0, done.err
    assert KEY not in done.out + done.err
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"base_url": None}, "key in the environment variable OTHER_KEY, which is not set"),
        ({"base_url": "https://me:pw@there/v1"}, "must not hold credentials"),
        ({"base_url": "there"}, "must be an http or https URL"),
        ({"question": "Is it?"}, "exactly one {}"),
        ({"concepts": []}, "at least one name"),
        ({"concepts": ["smile", "smile"]}, "listed twice"),
        ({"api_key": KEY}, "unknown key 'api_key'"),
    ],
)
def test_bad_settings(settings: dict, change: dict, words: str) -> None:
    given = {**settings, "api_key_env": "OTHER_KEY", **change}
    with pytest.raises(InputError) as caught:
        load_target("vlm:tiny", given)
    assert words in str(caught.value)
    assert KEY not in str(caught.value)
    assert "pw" not in str(caught.value)


def test_no_server_there(settings: dict) -> None:
    with pytest.raises(InputError, match=r"no answer from the server 127\.0\.0\.1:9 \(APIConnectionError\)"):
        asked({**settings, "base_url": "http://127.0.0.1:9/v1"}, 1)
