"""The arithmetic of semantic guidance (Brack et al. 2023), for many edits with different settings at once.

For one edit with concepts c, at a denoising step i that comes after every warmup::

    e_c   = +-scale_c * (noise(concept_c) - noise(negative prompt))
    e_c   = e_c where |e_c| >= the threshold_c quantile of |e_c| in its channel, else 0
    g     = sum_c weight_c * e_c + momentum_scale * m
    m     = beta * m + (1 - beta) * g
    noise = noise(negative) + guidance_scale * (noise(prompt) - noise(negative)) + g

diffusers' ``SemanticStableDiffusionPipeline`` has habits that the paper's equations don't show. They are
kept, because published settings were tuned with them:

- momentum builds up from step 0, though g is applied only after warmup, so a concept is evaluated during
  its warmup too wherever momentum can ever be applied;
- while only some concepts are past their warmup, those are applied with weights that sum to one and without
  momentum, and all of them feed the momentum with their own weights;
- after its cooldown a concept counts as past its warmup with weight 0, and the momentum runs out slowly;
- a negative weight counts as 0; weights are not normalised once all concepts are past their warmup.

Not kept: where every concept past its warmup has weight 0 while others still wait, the original divides 0
by 0 and the picture is lost; here nothing is added in that step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dataset_builder.edit.trajectories import Mixture
from dataset_builder.schema.taxonomy import SegaConcept


def channel_quantile(values: torch.Tensor, quantiles: torch.Tensor) -> torch.Tensor:
    """Quantile over the last dimension with a different quantile per leading index.

    Interpolates linearly, as ``torch.quantile`` does, which takes neither more than 16 million elements nor
    a quantile per row.

    Args:
        values: (..., n) floats.
        quantiles: floats in [0, 1] that broadcast against (..., 1).

    Returns:
        (..., 1) floats.
    """
    ordered = values.sort(dim=-1).values
    rank = (quantiles * (values.shape[-1] - 1)).expand(*values.shape[:-1], 1)
    below = rank.floor()
    low = ordered.gather(-1, below.long())
    high = ordered.gather(-1, rank.ceil().long())
    return torch.lerp(low, high, rank - below)


@dataclass(frozen=True)
class ConceptTable:
    """Settings of E edits with at most C concepts each, padded with weight 0.

    Attributes:
        scale: (E, C) guidance scales, negative for reversed concepts.
        threshold: (E, C) quantiles.
        momentum_scale: (E,).
        beta: decay of the momentum, in [0, 1).
    """

    scale: torch.Tensor
    threshold: torch.Tensor
    momentum_scale: torch.Tensor
    beta: float


def concept_table(edits: Sequence[Sequence[SegaConcept]], beta: float, device: torch.device) -> ConceptTable:
    """Collect the settings of ``edits``; an edit's concepts share their momentum scale."""
    width = max(len(concepts) for concepts in edits)
    signed = [[-c.guidance_scale if c.reversed else c.guidance_scale for c in concepts] for concepts in edits]
    return ConceptTable(
        scale=_padded(signed, width, device),
        threshold=_padded([[c.threshold for c in concepts] for concepts in edits], width, device),
        momentum_scale=torch.tensor([concepts[0].momentum_scale for concepts in edits], device=device),
        beta=beta,
    )


def _padded(rows: Sequence[Sequence[float]], width: int, device: torch.device) -> torch.Tensor:
    return torch.tensor([[*row, *[0.0] * (width - len(row))] for row in rows], device=device)


def semantic_guidance(
    concepts: torch.Tensor,
    negative: torch.Tensor,
    table: ConceptTable,
    mixtures: Sequence[Mixture],
    momentum: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step of semantic guidance for E edits.

    Args:
        concepts: (E, C, channels, height, width) noise of each concept; any finite value where weights are 0.
        negative: (E, channels, height, width) noise of the negative prompt.
        table: the edits' settings.
        mixtures: E weightings, for this step.
        momentum: (E, channels, height, width), zeros before the first step.

    Returns:
        What to add to the edits' noise, and the next momentum, both shaped as ``negative``.
    """
    width, device = concepts.shape[1], concepts.device
    scaled = (concepts - negative[:, None]) * table.scale[..., None, None, None]
    size = scaled.abs()
    limit = channel_quantile(size.flatten(3), table.threshold[..., None, None])
    kept = torch.where(size >= limit[..., None], scaled, 0.0)
    own = _padded([mix.own for mix in mixtures], width, device)
    partial = _padded([mix.partial for mix in mixtures], width, device)
    whole = torch.tensor([mix.whole for mix in mixtures], device=device)[:, None, None, None]
    total = _weighted(own, kept) + table.momentum_scale[:, None, None, None] * momentum
    following = table.beta * momentum + (1 - table.beta) * total
    return torch.where(whole, total, _weighted(partial, kept)), following


def _weighted(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Sum over concepts; a plain sum, whose order does not depend on the device's scheduling."""
    return (weights[..., None, None, None] * values).sum(dim=1)
