"""Whatever a server sends, each face and attribute gets yes, no, or unknown with its reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_builder.detect.vlm_answers import parse_reply
from targets.openai_client import Reply
from tests.support import shipped

# As the corpus says (API-ANSWER): label or reason of "glasses", and of "smile" where it was asked for.
CORPUS = {
    "p1": "yes",
    "p2": "no",
    "p3": "length",
    "p4": "content_filter",
    "p5": "refusal",
    "p6": "refusal",
    "p7": "yes",
    "p8": "yes",
    "p9": "conflict",
    "p10": "empty",
}


def said(content: str | None, *names: str, faces: int = 1, finish: str = "stop") -> list[list[str]]:
    """Label of every name, or the reason where it is unknown, one list a face."""
    answers = parse_reply(Reply(finish, content), names, faces)
    return [[answer.reasons.get(name, answer.labels[name]) for name in names] for answer in answers]


def test_the_corpus() -> None:
    lines = shipped("corpus/tables/scorer_answers.jsonl").read_text(encoding="utf-8").splitlines()
    found = {}
    for line in lines:
        row = json.loads(line)
        reply = Reply(row["finish_reason"], row["content"], row.get("refusal"))
        (answer,) = parse_reply(reply, ["glasses"], 1)
        found[row["custom_id"]] = answer.reasons.get("glasses", answer.labels["glasses"])
    assert found == CORPUS
    p7 = json.loads(lines[6])["content"]
    assert said(p7, "glasses", "smile") == [["yes", "invalid_value"]]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"a": ["Yes", "No"], "b": ["no", "YES"]}', [["yes", "no"], ["no", "yes"]]),
        ('{"a": ["Yes", "No"], "b": ["Unknown", true]}', [["yes", "not_sure"], ["no", "yes"]]),
        ('{"a": ["Yes", "No", "No"], "b": ["No", "No"]}', [["wrong_length", "no"], ["wrong_length", "no"]]),
        ('{"a": ["Yes", "No"]}', [["yes", "missing"], ["no", "missing"]]),
        ('{"a": ["Yes", "No"], "bb": ["No", "No"]}', [["yes", "wrong_name"], ["no", "wrong_name"]]),
        (
            '{"a": ["Yes", "No"], "A": ["Yes", "Yes"], "b": "No"}',
            [["yes", "wrong_length"], ["conflict", "wrong_length"]],
        ),
        ('{"a": [1, null], "b": [{}, ["Yes"]]}', [["invalid_value"] * 2] * 2),
        ('{"a": ["Yes", "No"', [["invalid_json"] * 2] * 2),
        ('["Yes", "No"]', [["invalid_json"] * 2] * 2),
        ('"Yes"', [["invalid_json"] * 2] * 2),
        ("[" * 100_000, [["invalid_json"] * 2] * 2),
        ("Both wear glasses.", [["prose"] * 2] * 2),
        ("I can't help with that.", [["refusal"] * 2] * 2),
        ('```\n{"A": ["Yes", "No"], "b": ["No", "No"]}\n```', [["yes", "no"], ["no", "no"]]),
    ],
)
def test_two_faces(content: str, expected: list[list[str]]) -> None:
    assert said(content, "a", "b", faces=2) == expected


def test_names_may_be_written_otherwise() -> None:
    assert said('{"Red Lipstick": "Yes."}', "red_lipstick") == [["yes"]]
    assert said('{"red-lipstick": "N"}', "red_lipstick") == [["no"]]


def test_a_later_answer_fills_only_what_is_open() -> None:
    first = parse_reply(Reply("stop", '{"a": "Yes", "b": "?"}'), ["a", "b"], 1)[0]
    second = parse_reply(Reply("stop", '{"a": "No", "b": "No"}'), ["a", "b"], 1)[0]
    both = first.filled(second)
    assert (both.labels, both.reasons) == ({"a": "yes", "b": "no"}, {})
    assert first.worth_asking_again
    assert not both.worth_asking_again


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5) | st.sampled_from(["Yes", "No"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "A", "x"]), inner),
    max_leaves=8,
)


@given(
    st.one_of(st.none(), st.text(), json_values.map(json.dumps)),
    st.sampled_from(["stop", "length", "content_filter", None]),
    st.one_of(st.none(), st.text()),
    st.integers(1, 4),
)
def test_total_and_never_no_without_a_no(
    content: str | None, finish: str | None, refusal: str | None, faces: int
) -> None:
    answers = parse_reply(Reply(finish, content, refusal), ["a", "b"], faces)
    assert len(answers) == faces
    for answer in answers:
        assert set(answer.labels) == {"a", "b"}
        assert set(answer.reasons) == {name for name, label in answer.labels.items() if label == "unknown"}
        if "no" in answer.labels.values():
            assert content is not None
            assert any(word in content.casefold() for word in ("no", "n", "false", "absent"))
