"""Recognition error rates as tables: FMR and FNMR at one threshold, by group, before and after an edit."""

from __future__ import annotations

from collections.abc import Iterable

from harness.recognition_record import ErrorRate, Recognition, RecognitionCell, RecognitionThreshold
from harness.record import Record
from harness.tables import (
    NOT_MEASURED,
    DisparityTable,
    csv_text,
    no_claim_notes,
    p_text,
    spreadsheet_text,
    two_digits,
)
from targets.base.errors import InputError

COMPARISONS = {
    ("fnmr", "other_source"): "FNMR, other pictures",
    ("fnmr", "own_source"): "FNMR, the edited picture itself",
    ("fmr", "same_group"): "FMR, same group",
    ("fmr", "cross_group"): "FMR, other groups",
    ("fmr", "both_edited"): "FMR, both edited, same group",
    ("fta", "acquisition"): "FTA",
}
NOTES = (
    "before to after: change [interval]; ! beyond 0 in the simultaneous band over all cells of a comparison",
    "TMR = 1 - FNMR; failures to acquire left out here, counted as non-matches in recognition.csv",
    "? too few identities for an interval",
    "° no error, or nothing but errors: the interval takes the people as the sample",
)


def recognition_tables(record: Record) -> list[DisparityTable]:
    """Thresholds, error rates and inequity of a run.

    Raises:
        InputError: the run's target is no recogniser.
    """
    if not record.recognition:
        raise InputError("the run has no recognition error rates: its target gives no vectors")
    return [table for item in record.recognition for table in _tables(item, record)]


def _tables(item: Recognition, record: Record) -> list[DisparityTable]:
    groups = record.groups
    found = [_threshold_table(item)]
    if item.cells:
        level = f"{100 * item.level:g} %"
        title = f"Error rates at {_operating_point(item.thresholds[0])}, {level} intervals"
        note = f"{level}: the level of error rates and searches unless --level gives one for all"
        notes = (*no_claim_notes(record), *NOTES, note)
        found.append(DisparityTable(title, groups, tuple(_lines(item.cells, groups)), notes, justify="left"))
    if item.inequity and not record.no_claim:
        found.append(_inequity_table(item))
        if any(entry.fmr_ratios or entry.fmr_ratios_reason for entry in item.inequity):
            found.append(_ratio_table(item))
    return found


def _operating_point(threshold: RecognitionThreshold) -> str:
    if threshold.threshold is None:
        return "no threshold"
    return f"threshold {threshold.threshold:.4f} (FMR {two_digits(threshold.fmr or 0.0)})"


def refusal(threshold: RecognitionThreshold) -> str:
    """Why there is no threshold, in one sentence."""
    smallest = "the smallest group has" if threshold.scope == "all" else "it has"
    lowest = threshold.lowest_target
    could = "no target can be shown" if lowest is None else f"the lowest target it can show is {lowest:.2g}"
    return (
        f"refused: FMR {threshold.target_fmr} needs {threshold.identities_needed} identities a group, "
        f"{smallest} {threshold.identities}; {could}"
    )


def _threshold_table(item: Recognition) -> DisparityTable:
    rows = []
    for threshold in item.thresholds:
        text = _operating_point(threshold) if threshold.status == "ok" else refusal(threshold)
        eer = next((d.eer_interpolated for d in item.distributions if d.group == threshold.scope), None)
        rows.append((threshold.scope, threshold.rule, (text, p_text(eer))))
    return DisparityTable("Thresholds", ("operating point", "EER"), tuple(rows), (), justify="left")


def _lines(
    cells: Iterable[RecognitionCell], groups: tuple[str, ...]
) -> list[tuple[str, str, tuple[str, ...]]]:
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for cell in cells:
        key = cell.attribute or "(source faces)", COMPARISONS[cell.metric, cell.comparison]
        rows.setdefault(key, {})[cell.group] = cell_text(cell)
    return [(*key, tuple(texts.get(group, NOT_MEASURED) for group in groups)) for key, texts in rows.items()]


def cell_text(cell: RecognitionCell) -> str:
    """One cell: a rate with its interval, or both rates with their change."""
    if cell.change is None:
        return rate_text(cell.before or cell.after)
    before, after, change = cell.before, cell.after, cell.change
    if before is None or after is None or before.rate is None or after.rate is None:
        return NOT_MEASURED
    text = f"{two_digits(before.rate)} to {two_digits(after.rate)}"
    if change.low is None or change.high is None or change.difference is None:
        return f"{text} ?"
    mark = "!" if change.band_low is not None and (change.band_low > 0 or (change.band_high or 0) < 0) else ""
    low, high = signed(change.low), signed(change.high)
    return f"{text}: {signed(change.difference)} [{low}, {high}]{mark}"


def signed(value: float) -> str:
    """Two digits with their sign."""
    text = two_digits(value)
    return text if text == "0" or value < 0 else f"+{text}"


def rate_text(rate: ErrorRate | None) -> str:
    """A rate with its interval and marks."""
    if rate is None or rate.rate is None:
        return NOT_MEASURED
    if rate.low is None or rate.high is None:
        return f"{two_digits(rate.rate)} ?"
    mark = "°" if rate.status == "identities_as_size" else ""
    return f"{two_digits(rate.rate)} [{two_digits(rate.low)}, {two_digits(rate.high)}]{mark}"


def _inequity_table(item: Recognition) -> DisparityTable:
    """NIST's measure first; beside each value of FNMR what permuted group labels reach."""
    heads = ("value", "permuted: median", "permuted: extreme", "p")
    rows = []
    for entry in item.inequity:
        for measure in entry.measures:
            value = two_digits(measure.value) if measure.value is not None else measure.status
            null = [
                NOT_MEASURED if x is None else two_digits(x)
                for x in (measure.null_median, measure.null_extreme)
            ]
            rows.append(
                (entry.attribute or "(source faces)", measure.name, (value, *null, p_text(measure.p)))
            )
    notes = (
        "a ratio above 1 is no finding by itself: chance alone makes one; compare it with the permutations",
        "measures that FMR enters have no test: people of one group look alike, relabelled groups do not",
        "the ratios of FMR between groups are tested pair by pair",
    )
    return DisparityTable("How unevenly errors fall on groups", heads, tuple(rows), notes)


def _ratio_table(item: Recognition) -> DisparityTable:
    """Ratios of the groups' FMR, each with its test."""
    rows, reasons = [], {entry.fmr_ratios_reason for entry in item.inequity}
    for entry in item.inequity:
        for one in entry.fmr_ratios:
            value = NOT_MEASURED
            if one.ratio is not None and one.low is not None and one.high is not None:
                value = f"{two_digits(one.ratio)} [{two_digits(one.low)}, {two_digits(one.high)}]"
            texts = (value, p_text(one.p), p_text(one.p_adjusted))
            rows.append((entry.attribute or "(source faces)", f"{one.b} over {one.a}", texts))
            reasons.add(f"{NOT_MEASURED} {one.reason}" if one.reason else "")
    level = f"{100 * item.level:g} %"
    title = f"Ratios of FMR between groups, single {level} intervals, tests of a ratio of 1 (Holm)"
    notes = tuple(sorted(reasons - {""}))
    return DisparityTable(title, (f"ratio [{level}]", "p", "p adjusted"), tuple(rows), notes)


def recognition_csv(record: Record) -> str:
    """Every rate in full, one row a cell, side and way of counting failures to acquire."""
    rows = []
    for item in record.recognition:
        for cell in item.cells:
            for fta, suffix in (("apart", ""), ("non_match", "_with_fta")):
                for side in ("before", "after"):
                    rate = getattr(cell, side + suffix)
                    if rate is not None:
                        labels = {
                            name: spreadsheet_text(getattr(cell, name) or "")
                            for name in ("attribute", "group")
                        }
                        kind = {
                            "metric": cell.metric,
                            "comparison": cell.comparison,
                            "side": side,
                            "fta": fta,
                        }
                        rows.append(
                            {
                                "target": spreadsheet_text(item.target),
                                **labels,
                                **kind,
                                **rate.model_dump(exclude={"reasons"}),
                            }
                        )
    return csv_text(rows) if rows else "target,attribute,group,metric,comparison,side,fta,errors,n\n"


def det_csv(record: Record) -> str:
    """DET curves of source faces, one row a point."""
    rows = [
        {
            "target": spreadsheet_text(item.target),
            "group": spreadsheet_text(entry.group),
            **point.model_dump(),
        }
        for item in record.recognition
        for entry in item.distributions
        for point in entry.det
    ]
    return csv_text(rows) if rows else "target,group,threshold,fmr,fnmr\n"


def histogram_csv(record: Record) -> str:
    """Score histograms of source faces, one row a bin that is not empty."""
    rows = [
        {
            "target": spreadsheet_text(item.target),
            "group": spreadsheet_text(entry.group),
            "score_from": edge,
            "genuine": own,
            "impostor": other,
        }
        for item in record.recognition
        for entry in item.distributions
        for edge, own, other in zip(entry.edges, entry.genuine, entry.impostor, strict=True)
        if own or other
    ]
    return csv_text(rows) if rows else "target,group,score_from,genuine,impostor\n"
