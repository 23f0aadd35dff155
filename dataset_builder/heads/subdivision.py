"""Catmull-Clark subdivision as one sparse matrix, so that it is worked out once and applied to any shape."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from dataset_builder.heads.fields import Ints


def catmull_clark(quads: Ints, count: int) -> tuple[sp.csr_matrix, Ints]:
    """One subdivision step of quads (m, 4) over ``count`` vertices.

    Returns the matrix (new vertices, ``count``) and the new quads (4 m, 4). New vertices are the old ones,
    then one for each edge, then one for each quad.
    """
    m = len(quads)
    corner_face = np.repeat(np.arange(m), 4)
    face_points = sp.csr_matrix((np.full(4 * m, 0.25), (corner_face, quads.ravel())), (m, count))
    pairs = np.sort(np.stack([quads, np.roll(quads, -1, 1)], 2).reshape(-1, 2), axis=1)
    edges, edge_of, uses = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    edge_of = edge_of.ravel()
    inner = uses == 2
    midpoints = _incidence(np.repeat(np.arange(len(edges)), 2), edges.ravel(), (len(edges), count)) * 0.5
    edge_faces = _incidence(edge_of, corner_face, (len(edges), m))
    edge_points = (
        sp.diags(np.where(inner, 0.5, 1.0)) @ midpoints
        + sp.diags(np.where(inner, 0.25, 0.0)) @ edge_faces @ face_points
    )
    moved = _moved_vertices(quads, edges, inner, midpoints, face_points, count)
    matrix = sp.vstack([moved, edge_points, face_points]).tocsr()
    side = edge_of.reshape(m, 4) + count
    centre = np.arange(m) + count + len(edges)
    fine = [np.stack([quads[:, k], side[:, k], centre, side[:, k - 1]], 1) for k in range(4)]
    return matrix, np.stack(fine, 1).reshape(-1, 4)


def _moved_vertices(
    quads: Ints,
    edges: Ints,
    inner: np.ndarray,
    midpoints: sp.csr_matrix,
    face_points: sp.csr_matrix,
    count: int,
) -> sp.csr_matrix:
    """Where old vertices go: the usual mean inside, the mean along the border on it."""
    m = len(quads)
    at_faces = _incidence(quads.ravel(), np.repeat(np.arange(m), 4), (count, m))
    at_edges = _incidence(edges.ravel(), np.repeat(np.arange(len(edges)), 2), (count, len(edges)))
    valence = np.maximum(_row_sums(at_faces), 1.0)
    edge_valence = np.maximum(_row_sums(at_edges), 1.0)
    same = sp.identity(count, format="csr")
    inside = sp.diags(1.0 / valence) @ (
        sp.diags(1.0 / valence) @ at_faces @ face_points
        + sp.diags(2.0 / edge_valence) @ at_edges @ midpoints
        + sp.diags(valence - 3.0) @ same
    )
    at_border = at_edges @ sp.diags((~inner).astype(float))
    border = 0.5 * sp.diags(1.0 / np.maximum(_row_sums(at_border), 1.0)) @ at_border @ midpoints + 0.5 * same
    on_border = np.zeros(count)
    on_border[edges[~inner].ravel()] = 1.0
    return sp.csr_matrix(sp.diags(1.0 - on_border) @ inside + sp.diags(on_border) @ border)


def _incidence(rows: Ints, columns: Ints, shape: tuple[int, int]) -> sp.csr_matrix:
    return sp.csr_matrix((np.ones(len(rows)), (rows, columns)), shape)


def _row_sums(matrix: sp.csr_matrix) -> np.ndarray:
    return np.asarray(matrix.sum(axis=1)).ravel()
