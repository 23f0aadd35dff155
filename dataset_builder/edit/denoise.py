"""The parts of a Stable Diffusion checkpoint on one device, asked in batches of fixed size.

Batches are padded to one of two sizes, so that a compiled network is compiled twice and the same plan runs
the same kernels again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch

from dataset_builder.edit.trajectories import Question
from dataset_builder.edit.unet import body, divisible, head
from targets.base.errors import InputError

TAIL = 4
# (n,) rows of latents and (n, tokens, width) texts -> (n, channels, height, width) noise.
Ask = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
ValueT = TypeVar("ValueT")


@dataclass(frozen=True)
class Parts:
    """What semantic guidance needs of a diffusers pipeline.

    Attributes:
        unet: UNet2DConditionModel conditioned on one text encoder (Stable Diffusion 1 and 2).
        vae: AutoencoderKL.
        text_encoder: CLIPTextModel.
        tokenizer: its tokenizer.
        scheduler: any diffusers scheduler; never changed, a run works on a copy.
        safety_checker: StableDiffusionSafetyChecker, or None.
        feature_extractor: what prepares pictures for it, or None.
        facts: provenance: checkpoint, revision, digests.
    """

    unet: Any
    vae: Any
    text_encoder: Any
    tokenizer: Any
    scheduler: Any
    safety_checker: Any = None
    feature_extractor: Any = None
    facts: dict[str, Any] = field(default_factory=dict)


def chunks(count: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Cut ``count`` items into batches of ``size`` and, at the end, of a quarter of it.

    Yields:
        Start, number of items, padded size of each batch.
    """
    start, tail = 0, -(-size // TAIL)
    while start < count:
        left = count - start
        padded = size if left > size - tail else tail
        yield start, min(left, padded), padded
        start += min(left, padded)


class Denoiser:
    """The networks of a checkpoint, moved to a device and asked in batches.

    Attributes:
        batch_size: UNet evaluations a batch, now.
        decode_size: pictures the VAE decodes a batch, now.
        halvings: what ran out of memory, in words, once for each time a batch was halved.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        device: torch.device,
        dtype: torch.dtype,
        batch_size: int,
        decode_size: int,
        compiled: bool,
    ) -> None:
        self.device, self.dtype = device, dtype
        self.batch_size, self.decode_size = batch_size, decode_size
        self.halvings: list[str] = []
        self.tokenizer = parts.tokenizer
        self.text_encoder = _moved(parts.text_encoder, device, dtype)
        self.unet = _moved(parts.unet, device, dtype).to(memory_format=torch.channels_last)
        self.vae = _moved(parts.vae, device, dtype).to(memory_format=torch.channels_last)
        compile_ = partial(torch.compile, dynamic=False) if compiled else _as_it_is
        self._unet, self._decode = compile_(self.unet), compile_(self.vae.decode)
        self._head, self._body = compile_(partial(head, self.unet)), compile_(partial(body, self.unet))

    def latent_shape(self, height: int, width: int) -> tuple[int, int, int]:
        """Channels, height and width of the latents of one picture, given in pixels.

        Raises:
            InputError: the size is no multiple of what the VAE makes of one latent.
        """
        factor = 2 ** (len(self.vae.config.block_out_channels) - 1)
        if height % factor or width % factor:
            raise InputError(f"height and width must be multiples of {factor}, got {height} and {width}")
        return self.unet.config.in_channels, height // factor, width // factor

    def encode(self, texts: Sequence[str]) -> torch.Tensor:
        """Embed texts, each padded to the tokenizer's length.

        Returns:
            (len(texts), tokens, width) in the working precision. A text that is too long keeps its
            beginning and its end token, and a warning says what was cut.
        """
        for text in texts:
            self._warn_if_cut(text)
        tokens = self.tokenizer(
            list(texts),
            padding="max_length",
            max_length=self.tokenizer.model_max_length,
            truncation=True,
            return_tensors="pt",
        ).input_ids
        parts = [self.text_encoder(some.to(self.device))[0] for some in tokens.split(self.batch_size)]
        return torch.cat(parts).to(self.dtype)

    def _warn_if_cut(self, text: str) -> None:
        limit = self.tokenizer.model_max_length
        tokens = self.tokenizer(text, truncation=False, verbose=False).input_ids
        if len(tokens) > limit:
            lost = self.tokenizer.decode(tokens[limit - 1 : -1]).strip()
            warnings.warn(
                f"a prompt may have {limit} tokens, got {len(tokens)}: '{lost}' is cut from '{text}'",
                stacklevel=4,
            )

    def noise(
        self,
        latents: torch.Tensor,
        timestep: torch.Tensor,
        questions: Sequence[Question],
        embeddings: torch.Tensor,
        place: dict[str, int],
    ) -> torch.Tensor:
        """Ask the UNet.

        Args:
            latents: (rows, channels, height, width), scaled for the step.
            timestep: of all rows.
            questions: (row, text) pairs.
            embeddings: (texts, tokens, width).
            place: text -> its index in ``embeddings``.

        Returns:
            (len(questions), channels, height, width) float32.

        Raises:
            torch.OutOfMemoryError: even a batch of one does not fit.
        """
        rows = torch.tensor([question.row for question in questions], device=self.device)
        texts = torch.tensor([place[question.text] for question in questions], device=self.device)
        samples = latents.to(self.dtype, memory_format=torch.channels_last)
        ask = self._whole(samples, timestep)
        if divisible(self.unet, *latents.shape[2:]):
            ask = self._halves(samples, timestep)

        def evaluate(start: int, count: int, padded: int) -> torch.Tensor:
            pick = self._pick(start, count, padded)
            return ask(rows[pick], embeddings[texts[pick]])[:count].float()

        return torch.cat(self._batched(evaluate, len(questions), "batch_size"))

    def _whole(self, samples: torch.Tensor, timestep: torch.Tensor) -> Ask:
        def ask(rows: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
            answer = self._unet(samples[rows], timestep, encoder_hidden_states=texts, return_dict=False)
            noise: torch.Tensor = answer[0]
            return noise

        return ask

    def _halves(self, samples: torch.Tensor, timestep: torch.Tensor) -> Ask:
        def evaluate(start: int, count: int, padded: int) -> list[torch.Tensor]:
            return [part[:count] for part in self._head(samples[self._pick(start, count, padded)], timestep)]

        batches = self._batched(evaluate, len(samples), "batch_size")
        hidden = [torch.cat(parts) for parts in zip(*batches, strict=True)]

        def ask(rows: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
            noise: torch.Tensor = self._body(tuple(part[rows] for part in hidden), timestep, texts)
            return noise

        return ask

    def _pick(self, start: int, count: int, padded: int) -> torch.Tensor:
        """Indices of a batch, its last item repeated to fill it."""
        return torch.arange(start, start + padded, device=self.device).clamp(max=start + count - 1)

    def decode(self, latents: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Turn (n, channels, height, width) latents into pictures.

        Returns:
            (n, H, W, 3) uint8 on the CPU, and (n,) bool: False where the decoded picture is not finite.
        """
        scaled = latents / self.vae.config.scaling_factor
        samples = scaled.to(self.dtype, memory_format=torch.channels_last)

        def evaluate(start: int, count: int, padded: int) -> tuple[torch.Tensor, torch.Tensor]:
            batch = samples[self._pick(start, count, padded)]
            picture = self._decode(batch, return_dict=False)[0][:count].float()
            pixels = (picture.nan_to_num() / 2 + 0.5).clamp(0, 1).mul(255).round().to(torch.uint8)
            return pixels.permute(0, 2, 3, 1).contiguous().cpu(), picture.isfinite().flatten(1).all(1).cpu()

        pixels, finite = zip(*self._batched(evaluate, len(samples), "decode_size"), strict=True)
        return torch.cat(pixels), torch.cat(finite)

    def _batched(self, evaluate: Callable[[int, int, int], ValueT], count: int, setting: str) -> list[ValueT]:
        """Run ``evaluate`` over all batches; start anew with half the size when memory runs out."""
        while True:
            size = getattr(self, setting)
            try:
                return [evaluate(*chunk) for chunk in chunks(count, size)]
            except torch.OutOfMemoryError:
                if size == 1:
                    raise
                self.halvings.append(f"{setting} {size} -> {size // 2}")
                setattr(self, setting, size // 2)
            torch.cuda.empty_cache()


def _as_it_is(function: Any) -> Any:
    return function


def _moved(network: Any, device: torch.device, dtype: torch.dtype) -> Any:
    # diffusers warns about any cast, so a network loaded in the right precision is only moved.
    moved = network.to(device) if network.dtype == dtype else network.to(device, dtype)
    return moved.eval()
