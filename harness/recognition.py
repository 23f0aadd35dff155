"""Recognition error rates of an embedder: threshold, FMR, FNMR and failures to acquire, for whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from harness.faces import Faces, faces_of, genuine, probe_pairs
from harness.gallery import (
    Gallery,
    RecognitionOptions,
    distributions,
    open_gallery,
    set_thresholds,
)
from harness.kinds import Compared, Kept, Kind, among_all, down_to, kind, of_people
from harness.outcomes import Outcomes
from harness.recognition_rates import Resampler, acquisition, number
from harness.recognition_record import (
    Comparison,
    Inequity,
    InequityMeasure,
    RateRatio,
    Recognition,
    RecognitionCell,
)
from harness.stats import equitability
from harness.stats.comparisons import (
    Comparisons,
    Side,
    impostors,
    of_group,
)
from harness.stats.numerics import Ints
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
CAPTURED = (
    "none: the score is the captured similarity divided by the scale, rounded to 6 decimals; an empty one "
    "between two faces that were compared elsewhere is -1"
)
NO_NULL = (
    "no permutation null: people of one group look alike, so relabelled groups match less often; see the "
    "ratios of FMR"
)
NO_RATIO = "a group has no false match, or too few people for a variance"
SHARED_PEOPLE = "people are in several groups, for which the size of this test was not measured"
NO_CROSS = "not compared: people are in several groups, and nobody is an impostor of themself"
IMPOSTORS: tuple[Comparison, ...] = ("same_group", "cross_group", "both_edited")


def recognise(
    outcomes: Outcomes,
    target: str,
    attributes: Sequence[str],
    groups: Sequence[str],
    options: RecognitionOptions,
    *,
    seed: int = 0,
) -> tuple[Recognition, Kept] | None:
    """Report on a recogniser; None for a target that is none, or where no face was acquired.

    Args:
        outcomes: of pairs.
        target: spec of the target.
        attributes, groups: in the record's order.
        options: how.
        seed: of the bootstrap and of the permutations.

    Returns:
        The report, and the comparisons behind it (none without a threshold).
    """
    if outcomes.embedded is None or not np.isfinite(outcomes.embedded.source).any():
        return None
    options.check_level()
    faces = faces_of(outcomes, outcomes.embedded, groups)
    gallery = open_gallery(faces, options)
    thresholds = set_thresholds(faces, gallery, options)
    chosen = thresholds[0].threshold
    present = [name for name in attributes if (faces.attribute == name).any()]
    checks = len({(name, faces.group_of[p]) for name, p in zip(faces.attribute, faces.people, strict=True)})
    resampler = _resampler(faces, gallery, options, chosen, checks, seed)
    cells = _acquisition_cells(faces, present, resampler)
    inequity: list[Inequity] = []
    kinds: list[Kind] = []
    if chosen is not None:
        kinds += _baseline_kinds(faces, gallery, resampler)
        inequity += _baseline_inequity(faces, gallery, resampler, options, seed)
        for name in present:
            more, uneven = _attribute(faces, gallery, name, resampler, options, seed)
            kinds, inequity = kinds + more, inequity + uneven
        cells += [cell for item in kinds for cell in _cells(faces, item, resampler)]
    report = Recognition(
        target=target,
        level=options.level,
        draws=options.draws,
        permutations=options.permutations,
        seed=seed,
        rules=RULES
        | ({} if faces.table is None else {"template": CAPTURED})
        | ({"cross_group": NO_CROSS} if faces.shared else {}),
        thresholds=tuple(thresholds),
        cells=tuple(cells),
        inequity=tuple(inequity),
        distributions=tuple(distributions(faces, gallery)),
    )
    return report, Kept(faces.persons, tuple(kinds))


def _resampler(
    faces: Faces,
    gallery: Gallery,
    options: RecognitionOptions,
    chosen: float | None,
    checks: int,
    seed: int,
) -> Resampler:
    selected = double_or_nothing(len(faces.group_of), options.draws, seed)[faces.twins]
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


def _cells(faces: Faces, item: Kind, resampler: Resampler) -> Iterator[RecognitionCell]:
    """Each group's error rate; of an attribute only for groups that have it."""
    groups = faces.groups
    if item.attribute is not None:
        groups = tuple(group for _, group, _ in _cells_of(faces, [item.attribute]))
    for group in groups:
        apart, wider = item.of(faces.group_of, faces.groups.index(group))
        yield resampler.cell(item.attribute, group, item.metric, item.comparison, apart, wider)


def _baseline_kinds(faces: Faces, gallery: Gallery, resampler: Resampler) -> list[Kind]:
    """Source faces alone."""
    every = np.bincount(faces.gallery_people, minlength=len(faces.group_of)).astype(np.float64)
    own, own_fta = (Compared(part, None) for part in (gallery.own, gallery.own_with_fta))
    found = [kind(None, "fnmr", "other_source", own, own_fta)]
    sides: tuple[tuple[Comparison, Comparisons], ...] = (
        ("same_group", gallery.same),
        ("cross_group", gallery.cross),
    )
    for name, some in sides:
        if name == "cross_group" and faces.shared:
            continue
        near = down_to(some, resampler.lowest)
        apart, wider = Compared(near, None), Compared(among_all(near, every, every), None)
        found.append(kind(None, "fmr", name, apart, wider))
    return found


def _attribute(
    faces: Faces,
    gallery: Gallery,
    name: str,
    resampler: Resampler,
    options: RecognitionOptions,
    seed: int,
) -> tuple[list[Kind], list[Inequity]]:
    """Comparisons of one attribute, and how unevenly errors fall after the edit."""
    rows = np.flatnonzero(faces.attribute == name)
    size = len(faces.group_of)
    before, after, people = probe_pairs(faces, rows)
    kept, every = np.isfinite(before) & np.isfinite(after), np.ones(len(before), dtype=bool)
    pairs = [[genuine(side, people, size, part) for side in (before, after)] for part in (kept, every)]
    direct = faces.scores(faces.source[rows], faces.transformed[rows])
    alone, all_alone = (
        Compared(None, genuine(direct, faces.people[rows], size, part))
        for part in (np.isfinite(direct), np.ones(len(rows), dtype=bool))
    )
    acquired = rows[np.isfinite(faces.source[rows, 0]) & np.isfinite(faces.transformed[rows, 0])]
    sides = [faces.side(part[acquired], faces.people[acquired]) for part in (faces.source, faces.transformed)]
    found = _impostors(faces, gallery, sides, resampler.lowest)
    everybody = found
    if len(acquired) < len(rows):
        whole = [faces.side(part[rows], faces.people[rows]) for part in (faces.source, faces.transformed)]
        everybody = _impostors(faces, gallery, whole, resampler.lowest)
    probes = np.bincount(faces.people[rows], minlength=size).astype(np.float64)
    references = np.bincount(faces.gallery_people, minlength=size).astype(np.float64)
    kinds = [
        kind(name, "fnmr", "other_source", Compared(*pairs[0]), Compared(*pairs[1])),
        kind(name, "fnmr", "own_source", alone, all_alone),
    ]
    for comparison, one, all_of in zip(IMPOSTORS, found, everybody, strict=True):
        if comparison == "both_edited" and not faces.compared(faces.transformed[rows]):
            continue
        if comparison == "cross_group" and faces.shared:
            continue
        right = probes if comparison == "both_edited" else references
        parts = (part and among_all(part, probes, right) for part in (all_of.before, all_of.after))
        kinds.append(kind(name, "fmr", comparison, one, Compared(*parts)))
    edited = found[0].after
    if edited is None:
        return kinds, []
    return kinds, _inequity(faces, name, pairs[0][1], edited, resampler, options, seed)


def _impostors(faces: Faces, gallery: Gallery, sides: Sequence[Side], lowest: float) -> tuple[Compared, ...]:
    """Comparisons of `IMPOSTORS` before and after the edit."""
    floors = np.full(len(faces.groups), lowest)
    against = [_against(side, gallery.side, lowest) for side in sides]
    among = [impostors(side, None, floors, np.inf)[0] for side in sides]
    return Compared(against[0][0], against[1][0]), Compared(against[0][1], against[1][1]), Compared(*among)


def _against(probes: Side, references: Side, lowest: float) -> tuple[Comparisons, Comparisons]:
    groups = int(probes.group_of[-1]) + 1
    return impostors(probes, references, np.full(groups, lowest), lowest)


def _baseline_inequity(
    faces: Faces, gallery: Gallery, resampler: Resampler, options: RecognitionOptions, seed: int
) -> list[Inequity]:
    return _inequity(faces, None, gallery.own, gallery.same, resampler, options, seed)


def _inequity(
    faces: Faces,
    attribute: str | None,
    own: Comparisons,
    other: Comparisons,
    resampler: Resampler,
    options: RecognitionOptions,
    seed: int,
) -> list[Inequity]:
    """All measures over the groups that have both rates, or nothing below two."""
    genuine_parts = [of_people(own, faces.group_of, place) for place in range(len(faces.groups))]
    parts = [of_group(other, faces.group_of, place, same=True) for place in range(len(faces.groups))]
    have = [p for p, (g, i) in enumerate(zip(genuine_parts, parts, strict=True)) if g.n and i.n]
    if len(have) < 2:
        return []
    names = tuple(faces.groups[place] for place in have)
    fnmr = np.array([genuine_parts[p].errors(resampler.threshold) / genuine_parts[p].n for p in have])
    fmr = [resampler.at_threshold(parts[place]) for place in have]
    # People of groups that are left out keep a label of their own, which no group bears.
    labels = np.full(len(faces.groups), len(have))
    labels[have] = np.arange(len(have))
    person = labels[faces.group_of]
    strata = 2 * (person == len(have)) + (own.left > 0)
    permuted = equitability.permuted_labels(person, strata, options.permutations, seed)
    null = equitability.permuted_fnmr(own, resampler.threshold, permuted, len(have) + 1)[:, : len(have)]
    found = equitability.with_null(np.array([rate.rate for rate in fmr]), fnmr, null, options.level)
    shared = faces.shared
    return [
        Inequity(
            attribute=attribute,
            groups=names,
            measures=tuple(_measure(item) for item in found),
            fmr_ratios=() if shared else _ratios(equitability.ratio_tests(fmr, options.level), names),
            fmr_ratios_reason=SHARED_PEOPLE if shared else "",
        )
    ]


def _measure(item: equitability.Measure) -> InequityMeasure:
    return InequityMeasure(
        name=item.name,
        value=number(item.value),
        status=item.status,
        null_median=number(item.null_median),
        null_extreme=number(item.null_extreme),
        p=number(item.p),
        reasons={} if item.has_null else dict.fromkeys(("null_median", "null_extreme", "p"), NO_NULL),
    )


def _ratios(found: equitability.RatioTests, names: Sequence[str]) -> tuple[RateRatio, ...]:
    return tuple(
        RateRatio(
            a=names[a],
            b=names[b],
            ratio=number(found.ratio[row]),
            low=number(found.low[row]),
            high=number(found.high[row]),
            p=number(found.p[row]),
            p_adjusted=number(found.p_adjusted[row]),
            reason="" if number(found.p[row]) is not None else NO_RATIO,
        )
        for row, (a, b) in enumerate(zip(found.a, found.b, strict=True))
    )
