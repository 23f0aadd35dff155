"""People who are in several groups: the joint CR2 variance of a contrast of group means.

Clusters are people. With n_ga pairs of person g in group a, n_a in the group, S_ga the sum of the residuals
and w_ga = (1 - n_ga / n_a)^(-1/2), the joint CR2 covariance of the group means is (Bell & McCaffrey 2002;
Pustejovsky & Tipton 2018, group indicators as regressors, independence as the working model)

    V_ab = sum_g (w_ga S_ga / n_a) (w_gb S_gb / n_b)

so that a contrast c has V = sum_g (sum_a c_a w_ga S_ga / n_a)^2. Its Satterthwaite degrees of freedom are
(tr M)^2 / tr(M M) with the working variance of a group's pairs n_a V_aa:

    M = diag_g (sum_a c_a^2 V_aa w_ga^2 n_ga / n_a) - sum_a c_a^2 V_aa u_a u_a',   u_ga = w_ga n_ga / n_a

For groups that share nobody both are the sums over independent groups of ``harness.stats.contrasts``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from harness.stats.cells import blocks, checked
from harness.stats.numerics import Floats, Ints

_NOISE = 64.0 * np.finfo(float).eps


@dataclass(frozen=True)
class SharedPeople:
    """The people behind k groups, for c concepts.

    Attributes:
        counts: pairs of each person in each group, shape (G, k, c).
        sums: residuals (delta minus the group's mean delta) summed, in units of the score, same shape.
    """

    counts: Floats
    sums: Floats

    @classmethod
    def of(
        cls, source: ArrayLike, transformed: ArrayLike, people: ArrayLike, groups: Sequence[Ints]
    ) -> SharedPeople:
        """Sum the residuals of one attribute's pairs.

        Args:
            source, transformed: shape (n, c); a pair with a non-finite score is left out of its concept.
            people: integer code of the person of each pair, shape (n,).
            groups: the rows of each of the k groups.
        """
        before, after, codes = checked(source, transformed, people)
        _, codes = np.unique(codes, return_inverse=True)
        counts, sums = np.zeros((2, codes.max(initial=-1) + 1, len(groups), before.shape[1]))
        for group, own in enumerate(groups):
            for block in blocks(before[own], after[own], codes[own]):
                who = codes[own][block.rows]
                rows = np.unique(who)
                here = np.ix_(rows, np.array([group]), block.columns)
                counts[here] = block.structure.sizes[:, None, None]
                sums[here] = (block.sums() * block.scale)[:, None, :]
        return cls(counts, sums)

    def take(self, rows: Ints, columns: Ints) -> SharedPeople:
        """Return some groups (rows) and concepts (columns)."""
        return SharedPeople(self.counts[:, rows][:, :, columns], self.sums[:, rows][:, :, columns])

    def distinct(self, groups: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> Ints:
        """Return the number of people in the marked groups together, shape (c,) for a mask (k, c)."""
        return np.asarray(((self.counts > 0) & groups).any(axis=1).sum(axis=0))

    def variance(self, errors: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Return standard errors and degrees of freedom of contrasts, shape (r, c).

        Args:
            errors: CR2 standard error of each group's mean, shape (k, c).
            weights: shape (r, k, c).

        Returns:
            NaN where a group with a weight has no standard error; se 0 and df NaN where people's parts
            cancel up to rounding.
        """
        n = np.maximum(self.counts.sum(axis=0), 1.0)
        share = self.counts / n
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.where(share < 1.0, 1.0 / np.sqrt(1.0 - share), np.nan)
        found = [self._one(np.where(c != 0, errors, 0.0), c, share, weight, n) for c in weights]
        se, df = (np.stack(column) for column in zip(*found, strict=True))
        return se, df

    def _one(
        self, errors: Floats, c: Floats, share: Floats, weight: Floats, n: Floats
    ) -> tuple[Floats, Floats]:
        enters = c != 0.0
        parts = np.where(enters, c * np.where(enters, weight * self.sums / n, 0.0), 0.0)
        person = parts.sum(axis=1)
        unit = np.abs(parts).max(axis=(0, 1))
        unit = np.where(unit > 0, unit, 1.0)
        noise = np.abs(person / unit).max(axis=0) <= _NOISE
        se = np.where(noise, 0.0, unit * np.sqrt(((person / unit) ** 2).sum(axis=0)))
        # Relative to the largest variance, so that extreme magnitudes neither overflow nor vanish.
        spread = np.abs(c) * errors
        with np.errstate(invalid="ignore", divide="ignore"):
            v = (spread / spread.max(axis=0)) ** 2
        w2 = np.where(enters, weight**2, 0.0)
        diagonal = (v * w2 * share).sum(axis=1)
        u = np.where(enters, weight * share, 0.0)
        trace = v.sum(axis=0)
        cross = np.einsum("gac,gbc->abc", u, u)
        square = (
            (diagonal**2).sum(axis=0)
            - 2.0 * (v * (diagonal[:, None] * u**2).sum(axis=0)).sum(axis=0)
            + np.einsum("ac,bc,abc->c", v, v, cross**2)
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            df = np.where(noise, np.nan, trace**2 / square)
        undefined = np.isnan(np.where(enters, errors, 0.0)).any(axis=0)
        return np.where(undefined, np.nan, se), np.where(undefined, np.nan, df)
