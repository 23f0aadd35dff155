"""CLIP end to end: open_clip's own loop, the forward pass alone, and ours, in one run.

``python -m tests.benchmarks.clip`` measures on a GPU where there is one (ViT-L-14, a DataLoader with one
worker a core as the baseline) and else on the processor (ViT-B-32, against open_clip's loop over single
pictures and over batches). Weights are random: speed doesn't depend on them. The pictures are distinct
512 px JPEGs of about 80 kB, read from parquet shards.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image, ImageChops

from targets.catalogue import LoadedTarget, load_target
from targets.opening import PictureRef, open_in_processes
from targets.scoring import score_pictures

SIZE, QUALITY, PER_SHARD = 512, 90, 512
PARITY_CPU = 16


def make_shard(path: Path, first: int, count: int) -> None:
    """Write ``count`` JPEGs that look like nothing but compress like photographs."""
    rng = np.random.default_rng(first)
    noise = np.clip(rng.normal(128, 8.5, (SIZE * 2, SIZE * 2, 3)), 0, 255).astype(np.uint8)
    grain = Image.fromarray(noise)
    rows = []
    for _ in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8))
        smooth = coarse.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        left, top = rng.integers(0, SIZE, 2).tolist()
        picture = ImageChops.add(smooth, grain.crop((left, top, left + SIZE, top + SIZE)), 1, -128)
        stream = io.BytesIO()
        picture.save(stream, "JPEG", quality=QUALITY)
        rows.append(stream.getvalue())
    pq.write_table(pa.table({"image": pa.array(rows, pa.binary())}), path, compression="none")


def make_pictures(folder: Path, count: int) -> list[PictureRef]:
    """Write shards on all cores and refer to the pictures in them."""
    paths = [folder / f"{number:05d}.parquet" for number in range(-(-count // PER_SHARD))]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        firsts = range(0, count, PER_SHARD)
        sizes = [min(PER_SHARD, count - first) for first in firsts]
        list(pool.map(make_shard, paths, firsts, sizes))
    refs = []
    for path in paths:
        column = pq.read_table(path, memory_map=True).column("image")
        refs += [PictureRef(f"{path.stem}/{row}", partial(_read, column, row)) for row in range(len(column))]
    return refs


def _read(column: pa.ChunkedArray, row: int) -> bytes:
    return column[row].as_py()


class Encoded(torch.utils.data.Dataset):
    """What open_clip's users write: bytes, PIL, preprocess."""

    def __init__(self, data: Sequence[bytes], preprocess: Callable[[Image.Image], torch.Tensor]) -> None:
        self.data, self.preprocess = data, preprocess

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.preprocess(Image.open(io.BytesIO(self.data[index])).convert("RGB"))


def rate(count: int, work: Callable[[], object]) -> float:
    """Pictures a second."""
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


@torch.inference_mode()
def through_loader(loaded: LoadedTarget, data: Sequence[bytes], workers: int) -> int:
    """Score with open_clip's preprocessing in a DataLoader; return the pictures done."""
    target = loaded.target
    loader = torch.utils.data.DataLoader(
        Encoded(data, target.prepare),
        batch_size=loaded.batch_size,
        num_workers=workers,
        pin_memory=target._device != "cpu",
        drop_last=True,
    )
    done = 0
    for batch in loader:
        done += len(target._compute(batch.to(target._device, target._dtype, non_blocking=True)).cpu())
    return done


@torch.inference_mode()
def one_by_one(loaded: LoadedTarget, data: Sequence[bytes]) -> None:
    """open_clip's example: one picture, one forward pass."""
    target = loaded.target
    for item in data:
        image = target.prepare(Image.open(io.BytesIO(item)).convert("RGB")).unsqueeze(0)
        target._compute(image.to(target._dtype)).numpy()


@torch.inference_mode()
def forward_alone(loaded: LoadedTarget, rounds: int) -> float:
    """Pictures a second of the model on a batch that is already there."""
    target = loaded.target
    side = target._model.visual.preprocess_cfg["size"]
    side = side if isinstance(side, int) else side[0]
    batch = torch.randn(loaded.batch_size, 3, side, side, device=target._device, dtype=target._dtype)
    target._compute(batch).cpu()

    def work() -> None:
        for _ in range(rounds):
            answer = target._compute(batch)
        answer.cpu()

    return rate(rounds * loaded.batch_size, work)


def ours(loaded: LoadedTarget, pictures: Sequence[PictureRef]) -> tuple[float, dict[str, np.ndarray]]:
    """Rate and scores of ``score_pictures``, with its cache, from nothing."""
    with tempfile.TemporaryDirectory() as cache:
        started = time.perf_counter()
        seen = score_pictures(loaded, pictures, Path(cache), show_progress=False)
        spent = time.perf_counter() - started
    assert all(item.reason is None for item in seen.values())
    return len(pictures) / spent, {name: item.values for name, item in seen.items()}


def decoding_alone(pictures: Sequence[PictureRef], held: int) -> float:
    """Pictures a second that the decoding processes deliver."""

    def work() -> None:
        with closing(open_in_processes(pictures, held)) as opened:
            for item in opened:
                item.release()

    return rate(len(pictures), work)


def staging_alone(loaded: LoadedTarget, pictures: Sequence[PictureRef]) -> tuple[float, float]:
    """Pictures a second of the copy to the GPU, and of resize and model on what is there."""
    pixels = [np.asarray(Image.open(io.BytesIO(ref.read()))) for ref in pictures[: loaded.batch_size]]
    target = loaded.target
    staged = target.stage(pixels)
    target.start(staged)()
    torch.cuda.synchronize()

    def copy() -> None:
        for _ in range(8):
            target.stage(pixels)
        torch.cuda.synchronize()

    def compute() -> None:
        waiting = [target.start(staged) for _ in range(8)]
        for finish in waiting:
            finish()

    count = 8 * loaded.batch_size
    return rate(count, copy), rate(count, compute)


def reference(name: str, pictures: Sequence[PictureRef], seed: int) -> dict[str, np.ndarray]:
    """open_clip's own path in float32 on the processor, one picture at a time."""
    loaded = load_target(f"open-clip:{name}", {"random_seed": seed, "device": "cpu", "batch_size": 1})
    target = loaded.target
    found = {}
    with torch.inference_mode():
        for ref in pictures:
            image = Image.open(io.BytesIO(ref.read())).convert("RGB")
            found[ref.name] = target._compute(target.prepare(image).unsqueeze(0)).numpy()[0]
    return found


def gap(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> float:
    """Largest difference of a cosine over the pictures that both have."""
    return max(float(np.abs(first[name] - second[name]).max()) for name in first.keys() & second.keys())


def _described(pictures: Sequence[PictureRef]) -> str:
    size = np.mean([len(ref.read()) for ref in pictures[:64]]) / 1000
    return f"{len(pictures):,} JPEGs of {SIZE} px, {size:.0f} kB"


def on_gpu(
    name: str, made: Callable[[], list[PictureRef]], *, compiled: bool, seed: int
) -> Iterator[tuple[str, str]]:
    """Measure on a GPU; yields rows of the table."""
    loaded = load_target(f"open-clip:{name}", {"random_seed": seed, "compile": compiled})
    workers = os.cpu_count() or 1
    yield "card", torch.cuda.get_device_name(0)
    yield (
        "model",
        f"{name}, random weights, float16, {'compiled' if compiled else 'eager'}, batch {loaded.batch_size}",
    )
    started = time.perf_counter()
    forward_alone(loaded, 1)
    yield "compilation, s", f"{time.perf_counter() - started:.0f}"
    pictures = made()
    yield "pictures", _described(pictures)
    ours(loaded, pictures[: 2 * loaded.batch_size])
    alone, some = forward_alone(loaded, 20), pictures[: len(pictures) // 4]
    yield "forward alone, pictures/s", f"{alone:,.0f}"
    yield (
        f"decoding alone ({workers} processes), pictures/s",
        f"{decoding_alone(some, loaded.batch_size):,.0f}",
    )
    copy, compute = staging_alone(loaded, pictures)
    yield "copy to the GPU alone, pictures/s", f"{copy:,.0f}"
    yield "resize and forward alone, pictures/s", f"{compute:,.0f}"
    speed, scores = ours(loaded, pictures)
    yield "ours end to end, pictures/s", f"{speed:,.0f}"
    data = [ref.read() for ref in pictures[: len(pictures) // 4]]
    count = len(data) // loaded.batch_size * loaded.batch_size
    loader = rate(count, partial(through_loader, loaded, data, workers))
    yield f"open_clip with a {workers}-worker DataLoader, pictures/s", f"{loader:,.0f}"
    yield "ours / DataLoader", f"{speed / loader:.2f}"
    yield "ours / forward alone", f"{speed / alone:.2f}"
    truth = reference(name, pictures[:PARITY_CPU], seed)
    yield "largest gap to the reference, float16", f"{gap(scores, truth):.1e}"
    exact = load_target(f"open-clip:{name}", {"random_seed": seed, "precision": "float32", "batch_size": 32})
    yield "largest gap to the reference, float32", f"{gap(ours(exact, pictures[:PARITY_CPU])[1], truth):.1e}"


def on_cpu(name: str, pictures: Sequence[PictureRef], seed: int) -> Iterator[tuple[str, str]]:
    """Measure on the processor; yields rows of the table."""
    loaded = load_target(f"open-clip:{name}", {"random_seed": seed, "device": "cpu"})
    data = [ref.read() for ref in pictures]
    yield "pictures", _described(pictures)
    yield "processor", f"{os.cpu_count()} cores, {torch.get_num_threads()} threads"
    yield "model", f"{name}, random weights, float32, batch {loaded.batch_size}"
    ours(loaded, pictures[: loaded.batch_size])
    yield "forward alone, pictures/s", f"{forward_alone(loaded, 2):.1f}"
    single = rate(len(data), partial(one_by_one, loaded, data))
    yield "open_clip's loop, one picture at a time, pictures/s", f"{single:.1f}"
    count = len(data) // loaded.batch_size * loaded.batch_size
    batches = rate(count, partial(through_loader, loaded, data[:count], 0))
    yield f"open_clip's loop, batches of {loaded.batch_size}, pictures/s", f"{batches:.1f}"
    speed, scores = ours(loaded, pictures)
    yield "ours end to end, pictures/s", f"{speed:.1f}"
    yield "ours / loop over pictures", f"{speed / single:.2f}"
    yield "ours / loop over batches", f"{speed / batches:.2f}"
    yield "largest gap to the reference, float32", f"{gap(scores, reference(name, pictures[:8], seed)):.1e}"


def main() -> None:
    """Print one row a measurement, and the same as JSON where ``--out`` names a file."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="ViT-L-14" if gpu else "ViT-B-32")
    parser.add_argument("--pictures", type=int, default=40_960 if gpu else 192)
    parser.add_argument("--eager", action="store_true", help="don't compile the model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None)
    chosen = parser.parse_args()
    rows: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(1) as beside:
        # Written while the model is loaded and compiled.
        making = beside.submit(make_pictures, Path(folder), chosen.pictures)
        measured = (
            on_gpu(chosen.model, making.result, compiled=not chosen.eager, seed=chosen.seed)
            if gpu
            else on_cpu(chosen.model, making.result(), chosen.seed)
        )
        for name, value in measured:
            print(name, value, sep=": ", flush=True)
            rows[name] = value
            if chosen.out is not None:
                chosen.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
