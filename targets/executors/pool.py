"""A model on every core: for libraries whose models serve one picture at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

ModelT = TypeVar("ModelT")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class ModelPool(Generic[ModelT]):
    """Threads that each own a model, made when a thread first needs one.

    OpenCV, dlib and ONNX Runtime release the interpreter lock while they compute, and their models keep
    state between calls: one a thread is both faster and safer than one for all.
    """

    def __init__(self, make: Callable[[], ModelT], workers: int = 0) -> None:
        self._make = make
        self._own = threading.local()
        self._threads = ThreadPoolExecutor(max_workers=workers or os.cpu_count() or 1)

    def map(self, function: Callable[[ModelT, ItemT], ResultT], items: Iterable[ItemT]) -> list[ResultT]:
        """Apply ``function`` to each item with some thread's model; results in the items' order."""
        return list(self._threads.map(lambda item: function(self._model(), item), items))

    def _model(self) -> ModelT:
        if not hasattr(self._own, "model"):
            self._own.model = self._make()
        model: ModelT = self._own.model
        return model

    def close(self) -> None:
        """Let the threads and their models go."""
        self._threads.shutdown()
