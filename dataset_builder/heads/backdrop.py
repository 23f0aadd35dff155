"""Out-of-focus backgrounds: a wall's gradient, sometimes with blurred shapes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dataset_builder.heads.fields import Floats, linear, stream

_WALLS = (
    (0.72, 0.75, 0.78),
    (0.55, 0.60, 0.66),
    (0.80, 0.76, 0.70),
    (0.42, 0.46, 0.44),
    (0.66, 0.60, 0.56),
    (0.35, 0.40, 0.48),
    (0.85, 0.86, 0.87),
    (0.58, 0.65, 0.60),
)


@lru_cache(maxsize=8)
def backdrop(number: int, size: int) -> Floats:
    """Linear light (size, size, 3) of background ``number``."""
    rng = stream("backdrop", number)
    y, x = np.mgrid[0:size, 0:size] / size
    wall = np.array(_WALLS[int(rng.integers(len(_WALLS)))])
    far = wall * rng.uniform(0.6, 0.95)
    blend = y * rng.uniform(0.3, 1.0) + (x - rng.random()) ** 2 * rng.uniform(0, 0.8)
    picture = wall + (far - wall) * blend[..., None]
    if rng.random() < 0.5:
        for _ in range(int(rng.integers(4, 11))):
            cx, cy, spread = rng.random(), rng.random(), rng.uniform(0.08, 0.3)
            colour = np.clip(wall + 0.18 * rng.standard_normal() + 0.05 * rng.standard_normal(3), 0.05, 0.95)
            distance = ((x - cx) / spread) ** 2 + ((y - cy) / (spread * rng.uniform(0.6, 3))) ** 2
            picture += (colour - picture) * 0.6 * np.exp(-(distance ** rng.uniform(1, 2.5)))[..., None]
    return linear(np.clip(picture, 0.03, 0.97))
