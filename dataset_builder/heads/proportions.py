"""Whether a head has human proportions, by a few widths and heights of the bare mesh."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dataset_builder.heads.identity import Person
from dataset_builder.heads.mesh import head_mesh
from dataset_builder.heads.pose import bare_coarse


@dataclass(frozen=True)
class Proportions:
    """Ratios of one head, and its half width and height in interocular distances.

    ``crown`` is the width of the upper skull over that at the temples, ``jaw`` the width of the jaw over
    that at the cheekbones, ``length`` the height from chin to crown over the greatest width.
    """

    crown: float
    jaw: float
    length: float
    half_width: float
    height: float


# Real heads lie well inside; sampled ones outside look like cones, bricks or balloons.
_BOUNDS = {
    "crown": (0.70, 9.0),
    "jaw": (0.73, 1.0),
    "length": (1.10, 1.80),
    "half_width": (1.02, 1.55),
    "height": (0.0, 5.1),
}


def proportions(person: Person) -> Proportions:
    """The proportions of a person without expression."""
    mesh, (coarse, unit) = head_mesh(), bare_coarse(head_mesh(), person)
    fine, q = mesh.refine @ coarse / unit, mesh.canonical
    skull = mesh.used & (mesh.masks["ears"] < 0.1)

    def half_width(low: float, high: float) -> float:
        return float(np.abs(fine[skull & (q[:, 1] > low) & (q[:, 1] < high), 0]).max())

    temples, cheekbones = half_width(0.2, 0.5), half_width(-0.5, -0.2)
    chin = mesh.used & (np.abs(q[:, 0]) < 0.2) & (q[:, 1] < -1.3) & (q[:, 1] > -1.75) & (q[:, 2] > 0.05)
    height = float(fine[mesh.used & (q[:, 1] > 1.5), 1].max() - fine[chin, 1].min())
    return Proportions(
        crown=half_width(1.3, 1.5) / temples,
        jaw=half_width(-1.15, -0.95) / cheekbones,
        length=height / (2 * max(temples, cheekbones)),
        half_width=cheekbones,
        height=height,
    )


def looks_human(person: Person) -> bool:
    """Whether all proportions of a person are within bounds."""
    found = proportions(person)
    return all(low <= getattr(found, name) <= high for name, (low, high) in _BOUNDS.items())
