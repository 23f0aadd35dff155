"""Diffusion pipelines with random weights that run in a fraction of a second on a CPU."""

from __future__ import annotations

from string import ascii_lowercase
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    FlowMatchEulerDiscreteScheduler,
    FluxKontextPipeline,
    FluxTransformer2DModel,
    PNDMScheduler,
    StableDiffusionInstructPix2PixPipeline,
    StableDiffusionPipeline,
    UNet2DConditionModel,
    UniPCMultistepScheduler,
)
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTokenizer,
    T5Config,
    T5EncoderModel,
    T5TokenizerFast,
)

from dataset_builder.edit.denoise import Parts

torch.set_num_threads(1)  # networks this small only lose by sharing

SIDE = 16  # pixels; the latents have half of it
SCHEDULERS = {
    "ddim": DDIMScheduler,
    "dpm": DPMSolverMultistepScheduler,
    "unipc": UniPCMultistepScheduler,
    "pndm": PNDMScheduler,
    "ancestral": EulerAncestralDiscreteScheduler,
}


def tiny_tokenizer() -> CLIPTokenizer:
    letters = "abcdefghijklmnopqrstuvwxyz,"
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    return CLIPTokenizer(
        vocab={word: index for index, word in enumerate(words)}, merges=[], model_max_length=77
    )


def tiny_text_encoder() -> CLIPTextModel:
    config = CLIPTextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=37,
        num_attention_heads=4,
        num_hidden_layers=2,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
    )
    return CLIPTextModel(config).eval()


def tiny_unet(in_channels: int = 4) -> UNet2DConditionModel:
    return UNet2DConditionModel(
        block_out_channels=(32, 64),
        layers_per_block=1,
        sample_size=SIDE // 2,
        in_channels=in_channels,
        out_channels=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=4,
    ).eval()


def tiny_vae() -> AutoencoderKL:
    return AutoencoderKL(
        block_out_channels=(32, 64),
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        latent_channels=4,
        sample_size=SIDE,
    ).eval()


def tiny_scheduler(name: str = "ddim") -> Any:
    """Few betas: an untrained network removes no noise, and real ones would blow latents up to 60."""
    config = {
        "num_train_timesteps": 1000,
        "beta_start": 0.00085,
        "beta_end": 0.002,
        "beta_schedule": "scaled_linear",
    }
    if name == "ddim":
        config |= {"clip_sample": False, "set_alpha_to_one": False, "steps_offset": 1}
    if name == "pndm":
        config |= {"skip_prk_steps": True, "steps_offset": 1}
    return SCHEDULERS[name](**config)


def tiny_parts(scheduler: str = "ddim", seed: int = 0) -> Parts:
    torch.manual_seed(seed)
    return Parts(
        unet=tiny_unet(),
        vae=tiny_vae(),
        text_encoder=tiny_text_encoder(),
        tokenizer=tiny_tokenizer(),
        scheduler=tiny_scheduler(scheduler),
        facts={"checkpoint": "tiny"},
    )


def tiny_pipeline(scheduler: str = "ddim", seed: int = 0) -> StableDiffusionPipeline:
    parts = tiny_parts(scheduler, seed)
    return StableDiffusionPipeline(
        vae=parts.vae,
        text_encoder=parts.text_encoder,
        tokenizer=parts.tokenizer,
        unet=parts.unet,
        scheduler=parts.scheduler,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def tiny_instruct_pix2pix() -> StableDiffusionInstructPix2PixPipeline:
    torch.manual_seed(0)
    return StableDiffusionInstructPix2PixPipeline(
        vae=tiny_vae(),
        text_encoder=tiny_text_encoder(),
        tokenizer=tiny_tokenizer(),
        unet=tiny_unet(in_channels=8),
        scheduler=tiny_scheduler(),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )


def tiny_flux_kontext() -> FluxKontextPipeline:
    torch.manual_seed(0)
    letters = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -1.0)]
    t5 = T5Config(vocab_size=64, d_model=32, d_kv=8, d_ff=37, num_layers=1, num_heads=4)
    return FluxKontextPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(),
        vae=AutoencoderKL(
            block_out_channels=(4,),
            latent_channels=1,
            norm_num_groups=1,
            use_quant_conv=False,
            use_post_quant_conv=False,
            shift_factor=0.06,
            scaling_factor=1.5,
        ),
        text_encoder=tiny_text_encoder(),
        tokenizer=tiny_tokenizer(),
        text_encoder_2=T5EncoderModel(t5).eval(),
        tokenizer_2=T5TokenizerFast(vocab=letters + [(letter, -2.0) for letter in ascii_lowercase]),
        transformer=FluxTransformer2DModel(
            patch_size=1,
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            axes_dims_rope=(4, 4, 8),
        ),
        image_encoder=None,
        feature_extractor=None,
    )
