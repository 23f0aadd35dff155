"""The pure arithmetic of semantic guidance."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dataset_builder.edit.guidance import channel_quantile, concept_table, semantic_guidance
from dataset_builder.edit.trajectories import evaluated, mixture
from dataset_builder.schema.taxonomy import SegaConcept


def concept(**settings: Any) -> SegaConcept:
    base = {"prompt": "smile", "guidance_scale": 2.0, "threshold": 0.0, "warmup_steps": 4}
    return SegaConcept(**(base | settings))


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_quantiles_are_torchs(size: int) -> None:
    values = torch.randn(5, 3, size, generator=torch.Generator().manual_seed(0))
    wanted = torch.tensor([0.0, 0.5, 0.9, 0.97, 1.0])
    got = channel_quantile(values, wanted[:, None, None])
    for row, quantile in enumerate(wanted):
        expected = torch.quantile(values[row], quantile, dim=-1, keepdim=True)
        torch.testing.assert_close(got[row], expected, rtol=0, atol=1e-6)


def test_weights_by_stage() -> None:
    concepts = (
        concept(weight=3.0),
        concept(weight=1.0, warmup_steps=6),
        concept(weight=-1.0, cooldown_steps=8),
    )
    waiting, some, whole, late = (mixture(concepts, step) for step in (0, 5, 6, 8))
    assert waiting.own == (3.0, 1.0, 0.0)
    assert (waiting.partial, waiting.whole) == ((0.0, 0.0, 0.0), False)
    assert (some.partial, some.whole) == ((1.0, 0.0, 0.0), False)
    assert (whole.partial, whole.whole) == ((0.0, 0.0, 0.0), True)
    assert late.own == (3.0, 1.0, 0.0)


def test_partial_weights_sum_to_one() -> None:
    concepts = (concept(weight=3.0), concept(weight=1.0), concept(warmup_steps=9))
    assert mixture(concepts, 5).partial == (0.75, 0.25, 0.0)


def test_nothing_is_added_while_only_finished_concepts_are_warm() -> None:
    got = mixture((concept(cooldown_steps=5), concept(warmup_steps=9)), 6)
    assert (got.own, got.partial, got.whole) == ((0.0, 1.0), (0.0, 0.0), False)


def test_a_concept_is_evaluated_only_where_it_counts() -> None:
    assert evaluated([concept()], 0, 50) == (True,)
    assert evaluated([concept(momentum_scale=0.0)], 0, 50) == (False,)
    assert evaluated([concept(momentum_scale=0.0)], 4, 50) == (True,)
    assert evaluated([concept(), concept(warmup_steps=50)], 3, 50) == (False, False)
    assert evaluated([concept(), concept(warmup_steps=50)], 4, 50) == (True, False)
    assert evaluated([concept(cooldown_steps=5)], 5, 50) == (False,)


def test_one_step_by_hand() -> None:
    """Scale 2, weight .5, no threshold: g = 2 * .5 * (noise - negative) + .1 * m; m' = .6 m + .4 g."""
    edits = [(concept(weight=0.5),)]
    noise, negative, momentum = (
        torch.full((1, 1, 1, 2, 2), 3.0),
        torch.ones(1, 1, 2, 2),
        torch.ones(1, 1, 2, 2),
    )
    table = concept_table(edits, 0.6, torch.device("cpu"))
    gain, following = semantic_guidance(noise, negative, table, [mixture(edits[0], 4)], momentum)
    torch.testing.assert_close(gain, torch.full((1, 1, 2, 2), 2.1))
    torch.testing.assert_close(following, torch.full((1, 1, 2, 2), 0.6 + 0.4 * 2.1))


def test_the_threshold_keeps_the_largest_of_each_channel() -> None:
    edits = [(concept(threshold=0.75, guidance_scale=1.0, warmup_steps=0, momentum_scale=0.0),)]
    noise = torch.tensor([[1.0, -2.0, 3.0, -4.0, 0.5], [10.0, 20.0, 30.0, 40.0, 50.0]]).reshape(1, 1, 2, 1, 5)
    table = concept_table(edits, 0.6, torch.device("cpu"))
    zeros = torch.zeros(1, 2, 1, 5)
    gain, _ = semantic_guidance(noise, zeros, table, [mixture(edits[0], 0)], zeros)
    assert gain.flatten(1).tolist() == [[0, 0, 3, -4, 0, 0, 0, 0, 40, 50]]
