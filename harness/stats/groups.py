"""The means of several groups side by side, the input of every comparison between groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from harness.stats.intervals import CellEstimates
from harness.stats.numerics import Bools, Floats, Ints
from harness.stats.people import SharedPeople

_ARRAYS = ("delta", "se", "df", "n_pairs", "n_identities", "few_identities", "skewed", "skew")


@dataclass(frozen=True)
class GroupMeans:
    """Mean deltas of k groups (rows) for c concepts (columns); every array has shape (k, c).

    Groups are independent unless ``people`` says who is in several of them.

    Attributes:
        delta: mean delta; NaN when there are no pairs.
        se: standard error; 0 for a zero-variance group, NaN when undefined.
        df: degrees of freedom of its square; NaN when undefined.
        n_pairs: kept pairs.
        n_identities: clusters among them.
        few_identities, skewed: the cells' flags.
        skew: skewness of the mean, for bounds and tests by `harness.stats.hall`; 0 where they stay plain t.
        people: the people behind groups that share some; None where nobody is in two.
    """

    delta: Floats
    se: Floats
    df: Floats
    n_pairs: Ints
    n_identities: Ints
    few_identities: Bools
    skewed: Bools
    skew: Floats
    people: SharedPeople | None = None

    @classmethod
    def stack(cls, cells: Sequence[CellEstimates], people: SharedPeople | None = None) -> GroupMeans:
        """Stack the estimates of several groups, whose cells list the same concepts.

        Cells of the bootstrap have no degrees of freedom, so their groups can't be compared: pass the
        estimates of the method `cluster` (or `t`).

        Raises:
            ValueError: if there is no group, or the groups have different numbers of concepts.
        """
        if not cells or len({cell.n_concepts for cell in cells}) > 1:
            raise ValueError(
                "groups must be at least one and share their concepts, got concept counts "
                f"{[cell.n_concepts for cell in cells]}"
            )
        return cls(
            delta=np.stack([cell.delta for cell in cells]),
            se=np.stack([cell.se for cell in cells]),
            df=np.stack([cell.df for cell in cells]),
            n_pairs=np.stack([cell.n_pairs for cell in cells]),
            n_identities=np.stack([cell.n_identities for cell in cells]),
            few_identities=np.stack([cell.few_identities for cell in cells]),
            skewed=np.stack([cell.skewed for cell in cells]),
            skew=np.stack([cell.skew for cell in cells]),
            people=people,
        )

    @property
    def n_groups(self) -> int:
        """Number of groups k."""
        return len(self.delta)

    @property
    def defined(self) -> Bools:
        """Which groups have a mean with a standard error (possibly zero), shape (k, c)."""
        finite: Bools = np.isfinite(self.delta) & np.isfinite(self.se) & np.isfinite(self.df)
        return finite

    @property
    def zero_variance(self) -> Bools:
        """Which defined groups have no variance, shape (k, c)."""
        zero: Bools = self.defined & (self.se == 0.0)
        return zero

    @property
    def usable(self) -> Bools:
        """Which groups have a mean with a positive standard error, shape (k, c)."""
        positive: Bools = self.defined & (self.se > 0.0)
        return positive

    def take(self, rows: Ints, columns: Ints) -> GroupMeans:
        """Return some groups (rows) and concepts (columns)."""
        here = np.ix_(rows, columns)
        arrays = {name: getattr(self, name)[here] for name in _ARRAYS}
        people = self.people.take(rows, columns) if self.people else None
        return replace(self, **arrays, people=people)
