"""The vision-language detector against a real server that misbehaves: right labels, no pair lost, no leak."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dataset_builder.detect.attributes import attribute_detector, rule_order
from dataset_builder.detect.evidence import Candidate, Detectors, gather
from dataset_builder.detect.labels import FacePair
from dataset_builder.detect.settings import Vlm
from dataset_builder.filter import FilterSettings, judge
from dataset_builder.schema.verdict import Evidence
from targets.base.errors import InputError
from targets.scoring import PictureRef
from tests.coded import PAPER, PRESENCE, coded_face, drawn, labels, write_candidates, write_recipe
from tests.openai_server import ALWAYS, ONCE, Running, running
from tests.support import FACEDELTA, ROOT, call, command

pytestmark = pytest.mark.slow

pytest.importorskip("openai", reason="the extra 'vlm' is not installed")

KEY = "sk-SECRET-0123456789"
PERIOD = 101


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def vlm(server: Running | None, **more: Any) -> Vlm:
    fields = {
        "model": "test-vlm",
        "base_url": server.base_url if server else "http://127.0.0.1:9/v1",
        "timeout": 60.0,
        "backoff": 0.01,
        "answer_retries": 2,
        "poll_seconds": 0.05,
        "price_input": 2.5,
        "price_output": 10.0,
        **more,
    }
    return Vlm(method="vlm", **fields)


def faces(count: int, first: int = 0) -> list[PictureRef]:
    """Faces that carry their number and, by it, different labels."""
    return [
        PictureRef(f"face-{number}", lambda n=number: drawn(n, truth(n)))
        for number in range(first, first + count)
    ]


def truth(number: int) -> dict[str, Any]:
    return labels(*(name for place, name in enumerate(PRESENCE) if (number * 7 + place * 3) % 5 == 0))


def detector(settings: Vlm, folder: Path) -> Any:
    found = attribute_detector(settings, PAPER, folder, folder / "work", show_progress=False)
    assert found is not None
    return found


def labels_of(settings: Vlm, folder: Path, asked: Sequence[PictureRef]) -> dict[str, Any]:
    return dict(detector(settings, folder).detector.labels_of(asked))


def expected(number: int) -> dict[str, str]:
    """Label of every attribute, or why it is unknown, under the server's faults."""
    kind = ALWAYS.get(number % PERIOD)
    whole = {
        "refusal": "refusal",
        "refusal_prose": "refusal",
        "content_filter": "content_filter",
        "filtered_400": "content_filter",
        "prose": "prose",
    }.get(kind or "")
    known: dict[str, str] = {name: truth(number)[name] for name in PRESENCE}
    if whole:
        return dict.fromkeys(PRESENCE, whole)
    if kind == "duplicate":
        return {**known, PRESENCE[0]: "conflict"}
    if kind == "wrong_name":
        return {**known, PRESENCE[1]: "wrong_name"}
    return known


def plain(number: int) -> dict[str, str]:
    """What a server without faults says."""
    return {name: truth(number)[name] for name in PRESENCE}


def said(found: Any) -> dict[str, str]:
    return {name: found.reasons.get(name, label) for name, label in found.labels.items()}


def thousand_pairs() -> list[Candidate]:
    """50 source faces of 8 groups, 20 transformed ones each; every fault is met, on both sides."""
    groups = list(PAPER.groups)
    found = []
    for source in range(50):
        before = source * 21
        for edit in range(20):
            attribute = PRESENCE[edit % len(PRESENCE)]
            after = before + 1 + edit
            refs = [
                PictureRef(f"face-{number}", lambda n=number: drawn(n, truth(n)))
                for number in (before, after)
            ]
            found.append(
                Candidate(attribute, refs[0], refs[1], {}, {}, 30.0, 31.0, "no", group=groups[source % 8])
            )
    return found


def number_of(ref: PictureRef) -> int:
    return int(ref.name.removeprefix("face-"))


def test_a_thousand_pairs_and_every_fault(tmp_path: Path) -> None:
    candidates = thousand_pairs()
    met = {number_of(ref) % PERIOD for item in candidates for ref in (item.source, item.transformed)}
    assert met >= set(ALWAYS) | set(ONCE)
    with running(period=PERIOD, sleep=4.0) as server:
        settings = vlm(server, timeout=3.0)
        detectors = Detectors(
            attributes=detector(settings, tmp_path),
            order=rule_order(settings, PAPER, FilterSettings(), audit_sample=1.0),
        )
        evidence, _ = gather(candidates, detectors, tmp_path, show_progress=False)
        stats = server.stats()
    assert len(evidence) == 1000
    for item, pair in zip(evidence, candidates, strict=True):
        assert item.complete
        for side, ref, found in (
            ("source", pair.source, item.source_labels),
            ("transformed", pair.transformed, item.transformed_labels),
        ):
            wanted = expected(number_of(ref))
            got = {name: item.label_reasons.get(f"{side} {name}", found[name]) for name in PRESENCE}
            assert got == wanted, (ref.name, side)
            assert set(found.values()) <= {"yes", "no", "unknown"}
    assert stats["keys"] == [KEY]
    summary = "\n".join(detectors.attributes.summary()) if detectors.attributes else ""
    assert "refusal" in summary
    assert KEY not in summary + repr(evidence[0]) + repr(detectors)
    kept = "".join(path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.json"))
    assert KEY not in kept


def test_the_second_time_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = faces(101)
    with running(period=PERIOD, sleep=4.0) as server:
        settings = vlm(server, timeout=3.0)
        first = labels_of(settings, tmp_path, asked)
        before = server.stats()["requests"]
        assert labels_of(settings, tmp_path, asked) == first
        assert server.stats()["requests"] == before
    # Without a server and without a key: everything is there.
    monkeypatch.delenv("OPENAI_API_KEY")
    assert labels_of(settings, tmp_path, asked) == first


@pytest.mark.parametrize(
    "change", [{"model": "other"}, {"temperature": 0.5}, {"phrases": {"glasses": "spectacles"}}]
)
def test_another_question_is_asked_anew(tmp_path: Path, change: dict[str, Any]) -> None:
    with running() as server:
        labels_of(vlm(server), tmp_path, faces(4))
        labels_of(vlm(server, concurrency=2, retries=1), tmp_path, faces(4))
        assert server.stats()["requests"] == 1
        labels_of(vlm(server, **change), tmp_path, faces(4))
        assert server.stats()["requests"] == 2


@pytest.mark.parametrize(("form", "requests"), [("ours", 3), ("single", 3 * len(PRESENCE))])
def test_forms_that_look_at_faces(tmp_path: Path, form: str, requests: int) -> None:
    asked = faces(9)
    with running() as server:
        found = labels_of(vlm(server, form=form), tmp_path, [*asked, *asked])
        assert server.stats()["requests"] == requests
    assert {name: said(item) for name, item in found.items()} == {
        ref.name: plain(number_of(ref)) for ref in asked
    }


def test_the_papers_form_shows_each_pair(tmp_path: Path) -> None:
    asked = faces(4)
    pairs = [FacePair("glasses", "WM", asked[0], other) for other in asked[1:]]
    with running() as server:
        found = detector(vlm(server, form="paper"), tmp_path).label_pairs(pairs, lambda _, __: True)
        stats = server.stats()
    assert (stats["requests"], stats["faces"]) == (3, 6)
    for pair, answer in zip(pairs, found, strict=True):
        assert said(answer.source) == plain(number_of(pair.source))
        assert said(answer.transformed) == plain(number_of(pair.transformed))


def test_few_shot_examples_come_first_and_are_balanced(tmp_path: Path) -> None:
    folder = tmp_path / "examples"
    folder.mkdir()
    rows = ["picture,attribute,label"]
    for number, present in enumerate(
        [("glasses",), ("glasses", "smile"), (), ("smile",), (), tuple(PRESENCE)]
    ):
        (folder / f"{number}.png").write_bytes(drawn(500 + number, labels(*present)))
        rows += [f"{number}.png,{name},{'yes' if name in present else 'no'}" for name in PRESENCE]
    (folder / "labels.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    from dataset_builder.detect.vlm_examples import choose_examples, load_examples

    examples = load_examples(folder)
    four = choose_examples(examples, ["glasses"], 4)
    assert [item.labels["glasses"] for item in four] == ["yes", "yes", "no", "no"]
    with running() as server:
        settings = vlm(server, form="single", shots=2, examples="examples")
        found = labels_of(settings, tmp_path, faces(4))
        assert said(found["face-3"]) == plain(3)
    with pytest.raises(InputError, match="4 examples needed for scarf"):
        choose_examples(examples, ["scarf"], 4)
    (folder / "labels.csv").write_text("picture,attribute,label\n0.png,glasses,maybe\n", encoding="utf-8")
    with pytest.raises(InputError, match="row 2: a label must be yes, no or unknown, got 'maybe'"):
        load_examples(folder)


def test_the_budget_is_not_passed_and_what_was_bought_is_kept(tmp_path: Path) -> None:
    asked = faces(200)
    with running() as server:
        with pytest.raises(InputError, match="the next request could pass the budget of") as stop:
            labels_of(vlm(server, budget=0.1), tmp_path, asked)
        tokens = server.stats()["tokens"]
        spent = (tokens[0] * 2.5 + tokens[1] * 10) / 1e6
        assert 0.05 < spent <= 0.1
        assert f"${spent:.4f} is spent" in str(stop.value)
        # The same budget again buys nothing more; a larger one goes on where it was.
        before = server.stats()["requests"]
        with pytest.raises(InputError, match="could pass the budget"):
            labels_of(vlm(server, budget=0.1), tmp_path, asked)
        assert server.stats()["requests"] == before
        found = labels_of(vlm(server, budget=10), tmp_path, asked)
        stats = server.stats()
    assert (stats["requests"], stats["repeated"]) == (50, 0)
    assert said(found["face-150"]) == plain(150)


def test_a_budget_holds_where_the_estimate_is_too_low(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dataset_builder.detect.vlm_prompt.CHARACTERS_PER_TOKEN", 30)
    with running() as server:
        with pytest.raises(InputError, match="could pass"):
            labels_of(vlm(server, budget=0.1, concurrency=1, max_tokens=500), tmp_path, faces(200))
        tokens = server.stats()["tokens"]
    assert (tokens[0] * 2.5 + tokens[1] * 10) / 1e6 <= 0.1


OTHER_WORDS: tuple[dict[str, str], ...] = ({}, {"glasses": "spectacles"}, {"glasses": "specs"})


def cost(server: Running, price_input: float = 2.5, price_output: float = 10.0) -> float:
    """Dollars by the server's own count."""
    tokens = server.stats()["tokens"]
    return float(tokens[0] * price_input + tokens[1] * price_output) / 1e6


def test_a_budget_is_for_all_questions_in_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coded_candidates(tmp_path)
    arguments = ("--out", tmp_path / "out", "--candidates", tmp_path, "--no-progress", "--budget", 0.05)
    with running() as server:
        for words in OTHER_WORDS:
            listed = ", ".join(f'{name} = "{text}"' for name, text in words.items())
            text = BUILD.format(url=server.base_url, form="ours", audit=0) + f"phrases = {{ {listed} }}\n"
            result = call(capsys, "build", write_recipe(tmp_path, EDITS, text), *arguments)
            assert result.status == 2
            assert f"${cost(server):.4f} is spent" in result.err
        assert 0.02 < cost(server) <= 0.05


def test_several_detectors_in_one_folder_share_the_budget(tmp_path: Path) -> None:
    with running() as server:
        settings = [vlm(server, budget=0.1, phrases=words) for words in OTHER_WORDS]
        # All are opened before one of them asks, as a choice of detectors does.
        for found in [detector(item, tmp_path) for item in settings]:
            with pytest.raises(InputError, match="could pass the budget"):
                found.detector.labels_of(faces(200))
        assert 0.05 < cost(server) <= 0.1


def test_an_answer_costs_what_was_paid_for_it(tmp_path: Path) -> None:
    with running() as server:
        dear = vlm(server, price_input=25.0, price_output=100.0)
        labels_of(dear, tmp_path, faces(40))
        dollars = cost(server, 25.0, 100.0)
        cheap = detector(vlm(server), tmp_path)
        assert cheap.summary()[1].endswith(f"out, ${dollars:.4f}")
        others = detector(vlm(server, phrases=OTHER_WORDS[1], budget=5), tmp_path)
        beside = f"$0.0000 of a budget of $5, beside ${dollars:.4f} for other questions in this folder"
        assert others.summary()[1].endswith(beside)
        # Answers kept without their dollars count at today's prices.
        for path in kept_answers(tmp_path):
            kept = json.loads(path.read_text(encoding="utf-8"))
            del kept["dollars"]
            path.write_text(json.dumps(kept), encoding="utf-8")
        found = detector(vlm(server, budget=5), tmp_path)
        assert found.summary()[1].endswith(f"${cost(server):.4f} of a budget of $5")
        found.detector.labels_of(faces(40))
        assert server.stats()["requests"] == 10


@pytest.mark.parametrize(
    ("usage", "mode"),
    [
        (None, "online"),
        (None, "batch"),
        ({"completion_tokens": None}, "online"),
        ({"completion_tokens": -7}, "online"),
        ({"completion_tokens": "12"}, "online"),
    ],
)
def test_a_budget_holds_where_the_server_does_not_count(tmp_path: Path, usage: Any, mode: str) -> None:
    with running(usage=usage) as server:
        settings = vlm(server, price_output=1000.0, budget=2, mode=mode, batch_discount=1.0)
        with pytest.raises(InputError, match="could pass the budget"):
            labels_of(settings, tmp_path, faces(200))
        before = server.stats()["requests"]
        with pytest.raises(InputError, match="could pass the budget"):
            labels_of(settings, tmp_path, faces(200))
        assert 0 < cost(server, 2.5, 1000.0) <= 2
        if usage is None:
            assert server.stats()["requests"] == before == 1
            kept = json.loads(kept_answers(tmp_path)[0].read_text(encoding="utf-8"))
            assert kept["tokens_out"] == settings.max_tokens
            assert kept["tokens_in"] >= server.stats()["tokens"][0]


@pytest.mark.parametrize("digits", [8, 400, 5000])
@pytest.mark.parametrize("mode", ["online", "batch"])
def test_an_absurd_count_is_no_count(tmp_path: Path, digits: int, mode: str) -> None:
    with running(digits=digits) as server:
        settings = vlm(server, budget=5, mode=mode)
        found = labels_of(settings, tmp_path, faces(8))
        again = detector(settings, tmp_path)
        assert again.detector.labels_of(faces(8)) == found
        assert server.stats()["requests"] == 2
        true = server.stats()["tokens"][0]
    assert said(found["face-5"]) == plain(5)
    counted = int(again.summary()[1].split()[0].replace(",", ""))
    assert true <= counted < 2 * true


def kept_answers(folder: Path) -> list[Path]:
    return sorted((folder / "work" / "answers").glob("*/*/*.json"))


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "refuses the key in OPENAI_API_KEY"),
        (404, "knows no model 'test-vlm'"),
        (422, "answers 422"),
        (500, "got no answer (server_error 4)"),
        (429, "got no answer (rate_limit 4)"),
        (400, "got no answer (rejected 4)"),
    ],
)
def test_lasting_faults_are_one_line_without_the_key(tmp_path: Path, status: int, words: str) -> None:
    with running(status=status) as server, pytest.raises(InputError) as stop:
        labels_of(vlm(server, retries=1), tmp_path, faces(4))
    assert words in str(stop.value)
    assert KEY not in str(stop.value)
    assert "\n" not in str(stop.value)
    error: BaseException | None = stop.value
    while error is not None:
        assert KEY not in f"{error!r} {vars(error)}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.mark.parametrize("mode", ["online", "batch"])
@pytest.mark.parametrize(
    ("parameter", "words", "mended"),
    [
        (
            "max_tokens",
            "set tokens_parameter = 'max_completion_tokens'",
            {"tokens_parameter": "max_completion_tokens"},
        ),
        ("temperature", "set temperature = 'none'", {"temperature": "none"}),
        ("response_format", "set strict_schema = false", None),
        ("top_k", "leave 'top_k' out of extra_body", {"extra_body": {"top_p": 1}}),
    ],
)
def test_a_refused_parameter_is_named_with_its_setting(
    tmp_path: Path, mode: str, parameter: str, words: str, mended: dict[str, Any] | None
) -> None:
    more = {"extra_body": {"top_k": 1}} if parameter == "top_k" else {}
    with running(refuse=parameter) as server:
        with pytest.raises(InputError) as stop:
            labels_of(vlm(server, mode=mode, **more), tmp_path, faces(20))
        assert f"refuses '{parameter}' for model 'test-vlm'; {words}" in str(stop.value)
        if mended is not None:
            found = labels_of(vlm(server, mode=mode, **mended), tmp_path, faces(20))
            assert said(found["face-7"]) == plain(7)


def test_a_server_that_is_not_there_stops_the_run_early(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"2\d requests in a row failed, the last with connection"):
        labels_of(vlm(None, retries=0, concurrency=2), tmp_path, faces(400))


@pytest.mark.parametrize(
    ("key", "words"), [("", "must hold the server's key"), ("sk-\x07", "printable ASCII")]
)
def test_a_key_that_is_none(tmp_path: Path, key: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(InputError, match=words) as stop:
        labels_of(vlm(None, base_url=None), tmp_path, faces(1))
    assert "sk-" not in str(stop.value)


def test_a_line_end_after_the_key_does_not_spill_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    with running() as server:
        labels_of(vlm(server), tmp_path, faces(1))
        assert server.stats()["keys"] == [KEY]


def test_the_batch_api_gives_the_same_labels_for_half_the_price(tmp_path: Path) -> None:
    asked = faces(101)
    with running(period=PERIOD, sleep=0.0) as server:
        online = labels_of(vlm(server), tmp_path / "online", asked)
    with running(period=PERIOD, sleep=0.0) as server:
        settings = vlm(server, mode="batch", batch_requests=10, max_failures=0.5)
        found = labels_of(settings, tmp_path / "batch", asked)
        again = labels_of(settings, tmp_path / "batch", asked)
        assert server.stats()["batches"] >= 3
    # One face's own question fails for once: it has no result in the batch, keeps what the common answer left
    # open, and is asked again by the next run.
    assert {name for name in online if found[name] != online[name]} == {"face-21"}
    assert "no" not in found["face-21"].labels.values()
    assert again == online


def test_a_batch_stays_within_the_budget(tmp_path: Path) -> None:
    with running() as server:
        with pytest.raises(InputError, match="could pass the budget"):
            labels_of(vlm(server, mode="batch", budget=0.1), tmp_path, faces(200))
        tokens = server.stats()["tokens"]
    assert 0.02 < (tokens[0] * 1.25 + tokens[1] * 5) / 1e6 <= 0.1


def test_a_batch_under_way_counts_for_other_questions(tmp_path: Path) -> None:
    with running() as server:
        first = vlm(server, mode="batch", budget=0.1, poll_seconds=600)
        code = f"""
from pathlib import Path
from tests.dataset_builder.detect.test_vlm import Vlm, faces, labels_of
labels_of(Vlm.model_validate_json({first.model_dump_json()!r}), Path({str(tmp_path)!r}), faces(200))
"""
        with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) as process:
            while process.poll() is None and not server.stats()["batches"]:
                time.sleep(0.05)
            process.kill()
        before = server.stats()["requests"]
        with pytest.raises(InputError, match="could pass the budget"):
            labels_of(vlm(server, budget=0.1, phrases=OTHER_WORDS[1]), tmp_path, faces(200))
        assert server.stats()["requests"] == before
        with pytest.raises(InputError, match="could pass the budget"):
            labels_of(vlm(server, mode="batch", budget=0.1), tmp_path, faces(200))
        assert 0.02 < cost(server, 1.25, 5.0) <= 0.1


BUILD = """
[detect]
audit_sample = {audit}

[detect.attributes]
method = "vlm"
model = "test-vlm"
base_url = "{url}"
form = "{form}"
timeout = 60.0
backoff = 0.01
price_input = 2.5
price_output = 10.0
concurrency = 4
"""
EDITS = ("glasses", "smile", "scarf", "blue_hair", "old")


def coded_candidates(folder: Path, identities: int = 24) -> None:
    """Three identities a group; some edits fail, some sources have the attribute, some move the age."""
    sources, edits = [], []
    number = 0
    groups = list(PAPER.groups)
    chance = random.Random(3)
    for identity in range(identities):
        group = groups[identity % 8]
        before = ("smile",) if identity % 6 == 0 else ()
        sources.append(coded_face(number, group, f"{group}-{identity}", labels(*before)))
        number += 1
        for attribute in EDITS:
            after = {*before, attribute} if chance.random() < 0.8 else set(before)
            if chance.random() < 0.1:
                after |= {"curly_hair"}
            age = 55.0 if attribute == "old" else 30.0 + 12 * (chance.random() < 0.2)
            distorted = "yes" if chance.random() < 0.1 else "no"
            face = coded_face(
                number, group, f"{group}-{identity}", labels(*after - {"old"}), age=age, distorted=distorted
            )
            edits.append((identity, attribute, face))
            number += 1
    write_candidates(folder, sources, iter(edits))


def verdicts(dataset: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(dataset / "verdicts").to_pylist())


def test_a_build_killed_while_it_waits_asks_nothing_twice(tmp_path: Path) -> None:
    coded_candidates(tmp_path)
    with running(hang_after=12) as server:
        path = write_recipe(tmp_path, EDITS, BUILD.format(url=server.base_url, form="ours", audit=0))
        arguments = ["build", path, "--out", tmp_path / "out", "--candidates", tmp_path, "--no-progress"]
        process = subprocess.Popen([str(FACEDELTA), *map(str, arguments)], stderr=subprocess.DEVNULL)
        answers = tmp_path / "out" / ".build" / "answers"
        # Until every answer that was given is on disk; all further requests hang.
        while process.poll() is None and len(list(answers.glob("*/*/*.json"))) < 12:
            time.sleep(0.05)
        kept = {file.name for file in answers.glob("*/*/*.json")}
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert len(kept) >= 12
        before = server.stats()
    with running() as server:
        text = path.read_text(encoding="utf-8")
        # A server at another address is another model to the cache: its folder is renamed for the test.
        (found,) = [folder for folder in answers.iterdir() if folder.is_dir()]
        settings = json.loads((found / "question.json").read_text(encoding="utf-8"))
        path.write_text(text.replace(settings["base_url"], server.base_url), encoding="utf-8")
        from targets.base.hashing import settings_digest

        found.rename(answers / settings_digest({**settings, "base_url": server.base_url})[:16])
        result = command(*arguments)
        assert result.status == 0, result.err
        after = server.stats()
        rebuilt = command(*arguments)
        assert rebuilt.status == 0
        assert server.stats()["requests"] == after["requests"]
    with running() as server:
        path.write_text(text.replace(settings["base_url"], server.base_url), encoding="utf-8")
        calm = [*arguments[:3], tmp_path / "calm", *arguments[4:]]
        assert command(*calm).status == 0
        undisturbed = server.stats()
    assert before["answered"] + after["answered"] == undisturbed["answered"]
    assert [{**row} for row in verdicts(tmp_path / "out")] == verdicts(tmp_path / "calm")
    assert KEY not in result.out + result.err


def changed(place: str, value: Any) -> Any:
    """A kept answer with another value at a place such as answers.0.0.labels; without it if that is None."""

    def change(kept: Any) -> Any:
        *path, last = [int(part) if part.isdigit() else part for part in place.split(".")]
        inner = kept
        for part in path:
            inner = inner[part]
        if value is None:
            del inner[last]
        else:
            inner[last] = value
        return kept

    return change


MISSHAPEN: dict[str, tuple[Any, str]] = {
    "a list": (lambda kept: [kept], "must be one JSON object, got list"),
    "no units": (changed("units", []), "'units'"),
    "units a number": (changed("units", 3), "'units'"),
    "no count": (changed("tokens_in", None), "key 'tokens_in' is missing"),
    "absurd count": (changed("tokens_in", 10**400), "'tokens_in'"),
    "count a text": (changed("tokens_out", "many"), "'tokens_out'"),
    "infinite dollars": (changed("dollars", float("inf")), "'dollars'"),
    "attempt a text": (changed("attempt", "first"), "'attempt'"),
    "too few answers": (changed("answers.0", None), "'answers': must hold one list a unit"),
    "two faces of one": (
        lambda kept: changed("answers.0", kept["answers"][0] * 2)(kept),
        "one answer a face",
    ),
    "labels a list": (changed("answers.0.0.labels", ["yes"]), "'answers.0.0.labels'"),
    "no label": (changed("answers.0.0.labels.smile", "perhaps"), "'answers.0.0.labels.smile'"),
    "a label missing": (changed("answers.0.0.labels.smile", None), "'answers' must label"),
    "a reason too many": (changed("answers.0.0.reasons", {"smile": "empty"}), "a reason for each unknown"),
    "a key too many": (changed("tokens", 3), "unknown key 'tokens'"),
}


def test_a_misshapen_kept_answer_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coded_candidates(tmp_path, 8)
    arguments = ("--out", tmp_path / "out", "--candidates", tmp_path, "--no-progress")
    with running() as server:
        text = BUILD.format(url=server.base_url, form="ours", audit=0)
        path = write_recipe(tmp_path, EDITS, text)
        assert call(capsys, "build", path, *arguments).status == 0
        kept = sorted((tmp_path / "out" / ".build" / "answers").glob("*/*/*.json"))[0]
        good = kept.read_text(encoding="utf-8")
        for name, (change, words) in MISSHAPEN.items():
            kept.write_text(json.dumps(change(json.loads(good))), encoding="utf-8")
            result = call(capsys, "build", path, *arguments)
            assert (result.status, result.err.count("\n")) == (2, 1), (name, result.err)
            assert str(kept) in result.err
            assert words in result.err, name
            assert result.err.endswith("delete that file, and what it answers is asked again\n")
        for text, words in (("{\n", "line 2 column 1"), ("[" * 200_000, "must be JSON")):
            kept.write_text(text, encoding="utf-8")
            result = call(capsys, "build", path, *arguments)
            assert (result.status, result.err.count("\n")) == (2, 1)
            assert words in result.err
        kept.unlink()
        assert call(capsys, "build", path, *arguments).status == 0
        assert kept.read_text(encoding="utf-8") == good


def test_a_misshapen_answer_to_other_questions_stops_a_budget(tmp_path: Path) -> None:
    with running() as server:
        labels_of(vlm(server), tmp_path, faces(4))
        (kept,) = kept_answers(tmp_path)
        kept.write_text("{}", encoding="utf-8")
        other = vlm(server, phrases=OTHER_WORDS[1])
        labels_of(other, tmp_path, faces(4))
        with pytest.raises(InputError, match=rf"{kept.name}: key 'units' is missing; delete that file"):
            labels_of(other.model_copy(update={"budget": 5.0}), tmp_path, faces(4))


def test_a_misshapen_batch_under_way_is_one_line(tmp_path: Path) -> None:
    state = tmp_path / "work" / "answers" / "batches" / "0.json"
    state.parent.mkdir(parents=True)
    state.write_text('{"batch_id": "b", "jobs": {"a": 1}}', encoding="utf-8")
    with running() as server, pytest.raises(InputError, match=r"0\.json: 'jobs\.a'.*delete that file"):
        labels_of(vlm(server, mode="batch"), tmp_path, faces(4))


def test_both_forms_and_the_truth_agree_and_ours_asks_less(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coded_candidates(tmp_path)
    found, stats = {}, {}
    for form in ("paper", "ours"):
        with running() as server:
            path = write_recipe(tmp_path, EDITS, BUILD.format(url=server.base_url, form=form, audit=0))
            out = tmp_path / form
            result = call(capsys, "build", path, "--out", out, "--candidates", tmp_path, "--no-progress")
            assert result.status == 0, result.err
            assert "tokens in" in result.out
            stats[form] = server.stats()
        found[form] = {row["pair_id"]: (row["kept"], row["reason"]) for row in verdicts(out)}
    path = write_recipe(tmp_path, EDITS)
    call(capsys, "build", path, "--out", tmp_path / "truth", "--candidates", tmp_path, "--no-progress")
    truth_verdicts = {row["pair_id"]: (row["kept"], row["reason"]) for row in verdicts(tmp_path / "truth")}
    assert found["paper"] == found["ours"] == truth_verdicts
    assert len({reason for _, reason in truth_verdicts.values()}) >= 6
    assert stats["ours"]["requests"] * 2 <= stats["paper"]["requests"]
    assert sum(stats["ours"]["tokens"]) * 2 <= sum(stats["paper"]["tokens"])


def test_the_audit_sample_goes_through_every_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coded_candidates(tmp_path)
    rows = {}
    for audit in ("0.0", "0.5", "1.0"):
        with running() as server:
            path = write_recipe(tmp_path, EDITS, BUILD.format(url=server.base_url, form="ours", audit=audit))
            out = tmp_path / audit
            call(capsys, "build", path, "--out", out, "--candidates", tmp_path, "--no-progress")
        rows[audit] = {row["pair_id"]: row for row in verdicts(out)}
    for name, row in rows["1.0"].items():
        assert row["complete"]
        assert row["audited"]
        half, none = rows["0.5"][name], rows["0.0"][name]
        assert half["reason"] == none["reason"] == row["reason"]
        assert not none["audited"]
        if half["audited"]:
            assert half["violations"] == row["violations"]
        elif not half["complete"]:
            assert half["violations"] == row["violations"][:1]
    share = sum(row["audited"] for row in rows["0.5"].values()) / len(rows["0.5"])
    assert 0.3 < share < 0.7
    several = [row for row in rows["1.0"].values() if len(row["violations"]) > 1]
    assert several


def test_evidence_that_is_not_complete_has_one_reason() -> None:
    item = Evidence("smile", distorted="yes", source_age=30, transformed_age=60, complete=False)
    assert [violation.reason for violation in judge(item, PAPER).violations] == ["distorted"]


def test_no_budget_without_prices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coded_candidates(tmp_path, 8)
    text = BUILD.format(url="http://127.0.0.1:9/v1", form="ours", audit=0)
    path = write_recipe(tmp_path, EDITS, text.replace("price_input = 2.5\n", ""))
    arguments = ("build", path, "--out", tmp_path / "out", "--candidates", tmp_path)
    result = call(capsys, *arguments, "--budget", 1)
    assert (result.status, result.err.count("\n")) == (2, 1)
    assert "a budget needs price_input and price_output" in result.err
    path = write_recipe(tmp_path, EDITS, text + "budgte = 3\n")
    assert "unknown key" in call(capsys, *arguments).err
    path = write_recipe(tmp_path, EDITS)
    assert "a budget is for the method 'vlm'" in call(capsys, *arguments, "--budget", 1).err
    assert os.environ["OPENAI_API_KEY"] == KEY
