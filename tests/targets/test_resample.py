"""The resize equals Pillow's in every pixel."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

torch = pytest.importorskip("torch", reason="needs torch")

from targets.frame import Frame  # noqa: E402
from targets.resample import centre_crop, resize, tables  # noqa: E402


@pytest.mark.parametrize("extreme", [False, True])
@pytest.mark.parametrize(
    ("width", "height", "to_width", "to_height"),
    [
        (512, 512, 224, 224),
        (300, 200, 336, 224),
        (641, 480, 299, 224),
        (100, 120, 224, 268),
        (225, 224, 224, 224),
    ],
)
def test_equals_pillow(width: int, height: int, to_width: int, to_height: int, extreme: bool) -> None:
    generator = np.random.default_rng(width + height)
    pixels = generator.integers(0, 2 if extreme else 256, (height, width, 3), dtype=np.uint8)
    pixels = pixels * 255 if extreme else pixels
    expected = np.asarray(Image.fromarray(pixels).resize((to_width, to_height), Image.Resampling.BICUBIC))
    across, down = tables(width, to_width, "cpu"), tables(height, to_height, "cpu")
    assert np.array_equal(resize(torch.from_numpy(pixels)[None], across, down)[0].numpy(), expected)


@pytest.mark.parametrize("size", [(512, 512), (300, 200), (200, 300), (333, 517)])
def test_the_frame_equals_torchvisions(size: tuple[int, int]) -> None:
    transforms = pytest.importorskip("torchvision.transforms", reason="needs torchvision")
    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (*size[::-1], 3), dtype=np.uint8))
    bicubic = transforms.InterpolationMode.BICUBIC
    expected = transforms.CenterCrop(64)(transforms.Resize(64, bicubic)(image))
    wide, high = Frame(64, squash=False).size_of(*size)
    whole = torch.from_numpy(np.array(image))[None]
    ours = centre_crop(resize(whole, tables(size[0], wide, "cpu"), tables(size[1], high, "cpu")), 64)
    assert np.array_equal(ours[0].numpy(), np.asarray(expected))
