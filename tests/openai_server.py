"""An OpenAI-compatible server that misbehaves, as a process of its own: ``python -m tests.openai_server``.

It reads the faces of ``tests.coded`` out of the pictures it is sent and answers with their labels. What it
does wrong depends on a face's number modulo the period in its settings, so that a test knows what to expect.
Settings are one JSON object on standard input; the port is the first line on standard output.
``GET /stats`` tells what was asked.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from PIL import Image

from dataset_builder.detect.vlm_prompt import picture_tokens as counted_tokens
from tests.coded import PRESENCE, SIDE, read_known, read_strip

ROOT = Path(__file__).resolve().parent.parent
# Faults by the remainder of a face's number. "once": only the first time the very same question comes.
ALWAYS = {
    1: "refusal",
    2: "content_filter",
    3: "prose",
    4: "duplicate",
    5: "wrong_name",
    6: "fenced",
    7: "filtered_400",
    8: "refusal_prose",
}
# These leave the rest of the answer as it is.
PARTIAL = {"duplicate", "wrong_name", "fenced"}
ONCE = {
    11: "prose",
    12: "truncated",
    13: "empty",
    14: "rate_limit",
    15: "status_500",
    16: "sleep",
    17: "html",
    18: "hang_up",
    19: "half_body",
    20: "wrong_length",
    21: "no_choices",
}


class Answers:
    """What the server knows and counts."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.period = settings.get("period", 0)
        self.hang_after = settings.get("hang_after")
        self.status = settings.get("status")
        self.sleep = settings.get("sleep", 1.0)
        self.lose = settings.get("lose", 0)
        # A parameter of requests that it doesn't take.
        self.refuse = settings.get("refuse")
        # Said in place of the true counts; null for no counts at all.
        self.usage = settings.get("usage", {})
        if "digits" in settings:
            self.usage = {"prompt_tokens": 10 ** settings["digits"]}
        truth = settings.get("truth")
        self.truth = json.loads(Path(truth).read_text(encoding="utf-8")) if truth else None
        self.pictures = 0
        self.lock = threading.Lock()
        self.seen: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.requests = 0
        self.faces = 0
        self.keys: set[str] = set()
        self.tokens = [0, 0]
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}

    def fault(self, numbers: list[int], question: str) -> str:
        """The first face's fault that applies to this question, or an empty string."""
        if not self.period:
            return ""
        kinds = [number % self.period for number in numbers]
        with self.lock:
            self.seen[question] += 1
            first = self.seen[question] == 1
        always = [fault for kind, fault in ALWAYS.items() if kind in kinds]
        if always:
            # One refusal spoils a common answer whatever else is in the picture.
            return min(always, key=lambda fault: fault in PARTIAL)
        return next((ONCE[kind] for kind in kinds if kind in ONCE and first), "")

    def reply(self, body: dict[str, Any]) -> tuple[int, Any, str]:
        """Status, body and fault of one chat completion."""
        if self.refuse in body:
            error = {"message": f"Unsupported parameter: '{self.refuse}'", "param": self.refuse}
            return 400, {"error": {**error, "code": "unsupported_parameter"}}, ""
        shown = body["messages"][-1]["content"][1]["image_url"]["url"]
        data = base64.b64decode(shown.split(",", 1)[1])
        faces = read_strip(data) if self.truth is None else read_known(data, self.truth)
        question = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        names = list(body["response_format"]["json_schema"]["schema"]["properties"])
        fault = self.fault([number for number, _ in faces], question)
        columns = {name: [labels[name] for _, labels in faces] for name in names}
        text = json.dumps(columns)
        tokens = (len(json.dumps(body)) - len(shown)) // 4
        tokens += picture_tokens(data)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        finish = "stop"
        if fault == "refusal":
            message.update(content=None, refusal="I can't help with identifying people.")
        elif fault == "content_filter":
            message["content"], finish = None, "content_filter"
        elif fault == "prose":
            message["content"] = "The person in the picture seems to be wearing glasses."
        elif fault == "refusal_prose":
            message["content"] = "I'm sorry, but I cannot assist with that request."
        elif fault == "duplicate":
            name = names[0]
            flipped = ["Yes"] * len(faces)
            message["content"] = (
                f'{{"{name}": {json.dumps(["No"] * len(faces))}, "{name.title()}": {json.dumps(flipped)}, '
                + json.dumps({key: value for key, value in columns.items() if key != name}).removeprefix("{")
            )
        elif fault == "wrong_name":
            message["content"] = text.replace(f'"{names[1]}"', '"spectacles"', 1)
        elif fault == "fenced":
            message["content"] = f"```json\n{text}\n```"
        elif fault == "truncated":
            message["content"], finish = text[: len(text) // 2], "length"
        elif fault == "empty":
            message["content"] = "\n   \n" * 50
        elif fault == "wrong_length":
            message["content"] = json.dumps({name: ["Yes"] * (len(faces) + 1) for name in names})
        with self.lock:
            self.requests += 1
            self.faces += len(faces)
            self.pictures += 1 + sum(turn["role"] == "assistant" for turn in body["messages"])
            self.tokens[0] += tokens
            self.tokens[1] += len(text) // 4
            if not fault or fault in ALWAYS.values():
                self.answered[question] += 1
        if fault == "filtered_400":
            error = {"message": "filtered", "type": "invalid_request_error", "code": "content_filter"}
            return 400, {"error": error}, fault
        if fault == "no_choices":
            return 200, {"id": "x", "choices": []}, fault
        counts = {"prompt_tokens": tokens, "completion_tokens": len(text) // 4}
        usage = None if self.usage is None else {**counts, **self.usage}
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return 200, {"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}, fault


def picture_tokens(data: bytes) -> int:
    """What GPT-4o counts at high detail; the small coded faces count as if they were 512 px wide."""
    width, height = Image.open(io.BytesIO(data)).size
    if height == SIDE:
        width, height = width * 512 // SIDE, 512
    return counted_tokens(width, height)


class Handler(BaseHTTPRequestHandler):
    """Chat completions, files and batches."""

    protocol_version = "HTTP/1.1"
    answers: Answers

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Stay silent."""

    def do_GET(self) -> None:
        known = self.answers
        if self.path == "/stats":
            repeated = sum(count - 1 for count in known.answered.values())
            self.send(
                200,
                {
                    "requests": known.requests,
                    "faces": known.faces,
                    "pictures": known.pictures,
                    "answered": sum(known.answered.values()),
                    "repeated": repeated,
                    "keys": sorted(known.keys),
                    "tokens": known.tokens,
                    "batches": len(known.batches),
                },
            )
        elif known.status:
            self.send(known.status, {"error": {"message": "Incorrect API key", "type": "x", "code": "x"}})
        elif self.path.startswith("/v1/models/"):
            self.send(404, {"error": {"message": "no such page"}})
        elif self.path.startswith("/v1/files/"):
            self.send_bytes(200, known.files[self.path.split("/")[3]])
        elif self.path.split("?")[0] == "/v1/batches":
            self.send(200, {"object": "list", "data": list(known.batches.values()), "has_more": False})
        else:
            batch = known.batches[self.path.split("/")[3]]
            batch["looks"] = batch.get("looks", 0) + 1
            if batch["looks"] > 1:
                self.run_batch(batch)
            self.send(200, batch)

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        known = self.answers
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        known.keys.add(key)
        if known.status:
            text = f"Incorrect API key provided: {key}"
            self.send(known.status, {"error": {"message": text, "type": "x", "code": "x"}})
        elif self.path == "/v1/files":
            name = f"file-{len(known.files)}"
            start = data.index(b"\r\n\r\n", data.index(b"requests.jsonl")) + 4
            known.files[name] = data[start : data.rindex(b"\r\n--", 0, len(data) - 4)]
            self.send(200, {"id": name, "object": "file"})
        elif self.path == "/v1/batches":
            asked = json.loads(data)
            name = f"batch-{len(known.batches)}"
            known.batches[name] = {**asked, "id": name, "object": "batch", "status": "in_progress"}
            self.send(200, known.batches[name])
        else:
            self.chat(json.loads(data))

    def chat(self, body: dict[str, Any]) -> None:
        known = self.answers
        with known.lock:
            hang = known.hang_after is not None and sum(known.answered.values()) >= known.hang_after
        if hang:
            time.sleep(600)
        status, reply, fault = known.reply(body)
        if fault == "sleep":
            time.sleep(known.sleep)
        if fault == "rate_limit":
            error = {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}
            self.send(429, error, {"retry-after-ms": "5"})
        elif fault == "status_500":
            self.send(500, {"error": {"message": "oops"}})
        elif fault == "html":
            self.send_bytes(200, b"<html>502 Bad Gateway</html>")
        elif fault == "hang_up":
            self.close_connection = True
            self.connection.close()
        elif fault == "half_body":
            text = json.dumps(reply).encode()
            self.send_bytes(200, text[: len(text) // 2])
        else:
            self.send(status, reply)

    def run_batch(self, batch: dict[str, Any]) -> None:
        if batch["status"] == "completed":
            return
        known = self.answers
        lines = []
        for number, line in enumerate(known.files[batch["input_file_id"]].splitlines()):
            asked = json.loads(line)
            status, reply, _ = known.reply(asked["body"])
            if number < known.lose:
                continue
            lines.append(
                {"custom_id": asked["custom_id"], "response": {"status_code": status, "body": reply}}
            )
        name = f"file-out-{batch['id']}"
        known.files[name] = "\n".join(map(json.dumps, reversed(lines))).encode()
        batch.update(status="completed", output_file_id=name)

    def send(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        self.send_bytes(status, json.dumps(value).encode(), headers)

    def send_bytes(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
        except OSError:
            # A client that was killed, or gave up waiting, is part of the play.
            self.close_connection = True


class Server(ThreadingHTTPServer):
    """Keeps silent about clients that were killed or gave up."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Only a broken connection is part of the play."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Running:
    """A server under way."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.root = f"http://127.0.0.1:{port}"
        self.base_url = f"{self.root}/v1"

    def stats(self) -> dict[str, Any]:
        """What was asked so far."""
        with urllib.request.urlopen(f"{self.root}/stats") as response:  # noqa: S310
            return dict(json.load(response))


@contextmanager
def running(**settings: Any) -> Iterator[Running]:
    """Start a server in a process of its own, and end it."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.openai_server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(settings) + "\n")
        process.stdin.flush()
        try:
            yield Running(process, int(process.stdout.readline()))
        finally:
            process.kill()


def serve() -> None:
    """Run until killed."""
    sys.set_int_max_str_digits(0)
    Handler.answers = Answers(json.loads(sys.stdin.readline()))
    server = Server(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    assert len(PRESENCE) <= 48
    serve()
