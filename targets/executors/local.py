"""Work spread over this machine's cores, results in order, a bounded number ahead."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def _weightless(_: object) -> int:
    return 0


def ordered_map(
    function: Callable[[ItemT], ResultT],
    items: Iterable[ItemT],
    *,
    workers: int = 0,
    ahead: int = 64,
    weigh: Callable[[ItemT], int] = _weightless,
    most: int = 0,
) -> Generator[ResultT, None, None]:
    """Apply ``function`` to every item in threads and yield the results in the items' order.

    Decoding and resizing release the interpreter lock, so threads keep the cores busy without copying
    pictures between processes.

    Args:
        function: called in worker threads; its exceptions reach the caller at that item's turn.
        items: read lazily.
        workers: number of threads; 0 for one per core.
        ahead: most items in flight.
        weigh: what an item takes; the items in flight take at most ``most`` together, or there is only one.
        most: see ``weigh``.
    """
    with ThreadPoolExecutor(max_workers=workers or os.cpu_count() or 1) as pool:
        pending: deque[tuple[Future[ResultT], int]] = deque()
        taken = 0
        try:
            for item in items:
                weight = weigh(item)
                while pending and (len(pending) >= ahead or taken + weight > most):
                    yield pending[0][0].result()
                    taken -= pending.popleft()[1]
                pending.append((pool.submit(function, item), weight))
                taken += weight
            while pending:
                yield pending.popleft()[0].result()
        finally:
            for future, _ in pending:
                future.cancel()


def prefetched(items: Iterable[ItemT], *, depth: int = 1) -> Generator[ItemT, None, None]:
    """Run an iterable ``depth`` items ahead in a thread of its own.

    Args:
        items: advanced in one thread only; its exceptions reach the caller at that item's turn.
        depth: items made ahead.
    """
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(max_workers=1) as pool:
        pending = deque(pool.submit(next, iterator, end) for _ in range(depth))
        try:
            while (item := pending.popleft().result()) is not end:
                pending.append(pool.submit(next, iterator, end))
                yield item  # type: ignore[misc]
        finally:
            for future in pending:
                future.cancel()
