"""Self-attention without the copies that torch's own module makes on the way."""

from __future__ import annotations

from typing import Any

from targets.base.extras import require


def without_copies(model: Any) -> int:
    """Replace the self-attentions of open_clip's residual blocks in place; return how many.

    ``nn.MultiheadAttention`` moves the batch to the second axis and lays queries, keys and values out
    anew, which is a tenth of a large image tower's time. The same parameters and the same
    ``scaled_dot_product_attention`` give the same result on views.
    """
    nn = require("torch.nn", "clip", "a target on torch")
    blocks = [
        module
        for module in model.modules()
        if isinstance(getattr(module, "attn", None), nn.MultiheadAttention) and _is_plain(module.attn)
    ]
    kind = _self_attention()
    for block in blocks:
        block.attn = kind(block.attn)
    return len(blocks)


def _is_plain(attention: Any) -> bool:
    return bool(
        attention.batch_first
        and attention._qkv_same_embed_dim
        and attention.in_proj_bias is not None
        and attention.bias_k is None
        and not attention.add_zero_attn
    )


def _self_attention() -> type[Any]:
    """The module's class, made here because torch is optional."""
    torch: Any = require("torch", "clip", "a target on torch")
    functional = torch.nn.functional
    base: Any = torch.nn.Module

    class SelfAttention(base):  # type: ignore[misc]
        def __init__(self, original: Any) -> None:
            super().__init__()
            self.original = original
            # A new module starts in training, in which the original answers.
            self.train(original.training)

        def forward(self, query: Any, key: Any, value: Any, **options: Any) -> tuple[Any, None]:
            plain = key is query and value is query and options.get("attn_mask") is None
            if self.training or not plain:
                answer: tuple[Any, None] = self.original(query, key, value, **options)
                return answer
            own = self.original
            count, length, width = query.shape
            projected = functional.linear(query, own.in_proj_weight, own.in_proj_bias)
            heads = projected.view(count, length, 3, own.num_heads, width // own.num_heads)
            q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
            mixed = functional.scaled_dot_product_attention(q, k, v)
            return own.out_proj(mixed.transpose(1, 2).reshape(count, length, width)), None

    return SelfAttention
