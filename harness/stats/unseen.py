"""What a sample of people could not have shown: breaks of a model that none of them happens to suffer.

A mean over G identities none of which broke says nothing about a share u = 1 - alpha^(1/G) of people who
might: were the share larger, all G would have escaped it with probability below alpha.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Pair = tuple[float, float]


def unseen_share(alpha: float, identities: float, *, both_of_a_pair: bool) -> float:
    """Return the largest share of people, or of pairs of people, that may break unseen.

    Args:
        alpha: one-sided error rate in (0, 1).
        identities: people seen, positive.
        both_of_a_pair: comparisons are of two people, and one who breaks spoils all of that person's: then
            1 - (1 - u)^2.
    """
    return -math.expm1(math.log(alpha) * (2.0 if both_of_a_pair else 1.0) / identities)


def with_share(bounds: Pair, shares: Sequence[float], worst: float) -> Pair:
    """Return bounds of a mean of which a share was not seen and may have changed by the worst amount.

    (1 - s) low - s W and (1 - s) high + s W; of a difference of two groups each group's share adds its own
    s W, and the share that makes the rest count most stands for s.

    Args:
        bounds: low and high of what was seen.
        shares: one for each group, in [0, 1].
        worst: W, the largest change that one unit can suffer, at least 0.
    """
    low, high = bounds
    kept = [1.0 - share for share in shares]
    far = sum(shares) * worst
    return min(k * low for k in kept) - far, max(k * high for k in kept) + far
