"""Cosine of rendered heads with their own enlargements: found at the picture's own size, and by our finder.

python -m tests.benchmarks.faces
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from targets.adapters.sface import weights_directory
from targets.alignment import box_area
from targets.base.extras import require
from targets.catalogue import load_target
from targets.images import decode
from tests.support import ROOT

SIZES = (144, 192, 288, 384, 512, 768, 1024, 1536, 2048)
EVERY = 6
FloatArray = np.ndarray[Any, np.dtype[np.float64]]


def heads() -> list[Image.Image]:
    """Every sixth of the demo's source faces, 288 px."""
    table = pq.read_table(ROOT / "dataset_builder/demo/sources.parquet", columns=["picture"])
    return [decode(picture.as_py(), "head").image for picture in table.column(0)[::EVERY]]


def at_own_size() -> Callable[[list[Image.Image]], FloatArray]:
    """SFace behind YuNet at the picture's own size."""
    cv2 = require("cv2", "face", "this benchmark")
    detector_file, recogniser_file = (
        str(next(weights_directory().glob(name))) for name in ("*yunet*", "*sface*")
    )
    recogniser = cv2.FaceRecognizerSF.create(recogniser_file, "")

    def vector(image: Image.Image) -> FloatArray:
        bgr = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
        faces = cv2.FaceDetectorYN.create(detector_file, "", image.size, score_threshold=0.6).detect(bgr)[1]
        if faces is None:
            return np.full(128, np.nan)
        return np.asarray(recogniser.feature(recogniser.alignCrop(bgr, max(faces, key=box_area)))[0], float)

    return lambda images: np.array([vector(image) for image in images])


def row(embed: Callable[[list[Image.Image]], FloatArray], side: int, faces: list[Image.Image]) -> str:
    """Mean and least cosine, and how many faces were not found."""
    resized = [face.resize((side, side), Image.Resampling.LANCZOS) for face in faces]
    one, other = embed(faces), embed(resized)
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    cosines = np.einsum("nd,nd->n", one, other) / norms
    missed = int(np.isnan(cosines).sum())
    return f"{np.nanmean(cosines):.3f} | {np.nanmin(cosines):.3f} | {missed}"


def main() -> None:
    """Print the table."""
    faces, target = heads(), load_target("sface").target
    print("| size | before: mean | least | no face | now: mean | least | no face |")
    print("|---|---|---|---|---|---|---|")
    for side in SIZES:
        before = row(at_own_size(), side, faces)
        now = row(lambda images: target.embed(images).values, side, faces)  # type: ignore[union-attr]
        print(f"| {side} px | {before} | {now} |", flush=True)


if __name__ == "__main__":
    main()
