"""A person is what the group and the seed say, within the limits of the tables."""

import numpy as np
import pytest

from dataset_builder.heads.distortion import distorted
from dataset_builder.heads.identity import GROUPS, sample_person, years
from dataset_builder.heads.shape import AXES, macro_weights
from dataset_builder.heads.variation import sample_variation


@pytest.mark.parametrize("group", GROUPS)
def test_same_seed_same_person(group: str) -> None:
    assert sample_person(group, 7) == sample_person(group, 7)
    assert sample_person(group, 7) != sample_person(group, 8)
    assert sample_person(group, 7).sex == group[1]


def test_groups_do_not_share_draws() -> None:
    shapes = {tuple(sorted(sample_person(group, 3).shape.items())) for group in GROUPS}
    assert len(shapes) == len(GROUPS)


def test_an_unknown_group_is_named() -> None:
    with pytest.raises(ValueError, match=r"must be one of AM, AF, .* got 'XM'"):
        sample_person("XM", 1)


def test_shapes_keep_to_their_limits() -> None:
    for seed in range(30):
        shape = sample_person("WF", seed).shape
        for name, axis in AXES.items():
            for side in "lr":
                for end in (axis.low, axis.high):
                    # The two sides of a face differ by a few hundredths.
                    assert shape.get(f"{name.replace('*', side)}-{end}", 0.0) <= axis.limit + 0.3


def test_distortion_leaves_the_limits_and_its_key_decides_how() -> None:
    person = sample_person("IM", 4)
    first, again, other = (distorted(person, 0, key) for key in ("glasses", "glasses", "smile"))
    assert first == again
    assert first.shape != other.shape
    assert max(first.shape.values()) > 2 * max(axis.limit for axis in AXES.values())


def test_macro_weights_of_each_kind_add_up_to_one() -> None:
    weights = macro_weights({"african": 0.25, "caucasian": 0.75}, 0.8, 0.3, 0.4, -0.2)
    people = sum(w for name, w in weights.items() if "universal" not in name)
    build = sum(w for name, w in weights.items() if "universal" in name)
    np.testing.assert_allclose([people, build], 1.0)
    np.testing.assert_allclose(weights["macro/african-male-old"], 0.25 * 0.8 * 0.3)


def test_ages_run_from_25_to_75() -> None:
    assert (years(0.0), years(0.5), years(1.0)) == (25.0, 50.0, 75.0)


def test_variations_of_a_person_differ_in_light_and_camera() -> None:
    person = sample_person("BM", 2)
    first, second = sample_variation(person, 0), sample_variation(person, 1)
    assert first == sample_variation(person, 0)
    assert first.light != second.light
    assert first.yaw != second.yaw
    assert first.background != second.background
