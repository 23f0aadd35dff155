"""Recognition error rates of an embedder: threshold, FMR, FNMR and failures to acquire, for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from harness.faces import Faces, cosines, faces_of, genuine, probe_pairs
from harness.gallery import (
    AT_LEAST,
    DEPTH,
    Gallery,
    RecognitionOptions,
    distributions,
    open_gallery,
    set_thresholds,
    share_reached,
)
from harness.outcomes import Outcomes
from harness.recognition_rates import Compared, Resampler, acquisition, number
from harness.recognition_record import (
    Inequity,
    InequityMeasure,
    Recognition,
    RecognitionCell,
)
from harness.stats import equitability
from harness.stats.comparisons import (
    Comparisons,
    Side,
    floor_for,
    impostor_histograms,
    impostors,
    of_group,
)
from harness.stats.numerics import Floats, Ints
from harness.stats.resampling import double_or_nothing, replicate_thresholds, replicate_totals

RULES = {
    "enrolment": "every distinct source picture is a reference of its own; no score is fused",
    "template": "the target's vector, scaled to length 1; the score is the cosine, rounded to 6 decimals",
    "match": "score >= threshold",
    "threshold": "one for all groups, nearest to the target FMR among source pictures of different people of "
    "the same group, all groups' comparisons together; re-estimated in every resample",
    "genuine": "before: a pair's source picture with the other source pictures of the person; after: its "
    "transformed picture with the same references; own_source: with the source picture itself",
    "impostor": "before: a pair's source picture with the source pictures of other people; after: its "
    "transformed picture with the same references; both_edited: pairs' pictures among each other",
    "failure_to_acquire": "no_face and no_answer; left out on both sides of a change, and once more counted "
    "as non-matches",
    "selector": "unknown to this run: variations chosen by an embedder flatter FNMR, see the dataset's card",
    "intervals": "Wilson on the effective size of the double-or-nothing bootstrap over people, half of its "
    "known excess taken out; changes by square-and-add with the resamples' correlation",
}


def recognise(
    outcomes: Outcomes,
    target: str,
    attributes: Sequence[str],
    groups: Sequence[str],
    options: RecognitionOptions,
    *,
    seed: int = 0,
) -> tuple[Recognition, ...]:
    """Report on a recogniser; nothing for a target that is none, or where no face was acquired.

    Args:
        outcomes: of pairs.
        target: spec of the target.
        attributes, groups: in the record's order.
        options: how.
        seed: of the bootstrap and of the permutations.
    """
    if outcomes.embedded is None or not np.isfinite(outcomes.embedded.source).any():
        return ()
    faces = faces_of(outcomes, outcomes.embedded, groups)
    gallery = open_gallery(faces, options)
    thresholds = set_thresholds(faces, gallery, options)
    chosen = thresholds[0].threshold
    present = [name for name in attributes if (faces.attribute == name).any()]
    checks = len({(name, faces.group_of[p]) for name, p in zip(faces.attribute, faces.people, strict=True)})
    resampler = _resampler(faces, gallery, options, chosen, checks, seed)
    cells = _acquisition_cells(faces, present, resampler)
    inequity: list[Inequity] = []
    if chosen is not None:
        cells += _baseline_cells(faces, gallery, resampler)
        inequity += _baseline_inequity(faces, gallery, resampler, options, seed)
        for name in present:
            more, uneven = _attribute(faces, gallery, name, resampler, options, seed)
            cells, inequity = cells + more, inequity + uneven
    return (
        Recognition(
            target=target,
            level=options.level,
            draws=options.draws,
            permutations=options.permutations,
            seed=seed,
            rules=RULES,
            thresholds=tuple(thresholds),
            cells=tuple(cells),
            inequity=tuple(inequity),
            distributions=tuple(distributions(faces, gallery)),
        ),
    )


def _resampler(
    faces: Faces,
    gallery: Gallery,
    options: RecognitionOptions,
    chosen: float | None,
    checks: int,
    seed: int,
) -> Resampler:
    selected = double_or_nothing(len(faces.group_of), options.draws, seed)
    thresholds = np.full(options.draws, 0.0 if chosen is None else chosen)
    if chosen is not None and options.threshold is None:
        parts = [gallery.of(faces, group) for group in range(len(faces.groups))]
        totals = np.sum([replicate_totals(part, selected) for part in parts], axis=0)
        lowest = float(gallery.same.scores[-1])
        thresholds = replicate_thresholds(gallery.same, totals, selected, options.target_fmr, lowest)
    return Resampler(selected, chosen or 0.0, thresholds, options.level, checks)


def _acquisition_cells(
    faces: Faces, attributes: Sequence[str], resampler: Resampler
) -> list[RecognitionCell]:
    """Failures to acquire among the probes, where there is any in the run."""
    failed = [np.isnan(side[:, 0]).astype(float) for side in (faces.source, faces.transformed)]
    if not any(part.any() for part in failed):
        return []
    found = []
    for name, group, rows in _cells_of(faces, attributes):
        sides = [acquisition(part[rows], faces.people[rows], len(faces.group_of)) for part in failed]
        both = Compared(sides[0], sides[1])
        found.append(resampler.cell(name, group, "fta", "acquisition", both, both))
    return found


def _cells_of(faces: Faces, attributes: Sequence[str]) -> list[tuple[str, str, Ints]]:
    own = faces.group_of[faces.people]
    cells = [
        (name, group, np.flatnonzero((faces.attribute == name) & (own == place)))
        for name in attributes
        for place, group in enumerate(faces.groups)
    ]
    return [cell for cell in cells if len(cell[2])]


def _of_people(some: Comparisons, faces: Faces, group: int) -> Comparisons:
    """Narrow genuine comparisons to a group."""
    own = faces.group_of == group
    here = own[some.first]
    return replace(
        some,
        scores=some.scores[here],
        first=some.first[here],
        second=some.second[here],
        left=some.left * own,
    )


def _everybody(
    some: Comparisons, left: Floats, right: Floats, group: int, faces: Faces, *, same: bool
) -> Comparisons:
    """The same matches among all pictures, acquired or not."""
    wider = replace(some, left=left, right=right if some.design == "between" else some.right)
    return of_group(wider, faces.group_of, group, same=same)


def _baseline_cells(faces: Faces, gallery: Gallery, resampler: Resampler) -> list[RecognitionCell]:
    """Source faces alone: each group's error rates at the global threshold."""
    every = np.bincount(faces.gallery_people, minlength=len(faces.group_of)).astype(np.float64)
    found = []
    for place, group in enumerate(faces.groups):
        own = [_of_people(part, faces, place) for part in (gallery.own, gallery.own_with_fta)]
        sides = [Compared(part, None) for part in own]
        found.append(resampler.cell(None, group, "fnmr", "other_source", *sides))
        for same, kind in ((True, "same_group"), (False, "cross_group")):
            some = gallery.same if same else gallery.cross
            apart = Compared(of_group(some, faces.group_of, place, same=same), None)
            wider = Compared(_everybody(some, every, every, place, faces, same=same), None)
            found.append(resampler.cell(None, group, "fmr", kind, apart, wider))  # type: ignore[arg-type]
    return found


def _attribute(
    faces: Faces,
    gallery: Gallery,
    name: str,
    resampler: Resampler,
    options: RecognitionOptions,
    seed: int,
) -> tuple[list[RecognitionCell], list[Inequity]]:
    """Error rates of one attribute in every group, and how unevenly they fall after the edit."""
    rows = np.flatnonzero(faces.attribute == name)
    size = len(faces.group_of)
    before, after, people = probe_pairs(faces, rows)
    kept = np.isfinite(before) & np.isfinite(after)
    every = np.ones(len(kept), dtype=bool)
    pairs = [[genuine(side, people, size, part) for side in (before, after)] for part in (kept, every)]
    direct = cosines(faces.source[rows], faces.transformed[rows])
    own = [
        genuine(direct, faces.people[rows], size, part)
        for part in (np.isfinite(direct), np.ones(len(rows), bool))
    ]
    acquired = rows[np.isfinite(faces.source[rows, 0]) & np.isfinite(faces.transformed[rows, 0])]
    sides = [faces.side(part[acquired], faces.people[acquired]) for part in (faces.source, faces.transformed)]
    whole = [faces.side(part[rows], faces.people[rows]) for part in (faces.source, faces.transformed)]
    lowest = float(min(resampler.thresholds.min(), resampler.threshold))
    against = [_against(side, gallery.side, lowest) for side in sides]
    against_whole = [_against(side, gallery.side, lowest) for side in whole]
    floors = np.full(len(faces.groups), lowest)
    among = [impostors(side, None, floors, np.inf)[0] for side in sides]
    among_whole = [impostors(side, None, floors, np.inf)[0] for side in whole]
    probes = np.bincount(faces.people[rows], minlength=size).astype(np.float64)
    references = np.bincount(faces.gallery_people, minlength=size).astype(np.float64)
    cells = []
    for _, group, _ in _cells_of(faces, [name]):
        place = faces.groups.index(group)
        apart, wider = (Compared(*(_of_people(side, faces, place) for side in part)) for part in pairs)
        cells.append(resampler.cell(name, group, "fnmr", "other_source", apart, wider))
        alone, all_alone = (Compared(None, _of_people(part, faces, place)) for part in own)
        cells.append(resampler.cell(name, group, "fnmr", "own_source", alone, all_alone))
        for index, kind in ((0, "same_group"), (1, "cross_group")):
            same = index == 0
            apart = Compared(*(of_group(part[index], faces.group_of, place, same=same) for part in against))
            wider = Compared(
                *(
                    _everybody(part[index], probes, references, place, faces, same=same)
                    for part in against_whole
                )
            )
            cells.append(resampler.cell(name, group, "fmr", kind, apart, wider))  # type: ignore[arg-type]
        apart = Compared(*(of_group(part, faces.group_of, place, same=True) for part in among))
        wider = Compared(*(_everybody(part, probes, probes, place, faces, same=True) for part in among_whole))
        cells.append(resampler.cell(name, group, "fmr", "both_edited", apart, wider))
    deep = _deep(sides[1], gallery.side, resampler.threshold)
    return cells, _inequity(faces, name, pairs[0][1], deep, resampler, options, seed)


def _against(probes: Side, references: Side, lowest: float) -> tuple[Comparisons, Comparisons]:
    groups = int(probes.group_of[-1]) + 1
    return impostors(probes, references, np.full(groups, lowest), lowest)


def _deep(probes: Side, references: Side, threshold: float) -> tuple[Comparisons, Comparisons]:
    """Comparisons deep enough for permuted labels, which mix groups whose people look less alike."""
    same, cross = impostor_histograms(probes, references)
    share = DEPTH * max(share_reached(same, threshold), share_reached(cross, threshold))
    floor = min(threshold, floor_for(same.sum(axis=0) + cross, share, AT_LEAST))
    return _against(probes, references, floor)


def _baseline_inequity(
    faces: Faces, gallery: Gallery, resampler: Resampler, options: RecognitionOptions, seed: int
) -> list[Inequity]:
    return _inequity(faces, None, gallery.own, (gallery.same, gallery.cross), resampler, options, seed)


def _inequity(
    faces: Faces,
    attribute: str | None,
    own: Comparisons,
    other: tuple[Comparisons, Comparisons],
    resampler: Resampler,
    options: RecognitionOptions,
    seed: int,
) -> list[Inequity]:
    """All measures over the groups that have both rates, or nothing below two."""
    genuine_parts = [_of_people(own, faces, place) for place in range(len(faces.groups))]
    parts = [of_group(other[0], faces.group_of, place, same=True) for place in range(len(faces.groups))]
    have = [p for p, (g, i) in enumerate(zip(genuine_parts, parts, strict=True)) if g.n and i.n]
    if len(have) < 2:
        return []
    fnmr = np.array([genuine_parts[p].errors(resampler.threshold) / genuine_parts[p].n for p in have])
    errors = np.array([parts[p].errors(resampler.threshold) for p in have])
    totals = np.array([parts[p].n for p in have])
    pooled = float(errors.sum() / totals.sum())
    # People of groups that are left out keep a label of their own, which no group bears.
    labels = np.full(len(faces.groups), len(have))
    labels[have] = np.arange(len(have))
    person = labels[faces.group_of]
    strata = 2 * (person == len(have)) + ((other[0].left > 0) | (own.left > 0))
    permuted = equitability.permuted_labels(person, strata, options.permutations, seed)
    null = (
        equitability.permuted_fmr(
            [_without(part, person < len(have)) for part in other], pooled, permuted, len(have)
        ),
        equitability.permuted_fnmr(own, resampler.threshold, permuted, len(have) + 1)[:, : len(have)],
    )
    found = equitability.with_null(errors / totals, fnmr, null, options.level)
    measures = tuple(
        InequityMeasure(
            name=item.name,
            value=number(item.value),
            status=item.status,
            null_median=number(item.null_median),
            null_extreme=number(item.null_extreme),
            p=number(item.p),
        )
        for item in found
    )
    return [Inequity(attribute=attribute, groups=tuple(faces.groups[p] for p in have), measures=measures)]


def _without(some: Comparisons, kept: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Comparisons:
    here = kept[some.first] & kept[some.second]
    return replace(
        some,
        scores=some.scores[here],
        first=some.first[here],
        second=some.second[here],
        left=some.left * kept,
        right=some.right * kept,
    )
