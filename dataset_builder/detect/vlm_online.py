"""Requests one by one, several at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from dataset_builder.detect.settings import Vlm
from dataset_builder.detect.vlm_answers import Reason
from dataset_builder.detect.vlm_budget import Budget
from dataset_builder.detect.vlm_jobs import Failures, Job, failures_of
from dataset_builder.detect.vlm_store import AnswerStore
from targets.base.errors import InputError
from targets.base.progress import Advance, progress
from targets.openai_client import UNANSWERED, Server


class Online:
    """Asks with as many threads as the settings allow; the first lasting fault stops them all."""

    def __init__(self, settings: Vlm, server: Server, budget: Budget, *, show_progress: bool) -> None:
        self._settings, self._server, self._budget = settings, server, budget
        self._show_progress = show_progress
        self._stopped = threading.Event()

    def recover(self, stores: Sequence[AnswerStore]) -> None:
        """Nothing to fetch: an answer is kept when it comes."""
        del stores

    def send(self, jobs: Sequence[Job]) -> Failures:
        """Make the requests and keep the answers.

        Raises:
            InputError: a fault that asking again can't mend, or a server that is not there.
            BudgetError: the next request could pass the budget.
        """
        self._stopped.clear()
        failures: dict[tuple[str, str], Reason] = {}
        pool = ThreadPoolExecutor(self._settings.concurrency)
        try:
            with progress(
                f"asking {self._settings.model}", len(jobs), enabled=self._show_progress
            ) as advance:
                futures = [pool.submit(self._one, job, advance) for job in jobs]
                for job, future in zip(jobs, futures, strict=True):
                    reason = future.result()
                    if reason is not None:
                        failures |= failures_of(job, reason)
        finally:
            # Whatever is on its way comes home and is kept before an error goes up.
            self._stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
        return failures

    def _one(self, job: Job, advance: Advance) -> Reason | None:
        """Ask once; the reason where nothing was answered, None where something is kept."""
        if self._stopped.is_set():
            return "no_result"
        try:
            reason = self._ask(job)
        except InputError:
            self._stopped.set()
            raise
        advance()
        return reason

    def _ask(self, job: Job) -> Reason | None:
        reserved: list[float] = []

        def before() -> Callable[[bool], None]:
            amount = self._budget.reserve(job.estimate, self._settings.max_tokens)
            reserved[:] = [amount]
            return lambda charged: self._budget.forfeit(amount, charged=charged)

        exchange = self._server.complete(job.request(self._settings), before)
        if exchange.reason in UNANSWERED:
            return exchange.reason
        bought = job.keep(exchange, self._settings, self._budget)
        if exchange.reply is not None:
            self._budget.settle(reserved[0], job.estimate, bought.tokens_in, bought.tokens_out)
        return None
