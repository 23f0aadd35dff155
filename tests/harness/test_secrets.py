"""Keys, tokens and passwords stay where they were given: not in a run's files, not in a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from targets.base.private import is_secret, redacted, redacted_text
from tests.support import call, drawn_pairs

SECRET = "hunter2-correct-horse"  # noqa: S105
TARGET = """
import numpy as np

class Grey:
    concepts = ("grey",)

    def __init__(self, api_key="", fails="", endpoint="", login=None):
        self.card = {"name": "grey", "settings": {"Authorization": f"Bearer {api_key}"}, "source": endpoint}
        self.key, self.fails = api_key, fails
        if fails == "loading":
            raise RuntimeError(f"the server refuses {self.key}")

    def score(self, images):
        if self.fails == "asking":
            raise RuntimeError(f"401 for {self.key} at https://me:pw-of-mine@host.example/a?sig=signature-1")
        return np.array([[np.asarray(image).mean()] for image in images])
"""
HIDDEN = (SECRET, "pw-of-mine", "signature-1")


def spec(folder: Path) -> str:
    (folder / "grey.py").write_text(TARGET, encoding="utf-8")
    return f"{folder / 'grey.py'}:Grey"


def given(fails: str) -> list[str]:
    url = "https://me:pw-of-mine@host.example/a?sig=signature-1"
    pairs = {"api_key": SECRET, "fails": fails, "endpoint": url, "login": f'{{password = "{SECRET}"}}'}
    return [part for name, value in pairs.items() for part in ("--set", f"{name}={value}")]


def test_no_secret_reaches_a_runs_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, run = drawn_pairs(tmp_path), tmp_path / "run"
    result = call(capsys, "audit", table, "--target", spec(tmp_path), "--out", run, *given(""))
    assert result.status == 0, result.err
    assert call(capsys, "report", run).status == 0
    written = {path.name: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert {"record.json", "report.html"} <= written.keys()
    for name, content in written.items():
        assert [secret for secret in HIDDEN if secret.encode() in content] == [], name
    assert not any(secret in result.out + result.err for secret in HIDDEN)
    assert b"host.example/a" in written["record.json"]


@pytest.mark.parametrize("when", ["loading", "asking"])
def test_no_secret_reaches_an_error_line(
    when: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, run = drawn_pairs(tmp_path), tmp_path / "run"
    result = call(capsys, "audit", table, "--target", spec(tmp_path), "--out", run, *given(when))
    assert result.status == 2
    (line,) = result.err.splitlines()
    assert "***" in line
    assert not any(secret in line for secret in HIDDEN)


def test_which_names_are_secret() -> None:
    for name in (
        "token",
        "API_KEY",
        "apiKey",
        "hf_token",
        "password",
        "client_secret",
        "Authorization",
        "key",
    ):
        assert is_secret(name), name
    for name in (
        "max_tokens",
        "tokens_parameter",
        "token_env",
        "api_key_env",
        "monkey",
        "keyboard",
        "tokenizer",
    ):
        assert not is_secret(name), name


def test_messages_that_only_speak_of_keys_stay_as_they_are() -> None:
    for text in ("--set must be key=value, got 'x'", "unexpected token: }", "key 'a.b' is missing",
                 "see https://example.org/a/b"):  # fmt: skip
        assert redacted_text(text) == text
    assert redacted_text("X-Api-Key: abc, user ftp://me@h/x") == "X-Api-Key: ***, user ftp://***@h/x"
    assert redacted({"a": [{"password": 1234, "max_tokens": 4}]}) == {
        "a": [{"password": "***", "max_tokens": 4}]
    }
