"""Subdivision, noise and seed selection against cases worked by hand."""

import numpy as np
import pytest

from dataset_builder.heads.fields import grid_triangles, linear, noise, smoothstep, stream, vertex_normals
from dataset_builder.heads.selection import choose
from dataset_builder.heads.subdivision import catmull_clark

CUBE = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
SIDES = np.array([[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]])


def test_catmull_clark_of_a_cube() -> None:
    matrix, quads = catmull_clark(SIDES, len(CUBE))
    fine = matrix @ CUBE
    assert fine.shape == (8 + 12 + 6, 3)
    assert quads.shape == (24, 4)
    # Corner: (F + 2 E) / 3 with F = 1/3 and E = 2/3; edge: mean of its ends and two face points.
    np.testing.assert_allclose(np.abs(fine[:8]), 5 / 9)
    np.testing.assert_allclose(np.sort(np.abs(fine[8:20]), axis=1), np.tile([0, 0.75, 0.75], (12, 1)))
    np.testing.assert_allclose(np.sort(np.abs(fine[20:]), axis=1), np.tile([0, 0, 1], (6, 1)))


def test_catmull_clark_keeps_a_border_on_its_line() -> None:
    square = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
    matrix, _ = catmull_clark(np.array([[0, 1, 2, 3]]), 4)
    fine = matrix @ square
    np.testing.assert_allclose(fine[0], [0.125, 0.125, 0])  # 3/4 of the corner, 1/8 of each neighbour
    np.testing.assert_allclose(fine[4:8].sum(0) / 4, [0.5, 0.5, 0])


def test_ramps_and_colours() -> None:
    np.testing.assert_allclose(smoothstep([-1, 0, 0.5, 1, 2], 0, 1), [0, 0, 0.5, 1, 1])
    np.testing.assert_allclose(linear([0.0, 0.04045, 1.0]), [0.0, 0.04045 / 12.92, 1.0])
    np.testing.assert_allclose(linear(0.5), 0.21404, atol=1e-5)


def test_streams_and_noise_depend_on_every_part_of_their_key() -> None:
    points = np.random.default_rng(0).random((200, 3))
    assert np.array_equal(noise(points, 5.0, "AM", 1, "a"), noise(points, 5.0, "AM", 1, "a"))
    keys = [("AM", 1, "a"), ("AF", 1, "a"), ("AM", 2, "a"), ("AM", 1, "b")]
    assert len({float(stream(*key).random()) for key in keys}) == 4
    assert len({float(noise(points, 5.0, *key).sum()) for key in keys}) == 4


def test_a_flat_grid_has_upright_normals() -> None:
    y, x = np.mgrid[0:3, 0:4].astype(float)
    flat = np.stack([x.ravel(), y.ravel(), np.zeros(12)], 1)
    normals = vertex_normals(flat, grid_triangles(3, 4))
    np.testing.assert_allclose(np.abs(normals), np.tile([0.0, 0.0, 1.0], (12, 1)))


def test_selection_takes_the_identities_least_alike() -> None:
    # Three directions at right angles, each with a near double: the doubles must not be chosen together.
    axes = np.eye(4)[[0, 0, 1, 1, 2, 2]]
    axes[1::2, 3] = 0.1
    embeddings = np.repeat(axes[:, None], 2, axis=1)
    choice = choose(embeddings, 3)
    assert {k // 2 for k in choice.chosen} == {0, 1, 2}
    np.testing.assert_allclose([choice.same, choice.different], [1.0, 0.0], atol=1e-9)


def test_selection_leaves_out_unseen_and_unsteady_identities() -> None:
    embeddings = np.repeat(np.eye(4)[:, None], 2, axis=1)
    embeddings[1, 0] = np.nan
    embeddings[2, 1] = np.eye(4)[3]
    assert set(choose(embeddings, 2).chosen) == {0, 3}
    with pytest.raises(ValueError, match="need 3 usable identities, got 2 of 4"):
        choose(embeddings, 3)
