"""What targets with a face detector do with a picture that shows several faces: their setting ``faces``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from targets.base.errors import TargetError
from targets.protocol import NO_ANSWER, NO_FACE, NoScores

FacesRule = Literal["largest", "error", "no_answer"]
FaceT = TypeVar("FaceT")


class SeveralFacesError(TargetError):
    """A picture shows several faces, and the setting ``faces`` is "error"."""


def one_of(faces: Sequence[FaceT], area: Callable[[FaceT], float], rule: FacesRule) -> FaceT | NoScores:
    """The face that is meant, or the reason why there is none.

    Args:
        faces: all that were found.
        area: of a face's box.
        rule: for several: "largest" takes the one with the largest box, "no_answer" none, "error" raises.

    Raises:
        SeveralFacesError: there are several, and the rule is "error".
    """
    if not len(faces):
        return NO_FACE
    if len(faces) > 1 and rule == "error":
        raise SeveralFacesError(
            f"{len(faces)} faces where there must be one; take the picture out, "
            "or choose --set faces=largest or --set faces=no_answer"
        )
    if len(faces) > 1 and rule == "no_answer":
        return NO_ANSWER
    return max(faces, key=area)


def in_words(detector: str, rule: FacesRule) -> str:
    """The detector and what it does with several faces, for a target's card."""
    several = {
        "largest": "of several faces the one with the largest box",
        "no_answer": "several faces are no answer",
        "error": "several faces end the run",
    }
    return f"{detector}; {several[rule]}"


def hints(rule: FacesRule) -> dict[str, str]:
    """What is said beside a reason, for the target's ``hints``."""
    return {NO_ANSWER: "it shows several faces, and faces = no_answer"} if rule == "no_answer" else {}
