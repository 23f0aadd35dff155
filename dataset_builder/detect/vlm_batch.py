"""Requests through the Batch API: half the price, answers within a day, the same parser.

What was sent is written down before and after sending, so that a killed run finds its batches again and buys
nothing twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from dataset_builder.detect.settings import Vlm
from dataset_builder.detect.vlm_answers import Reason
from dataset_builder.detect.vlm_budget import Budget, BudgetError
from dataset_builder.detect.vlm_jobs import Failures, Job, bought_of, failures_of
from dataset_builder.detect.vlm_store import AnswerStore, read_kept
from targets.base.config import Settings
from targets.base.errors import InputError
from targets.base.files import write_json
from targets.base.hashing import settings_digest
from targets.base.progress import progress
from targets.openai_client import (
    ENDPOINT,
    Exchange,
    Server,
    exchange_of,
    is_filtered,
    parsed,
)

UNDER_WAY = frozenset({"validating", "in_progress", "finalizing", "cancelling"})
# The API takes input files of 200 MB.
MOST_BYTES = 150_000_000
TAG = "facedelta"


class _Entry(Settings):
    """A job that was sent: ``store`` is its folder's name, ``faces`` their number in each unit."""

    store: str
    units: tuple[str, ...]
    faces: tuple[int, ...]
    attributes: tuple[str, ...]
    attempt: int
    estimate: int


class _State(Settings):
    """A batch on its way.

    Attributes:
        batch_id: the server's name for it; None until that is known.
        most: dollars it can cost at most; 0 where the run that sent it did not write them down.
        jobs: custom id -> what was asked.
    """

    batch_id: str | None
    most: float = Field(default=0.0, ge=0)
    jobs: dict[str, _Entry]


class Batches:
    """Sends jobs in batches and waits for them, one batch after the other is collected."""

    def __init__(
        self, settings: Vlm, server: Server, budget: Budget, folder: Path, *, show_progress: bool
    ) -> None:
        self._settings, self._server, self._budget = settings, server, budget
        self._folder, self._show_progress = folder, show_progress
        self._refusal = ""

    def recover(self, stores: Sequence[AnswerStore]) -> None:
        """Collect the batches that an earlier run sent.

        Raises:
            InputError: the server doesn't answer.
        """
        by_name = {store.directory.name: store for store in stores}
        for path in sorted(self._folder.glob("*.json")):
            state = read_kept(_State, path)
            if not all(entry.store in by_name for entry in state.jobs.values()):
                continue
            batch_id = state.batch_id or self._find(path.stem)
            if batch_id is not None:
                self._collect(batch_id, state.jobs, by_name)
            path.unlink()
            self._check_refusal()

    def _find(self, tag: str) -> str | None:
        """The batch that was created just before a run was killed, or None if it never was."""
        found = self._server.guarded(lambda: self._server.client.batches.list(limit=100).data)
        return next((item.id for item in found if (item.metadata or {}).get(TAG) == tag), None)

    def send(self, jobs: Sequence[Job]) -> Failures:
        """Send all jobs, wait, keep the answers.

        Raises:
            InputError: the server refuses the batch or doesn't answer.
            BudgetError: not all of the jobs fit in the budget; those that do are bought and kept.
        """
        affordable, stop = self._affordable(jobs)
        sent: list[tuple[Path, str, list[Job]]] = []
        for chunk, lines in self._chunks(affordable):
            sent.append((*self._create(chunk, lines), chunk))
        failures: dict[tuple[str, str], Reason] = {}
        with progress(
            f"batches of {self._settings.model}", len(sent), enabled=self._show_progress
        ) as advance:
            for path, batch_id, chunk in sent:
                entries, stores = _entries(chunk), {job.store.directory.name: job.store for job in chunk}
                answered = self._collect(batch_id, entries, stores)
                path.unlink()
                self._check_refusal()
                for job in chunk:
                    if job.name not in answered:
                        failures |= failures_of(job, "no_result")
                advance()
        if stop is not None:
            raise stop
        return failures

    def _affordable(self, jobs: Sequence[Job]) -> tuple[list[Job], BudgetError | None]:
        """The jobs that fit in the budget if each costs as much as it can, and the error if some don't."""
        chosen: list[Job] = []
        amounts: list[float] = []
        stop = None
        for job in jobs:
            left = self._budget.headroom()
            amount = self._budget.most(job.estimate, self._settings.max_tokens)
            if left is not None and sum(amounts) + amount > left:
                stop = self._budget.error()
                break
            chosen.append(job)
            amounts.append(amount)
        return chosen, stop

    def _chunks(self, jobs: Sequence[Job]) -> Iterator[tuple[list[Job], list[bytes]]]:
        chunk: list[Job] = []
        lines: list[bytes] = []
        for job in jobs:
            line = json.dumps(
                {
                    "custom_id": job.name,
                    "method": "POST",
                    "url": ENDPOINT,
                    "body": job.request(self._settings),
                }
            ).encode()
            full = len(chunk) == self._settings.batch_requests
            if chunk and (full or sum(map(len, lines)) + len(line) > MOST_BYTES):
                yield chunk, lines
                chunk, lines = [], []
            chunk.append(job)
            lines.append(line)
        if chunk:
            yield chunk, lines

    def _create(self, chunk: Sequence[Job], lines: Sequence[bytes]) -> tuple[Path, str]:
        """Upload and start one batch; its state file says what was asked before and after."""
        tag = settings_digest({"jobs": [job.name for job in chunk]})[:32]
        path = self._folder / f"{tag}.json"
        most = sum(self._budget.most(job.estimate, self._settings.max_tokens) for job in chunk)
        state = _State(batch_id=None, most=most, jobs=_entries(chunk))
        write_json(path, state.model_dump())
        client = self._server.client
        content = ("requests.jsonl", b"\n".join(lines) + b"\n")
        uploaded = self._server.guarded(lambda: client.files.create(file=content, purpose="batch"))
        batch = self._server.guarded(
            lambda: client.batches.create(
                input_file_id=uploaded.id,
                endpoint=ENDPOINT,
                completion_window="24h",
                metadata={TAG: tag},
            )
        )
        write_json(path, {**state.model_dump(), "batch_id": batch.id})
        return path, batch.id

    def _collect(
        self, batch_id: str, entries: Mapping[str, _Entry], stores: Mapping[str, AnswerStore]
    ) -> set[str]:
        """Wait for a batch and keep its answers; returns the names of the jobs that have one."""
        client = self._server.client
        batch = self._server.guarded(lambda: client.batches.retrieve(batch_id))
        while batch.status in UNDER_WAY:
            time.sleep(self._settings.poll_seconds)
            batch = self._server.guarded(lambda: client.batches.retrieve(batch_id))
        if batch.status == "failed":
            faults = batch.errors.data if batch.errors and batch.errors.data else []
            said = self._server.scrubbed(faults[0].message) if faults else "no reason given"
            raise InputError(f"{self._server.host} could not run batch {batch_id}: {said}")
        answered: set[str] = set()
        for file_id in (batch.output_file_id, batch.error_file_id):
            if file_id is not None:
                text = self._server.guarded(partial(self._content, file_id))
                answered |= self._keep(text, entries, stores)
        return answered

    @property
    def _parameters(self) -> dict[str, Any]:
        """The parameters that a line of a batch may have."""
        fixed = (self._settings.tokens_parameter, "temperature", "seed", "response_format")
        return {**dict.fromkeys(fixed), **self._settings.extra_body}

    def _content(self, file_id: str) -> str:
        return str(self._server.client.files.content(file_id).text)

    def _check_refusal(self) -> None:
        """End the run where a batch had a parameter that the server doesn't take: others would have it, too.

        Raises:
            InputError: naming the parameter.
        """
        refusal, self._refusal = self._refusal, ""
        if refusal:
            raise InputError(refusal)

    def _keep(self, text: str, entries: Mapping[str, _Entry], stores: Mapping[str, AnswerStore]) -> set[str]:
        """Keep the answers in one file of results; returns the jobs they answer."""
        answered: set[str] = set()
        for name, exchange, body in _results(text):
            if name not in entries or name in answered:
                continue
            if exchange is None:
                self._refusal = self._refusal or self._server.refused_parameter(body, self._parameters)
                continue
            entry = entries[name]
            bought = bought_of(
                entry.units,
                entry.faces,
                entry.attributes,
                entry.attempt,
                exchange,
                (entry.estimate, self._settings.max_tokens),
                self._budget,
            )
            stores[entry.store].add(bought)
            self._budget.spend(bought.tokens_in, bought.tokens_out, entry.estimate)
            answered.add(name)
        return answered


def dollars_under_way(folder: Path) -> float:
    """Dollars that the batches which were sent and not yet collected can cost at most."""
    return sum(read_kept(_State, path).most for path in folder.glob("*.json"))


def _entries(jobs: Sequence[Job]) -> dict[str, _Entry]:
    """What it takes to read an answer later, by custom id."""
    return {
        job.name: _Entry(
            store=job.store.directory.name,
            units=job.keys,
            faces=tuple(len(unit.faces) for unit in job.units),
            attributes=tuple(job.question.phrases),
            attempt=job.attempt,
            estimate=job.estimate,
        )
        for job in jobs
    }


def _results(text: str) -> Iterator[tuple[str, Exchange | None, Any]]:
    """(custom id, answer, body) of every line of use: one with an answer, or with a request that was refused.

    A torn line or a fault of the server is of none.
    """
    for line in text.splitlines():
        row = parsed(line)
        response = row.get("response") if isinstance(row, dict) else None
        if not isinstance(response, dict):
            continue
        name, body, status = str(row.get("custom_id")), response.get("body"), response.get("status_code")
        exchange = exchange_of(body)
        if status == 200 and exchange.reply is not None:
            yield name, exchange, body
        elif status == 400:
            yield name, Exchange(None, "content_filter") if is_filtered(body) else None, body
