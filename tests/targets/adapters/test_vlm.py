"""vlm, against a server in this process that speaks OpenAI's protocol."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from targets.base.errors import InputError
from targets.catalogue import load_target
from targets.drawn_pictures import drawn_faces
from targets.scoring import PictureRef, score_pictures
from tests.support import call
from tests.targets.tools import conforms, pairs_folder, record_of

pytest.importorskip("openai", reason="needs the extra 'vlm'")

KEY = "sk-very-secret-0123456789"


def red_share(request: dict) -> float:
    """What the test's model answers by: the share of red in the picture."""
    parts = request["messages"][0]["content"]
    data = next(part["image_url"]["url"] for part in parts if part["type"] == "image_url")
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(data.split(",", 1)[1]))), dtype=float)
    return float(pixels[:, :, 0].mean() / 255)


class Model(BaseHTTPRequestHandler):
    """Answers yes with the probability of the red share; a test may choose the text, a status or it all.

    ``answer``: from a request to a status and a body, or to None for the model's own answer.
    """

    protocol_version = "HTTP/1.1"
    text: str | None = None
    status = 200
    requests: list[dict]
    answer: Callable[[dict], tuple[int, Any] | None] = staticmethod(lambda _: None)

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
        status, body = self.answer(request) or (self.status, body)
        data = json.dumps(body).encode()
        self.send_response(status)
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


def spoken(content: Any, tokens: Sequence[Sequence[tuple[str, float]]] | None = None, **more: Any) -> dict:
    """A chat completion; of each token the alternatives with their probabilities, the chosen one first."""
    listed = [
        [{"token": token, "logprob": math.log(p), "bytes": None} for token, p in alternatives]
        for alternatives in tokens or []
    ]
    logprobs = {"content": [{**top[0], "top_logprobs": top} for top in listed]} if tokens else None
    message = {"role": "assistant", "content": content, **more}
    choice = {"index": 0, "finish_reason": "stop", "logprobs": logprobs, "message": message}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def always(model: type[Model], status: int, body: Any) -> None:
    model.answer = staticmethod(lambda _: (status, body))


# Text, alternatives of each token, score by hand.
SOFT: dict[str, tuple[str, list[list[tuple[str, float]]], float]] = {
    "neither": ("I cannot determine", [[("I", 0.99), ("Yes", 0.009), ("No", 1e-9)]], math.nan),
    "half each way": ("Yes", [[("Yes", 0.5), ("No", 0.3), ("Maybe", 0.2)]], 0.5 / 0.8),
    "blank first": ("\n Yes", [[("\n", 0.9), ("Yes", 0.1)], [(" Yes", 0.6), (" No", 0.2)]], 0.75),
    "sentencepiece": ("Yes", [[("▁Yes", 0.6), ("▁No", 0.2)]], 0.75),
    "sentencepiece blank": ("Yes", [[("▁", 1.0)], [("Yes", 0.6), ("No", 0.2)]], 0.75),
    "byte level": ("No", [[("ĠNo", 0.6), ("ĠYes", 0.2)]], 0.25),
    "byte level blank": ("Yes", [[("Ċ", 1.0)], [("ĠYes", 0.6), ("ĠNo", 0.2)]], 0.75),
    "byte token": ("\nYes", [[("<0x0A>", 1.0)], [("Yes", 0.6), ("No", 0.2)]], 0.75),
    "cases": (
        "yes",
        [[("yes", 0.2), ("Yes", 0.2), ("YES", 0.1), (" yes", 0.1), ("no", 0.1), (" NO", 0.1)]],
        0.75,
    ),
    "emphasis": ("**Yes**", [[("**", 1.0)], [("Yes", 0.6), ("No", 0.2)], [("**", 1.0)]], 0.75),
    "explanation": ("Yes, it does", [[("Yes", 0.6), ("No", 0.2)], [(",", 1.0)], [(" it", 1.0)]], 0.75),
    "beginning of another word": ("Nobody", [[("No", 0.9), ("Yes", 0.05)], [("body", 1.0)]], math.nan),
    "no idea": ("No idea", [[("No", 0.9), ("Yes", 0.05)], [(" idea", 1.0)]], math.nan),
    "only blanks": ("  ", [[(" ", 1.0)], [("\n", 1.0)]], math.nan),
    "chosen one alone": ("Yes", [[("Yes", 0.8)]], 1.0),
}


@pytest.mark.parametrize(("text", "tokens", "score"), SOFT.values(), ids=SOFT)
def test_the_score_is_read_at_the_first_word(
    settings: dict, model: type[Model], text: str, tokens: list[list[tuple[str, float]]], score: float
) -> None:
    always(model, 200, spoken(text, tokens))
    found = asked(settings, 1)
    assert np.allclose(found.values, score, equal_nan=True)
    assert found.reasons == (None if score == score else "no_answer",)


def test_the_share_of_yes_and_no_has_a_floor(settings: dict, model: type[Model]) -> None:
    always(model, 200, spoken("Yes", [[("Yes", 0.3), ("No", 0.1), ("It", 0.2)]]))
    assert np.isnan(asked(settings, 1).values).all()
    assert np.allclose(asked({**settings, "min_mass": 0.4}, 1).values, 0.75)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Yes, the person smiles.", 1),
        ("**Yes**", 1),
        ("No.", 0),
        ("No one wears any.", 0),
        ("`no`", 0),
        ("“No” – none.", 0),
        ("<think>No? The mouth ...</think>\n\nYes", 1),
        ([{"type": "text", "text": "Yes"}, {"type": "text", "text": ", it does"}], 1),
        ([{"type": "thinking", "text": "No ..."}, {"type": "text", "text": "Yes"}], 1),
        ("Not sure", math.nan),
        ("Nobody", math.nan),
        ("None", math.nan),
        ("No idea.", math.nan),
        ("yesterday", math.nan),
        ("Yes/No", math.nan),
        ("Yes and no", math.nan),
        ("I would say yes", math.nan),
        (None, math.nan),
        ([], math.nan),
    ],
)
def test_first_words(settings: dict, model: type[Model], text: Any, value: float) -> None:
    always(model, 200, spoken(text))
    assert np.allclose(asked({**settings, "logprobs": False}, 1).values, value, equal_nan=True)


@pytest.mark.parametrize("missing", [None, {"content": None}, {"content": []}, {}, "no such key"])
def test_scores_of_two_kinds_are_never_mixed(settings: dict, model: type[Model], missing: Any) -> None:
    """Of the first of two pictures the server gives no log-probabilities."""

    def answer(request: dict) -> tuple[int, Any]:
        body = spoken("Yes", [[("Yes", 0.6), ("No", 0.2)]])
        if math.isclose(red_share(request), dark):
            body["choices"][0]["logprobs"] = missing
            if missing == "no such key":
                del body["choices"][0]["logprobs"]
        return 200, body

    dark = float(np.asarray(drawn_faces(1)[0], float)[:, :, 0].mean() / 255)
    model.answer = staticmethod(answer)
    found = asked(settings)
    assert np.allclose(found.values, [[math.nan] * 2, [0.75] * 2], equal_nan=True)
    assert found.reasons == ("no_answer", None)
    assert found.details[0] == "the answer has no log-probabilities"
    assert np.array_equal(asked({**settings, "logprobs": False}).values, np.ones((2, 2)))


@pytest.mark.parametrize(
    ("logprobs", "word"), [("auto", "first words"), (False, "first words"), (True, "log-probabilities")]
)
def test_the_record_says_how_answers_were_scored(
    settings: dict,
    model: type[Model],
    tmp_path: Path,
    logprobs: Any,
    word: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model.answer = staticmethod(lambda request: (200, spoken("Yes" if red_share(request) > 0.5 else "No")))
    pairs = pairs_folder(tmp_path / "data", identities=1)
    given = {"base_url": settings["base_url"], "concepts": '["smile"]', "logprobs": str(logprobs).lower()}
    done = call(
        capsys,
        *("audit", pairs, "--target", "vlm:tiny", "--out", tmp_path / "run", "--max-failures", 1),
        *(part for name, value in given.items() for part in ("--set", f"{name}={value}")),
    )
    record = record_of(tmp_path / "run")
    assert record["targets"][0]["settings"]["scores"] == word
    assert record["targets"][0]["settings"]["min_mass"] == 0.5
    answered = sum(cell["n_pairs"] for cell in record["cells"])
    assert (answered == 0) is (logprobs is True), done.err


def test_a_resumed_run_scores_as_the_run_that_was_stopped(
    settings: dict, model: type[Model], tmp_path: Path
) -> None:
    """The server begins to give log-probabilities between the two."""
    pictures = [PictureRef(str(n), lambda n=n: encoded(drawn_faces()[n])) for n in range(5)]
    always(model, 200, spoken("Yes"))
    loaded = load_target("vlm:tiny", settings)
    score_pictures(loaded, pictures[:2], tmp_path, show_progress=False)
    loaded.close()
    always(model, 200, spoken("Yes", [[("Yes", 0.6), ("No", 0.2)]]))
    loaded = load_target("vlm:tiny", settings)
    seen = score_pictures(loaded, pictures, tmp_path, show_progress=False, resume=True)
    loaded.close()
    assert [item.values.tolist() for item in seen.values()] == [[1.0, 1.0]] * 5
    assert loaded.settled_card().settings["scores"] == "first words"


def encoded(image: Image.Image) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


PICTURE_FAULTS: dict[str, tuple[int, Any, str]] = {
    "openai filter": (400, {"error": {"message": "x", "code": "content_filter"}}, "filter refused"),
    "azure filter": (
        400,
        {"error": {"message": "x", "code": "x", "innererror": {"code": "ResponsibleAIPolicyViolation"}}},
        "filter refused",
    ),
    "qwen filter": (400, {"error": {"message": "x", "code": "data_inspection_failed"}}, "filter refused"),
    "gateway filter": (403, {"error": {"message": "Input was flagged", "code": 403}}, "filter refused"),
    "filter in the reply": (
        200,
        {"choices": [{"message": {"content": None}, "finish_reason": "content_filter"}]},
        "filter refused",
    ),
    "too small": (400, {"error": {"message": "Image too small: 28 px", "param": "messages"}}, "refused it"),
    "flat body": (400, {"object": "error", "message": "cannot identify image", "code": 400}, "refused it"),
    "too long": (
        400,
        {"error": {"message": "'max_tokens' is too large: context length is 2048", "param": "max_tokens"}},
        "refused it",
    ),
    "validation": (422, {"error": {"message": "Input validation error: image"}}, "refused it"),
    "too large": (413, {"error": {"message": "entity too large"}}, "refused it"),
    "crash": (500, {"error": {"message": "CUDA error"}}, "failed on it"),
    "proxy": (502, "<html>", "failed on it"),
    "no json": (200, "<html>", "failed on it"),
    "no choices": (200, {"choices": []}, "failed on it"),
    "refusal": (200, spoken(None, refusal="I can't help with that."), "refused to answer"),
}


@pytest.mark.parametrize(("status", "body", "words"), PICTURE_FAULTS.values(), ids=PICTURE_FAULTS)
def test_a_picture_that_the_server_refuses_is_counted(
    settings: dict, model: type[Model], status: int, body: Any, words: str
) -> None:
    dark = float(np.asarray(drawn_faces(1)[0], float)[:, :, 0].mean() / 255)
    model.answer = staticmethod(
        lambda request: (status, body) if math.isclose(red_share(request), dark) else None
    )
    found = asked(settings)
    assert found.reasons == ("no_answer", None)
    assert words in found.details[0]
    assert np.isnan(found.values[0]).all()
    assert not np.isnan(found.values[1]).any()


def test_a_refused_picture_is_a_counted_failure_of_the_run(
    settings: dict, model: type[Model], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = pairs_folder(tmp_path / "data", identities=1)
    with Image.open(tmp_path / "data" / "images" / "WM0-1-glasses.png") as opened:
        share = float(np.asarray(opened, float)[:, :, 0].mean() / 255)
    error = {"error": {"message": "Image too small", "code": "invalid_image"}}
    model.answer = staticmethod(
        lambda request: (400, error) if math.isclose(red_share(request), share) else None
    )
    done = call(
        capsys,
        *("audit", pairs, "--target", "vlm:tiny", "--out", tmp_path / "run", "--max-failures", 0.5),
        *("--set", f"base_url={settings['base_url']}", "--set", 'concepts=["smile"]'),
    )
    assert done.status == 0, done.err
    cells = {cell["group"]: cell for cell in record_of(tmp_path / "run")["cells"]}
    assert cells["WM"]["excluded"] == {"no_answer": 1}
    assert cells["BF"]["excluded"] == {}
    (row,) = pq.read_table(tmp_path / "run" / "failures.parquet").to_pylist()
    assert (row["reason"], row["detail"]) == (
        "no_answer",
        "the target gave no answer: the server refused it",
    )


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        (401, {}, "refuses the key in OPENAI_API_KEY (status 401)"),
        (403, {}, "refuses the key in OPENAI_API_KEY (status 403)"),
        (400, {"code": "invalid_api_key"}, "refuses the key in OPENAI_API_KEY (status 400)"),
        (400, {"message": "API key not valid. Please pass one."}, "refuses the key in OPENAI_API_KEY"),
        (404, {}, "knows no model 'tiny'"),
        (400, {"code": "model_not_found"}, "knows no model 'tiny'"),
        (429, {"code": "insufficient_quota"}, "says the quota is used up"),
        (402, {}, "says the quota is used up"),
    ],
)
def test_a_fault_of_every_request_stops_the_run_and_never_repeats_the_key(
    settings: dict, model: type[Model], status: int, error: dict, words: str
) -> None:
    always(model, status, {"error": {"message": f"Incorrect API key provided: {KEY}", **error}})
    with pytest.raises(InputError) as caught:
        asked(settings, 5)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert len(model.requests) <= 4


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            {
                "message": "Unsupported parameter: 'max_tokens' ... Use 'max_completion_tokens' instead.",
                "param": "max_tokens",
            },
            "refuses 'max_tokens' for model 'tiny'; try --set tokens_parameter=max_completion_tokens",
        ),
        ({"message": "'temperature' does not support 0.0", "param": "temperature"}, "--set temperature=none"),
        ({"message": "top_logprobs must be at most 5, logprobs were asked for"}, "--set top_logprobs=5"),
        ({"message": "You are not allowed to request logprobs"}, "--set logprobs=false"),
        ({"message": "body -> seed: extra fields not permitted"}, "try --set seed=none"),
        ({"message": "unknown field thinking"}, "leave 'thinking' out of extra_body"),
    ],
)
def test_a_refused_parameter_is_named_with_its_setting(
    settings: dict, model: type[Model], error: dict, words: str
) -> None:
    always(model, 400, {"error": error})
    with pytest.raises(InputError, match=re.escape(words)):
        asked({**settings, "extra_body": {"thinking": False}}, 1)


def test_parameters_that_newer_models_want(settings: dict, model: type[Model]) -> None:
    """As a command line gives them."""
    asked(
        {
            **settings,
            "tokens_parameter": "max_completion_tokens",
            "max_tokens": 16,
            "temperature": "none",
            "seed": "none",
            "top_logprobs": 5,
            "extra_body": {"reasoning_effort": "minimal"},
        },
        1,
    )
    sent = {name: value for name, value in model.requests[0].items() if name != "messages"}
    assert sent == {
        "model": "tiny",
        "max_completion_tokens": 16,
        "logprobs": True,
        "top_logprobs": 5,
        "reasoning_effort": "minimal",
    }


def run(target: Any, batches: int) -> None:
    for _ in range(batches):
        target.score(drawn_faces())


def test_a_server_that_fails_on_everything_stops_the_run(settings: dict, model: type[Model]) -> None:
    always(model, 500, {"error": {"message": "oops"}})
    target = load_target("vlm:tiny", settings).target
    with pytest.raises(InputError, match="20 requests in a row failed, the last with server_error"):
        run(target, 20)
    target.close()


def test_the_key_is_in_no_card_and_no_file_of_a_run(
    settings: dict, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = pairs_folder(tmp_path / "data", identities=1)
    given = [f"base_url={settings['base_url']}", 'concepts=["smile"]']
    done = call(
        capsys,
        *("audit", pairs, "--target", "vlm:tiny", "--out", tmp_path / "run"),
        *(part for item in given for part in ("--set", item)),
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
