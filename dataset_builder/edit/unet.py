"""A UNet's forward pass in two halves, cut where the text comes in for the first time.

Semantic guidance asks the UNet about the same latents under three texts or more. Up to the first
cross-attention the answers are the same: at Stable Diffusion's shapes one of its five largest
self-attentions and a twentieth of all arithmetic. ``head`` computes that once a row of latents, ``body`` the
rest once a text. Both use the model's own layers; the result is the model's, up to rounding.
"""

from __future__ import annotations

from typing import Any

import torch

Hidden = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def divisible(unet: Any, height: int, width: int) -> bool:
    """Whether the two halves make up the whole for this model and these latents.

    True for the plain UNets of Stable Diffusion 1 and 2. Where a model has more (class labels, SDXL's added
    conditions, a first block without attention), its own forward pass must be used.
    """
    config = unet.config
    extras = ("class_embed_type", "addition_embed_type", "encoder_hid_dim", "time_cond_proj_dim")
    plain = all(getattr(config, name, None) is None for name in extras) and not config.center_input_sample
    first = unet.down_blocks[0]
    if not plain or unet.time_embed_act is not None or not getattr(first, "has_cross_attention", False):
        return False
    attention = first.attentions[0]
    block = attention.transformer_blocks[0]
    usual = block.norm_type == "layer_norm" and block.pos_embed is None and not block.only_cross_attention
    factor = 2**unet.num_upsamplers
    return usual and attention.is_input_continuous and height % factor == 0 and width % factor == 0


def head(unet: Any, samples: torch.Tensor, timestep: torch.Tensor) -> Hidden:
    """Everything before the first cross-attention.

    Args:
        unet: a model that ``divisible`` accepts.
        samples: (n, channels, height, width) latents.
        timestep: one for all.

    Returns:
        The outputs of the first convolution and of the first residual block, (n, c, height, width), and of
        the first self-attention, (n, height * width, c).
    """
    first = unet.down_blocks[0]
    attention = first.attentions[0]
    block = attention.transformer_blocks[0]
    convolved = unet.conv_in(samples)
    residual = first.resnets[0](convolved, _time(unet, timestep, samples))
    tokens, _ = attention._operate_on_continuous_inputs(residual)
    return convolved, residual, block.attn1(block.norm1(tokens)) + tokens


def body(unet: Any, hidden: Hidden, timestep: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
    """Everything from the first cross-attention on.

    Args:
        unet: a model that ``divisible`` accepts.
        hidden: what ``head`` gave, one row for each text.
        timestep: one for all.
        texts: (n, tokens, width) embeddings.

    Returns:
        (n, channels, height, width) noise.
    """
    convolved, residual, tokens = hidden
    time = _time(unet, timestep, convolved)
    sample = _rest_of_attention(unet.down_blocks[0].attentions[0], residual, tokens, texts)
    sample, skips = _rest_of_block(unet.down_blocks[0], sample, time, texts)
    skips = [convolved, *skips]
    for down in unet.down_blocks[1:]:
        sample, more = down(hidden_states=sample, temb=time, **_conditions(down, texts))
        skips += more
    sample = unet.mid_block(sample, time, **_conditions(unet.mid_block, texts))
    for up in unet.up_blocks:
        own = tuple(skips[-len(up.resnets) :])
        skips = skips[: -len(up.resnets)]
        sample = up(hidden_states=sample, temb=time, res_hidden_states_tuple=own, **_conditions(up, texts))
    noise: torch.Tensor = unet.conv_out(unet.conv_act(unet.conv_norm_out(sample)))
    return noise


def _time(unet: Any, timestep: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    # One row for all samples: they are at the same step, and layers broadcast it.
    embedded: torch.Tensor = unet.time_embedding(unet.get_time_embed(sample=like[:1], timestep=timestep))
    return embedded


def _conditions(block: Any, texts: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"encoder_hidden_states": texts} if getattr(block, "has_cross_attention", False) else {}


def _rest_of_attention(
    attention: Any, residual: torch.Tensor, tokens: torch.Tensor, texts: torch.Tensor
) -> torch.Tensor:
    block, *more = attention.transformer_blocks
    tokens = block.attn2(block.norm2(tokens), encoder_hidden_states=texts) + tokens
    tokens = block.ff(block.norm3(tokens)) + tokens
    for block in more:
        tokens = block(tokens, encoder_hidden_states=texts)
    batch, _, height, width = residual.shape
    output: torch.Tensor = attention._get_output_for_continuous_inputs(
        hidden_states=tokens,
        residual=residual,
        batch_size=batch,
        height=height,
        width=width,
        inner_dim=tokens.shape[-1],
    )
    return output


def _rest_of_block(
    block: Any, sample: torch.Tensor, time: torch.Tensor, texts: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    skips = [sample]
    for resnet, attention in zip(block.resnets[1:], block.attentions[1:], strict=True):
        sample = attention(resnet(sample, time), encoder_hidden_states=texts, return_dict=False)[0]
        skips.append(sample)
    for down in block.downsamplers or ():
        sample = down(sample)
        skips.append(sample)
    return sample, skips
