"""The UNet in two halves is the UNet."""

from __future__ import annotations

import torch
from diffusers import UNet2DConditionModel

from dataset_builder.edit.unet import body, divisible, head
from tests.dataset_builder.tiny import tiny_unet


def test_the_halves_make_the_whole() -> None:
    torch.manual_seed(0)
    unet, step = tiny_unet(), torch.tensor(321)
    latents, texts = torch.randn(2, 4, 8, 8), torch.randn(3, 77, 32)
    rows = torch.tensor([0, 1, 0])
    with torch.inference_mode():
        whole = unet(latents[rows], step, encoder_hidden_states=texts).sample
        hidden = tuple(part[rows] for part in head(unet, latents, step))
        assert divisible(unet, 8, 8)
        torch.testing.assert_close(body(unet, hidden, step, texts), whole, rtol=0, atol=1e-5)


def test_a_deep_model_with_linear_projections_too() -> None:
    torch.manual_seed(0)
    unet = UNet2DConditionModel(
        block_out_channels=(32, 32, 64),
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        transformer_layers_per_block=2,
        cross_attention_dim=32,
        attention_head_dim=4,
        use_linear_projection=True,
    ).eval()
    latents, texts, step = torch.randn(2, 4, 8, 8), torch.randn(2, 77, 32), torch.tensor(5)
    with torch.inference_mode():
        whole = unet(latents, step, encoder_hidden_states=texts).sample
        torch.testing.assert_close(
            body(unet, head(unet, latents, step), step, texts), whole, rtol=0, atol=1e-5
        )


def test_what_can_not_be_cut_is_left_whole() -> None:
    assert not divisible(tiny_unet(), 7, 8)
    no_attention_first = UNet2DConditionModel(
        block_out_channels=(32, 64),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=4,
    )
    assert not divisible(no_attention_first, 8, 8)
