"""Tables of differences between groups: tests, bands that exclude 0, and the interactions of an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.plan_tables import difference_plan_table
from harness.record import AcquisitionShare, Contrast, Difference, Disparity, Interaction, Omnibus, Record
from harness.tables import (
    NOT_MEASURED,
    STATUS_MARKS,
    DisparityTable,
    csv_text,
    flag_marks,
    interval_text,
    legend,
    no_claim_notes,
    p_text,
    spreadsheet_text,
    two_digits,
)
from targets.base.text import counted, shortlist


def difference_tables(record: Record, by: str = "demographic") -> dict[str, DisparityTable]:
    """Name -> table of one axis: its differences, of a coarser axis the interaction, and what was asked for.

    Empty without a planned row; only the reason where a difference may not be claimed.
    """
    if not any(entry.by == by for entry in record.disparities):
        return {}
    if record.no_claim:
        title = f"Differences by {by}: none is shown"
        return {"differences": DisparityTable(title, (), (), (record.no_claim,), justify="left")}
    tables = {
        "differences": difference_table(record, by),
        "interaction": interaction_table(record, by),
        "differences-asked": difference_plan_table(record, by),
    }
    return {name: table for name, table in tables.items() if table is not None}


def all_difference_tables(record: Record) -> list[tuple[str, str, DisparityTable]]:
    """Name, axis and table of every axis of a run; one interaction of two axes stands under the first."""
    found: dict[DisparityTable, tuple[str, str]] = {}
    for by in record.settings.by:
        for name, table in difference_tables(record, by).items():
            found.setdefault(table, (name, by))
    return [(name, by, table) for table, (name, by) in found.items()]


def difference_table(record: Record, by: str = "demographic") -> DisparityTable:
    """One omnibus test a planned row, and the differences whose simultaneous band excludes zero."""
    level = record.settings.level
    entries = [entry for entry in record.disparities if entry.by == by]
    rows = tuple(
        (entry.attribute, entry.concept, (*_omnibus_texts(entry.omnibus), _band_text(entry, level)))
        for entry in entries
    )
    family = counted(len(entries), "row")
    title = f"Do the groups' mean changes differ? Games-Howell tests by {by}, Holm over {family}"
    heads = (
        "smallest p of a pair",
        "p adjusted",
        "range q(groups, df)",
        f"differences with a {100 * level:g} % simultaneous band beyond 0",
    )
    return DisparityTable(
        title, heads, rows, (*no_claim_notes(record), *_difference_notes(entries, rows)), justify="left"
    )


def acquisition_table(record: Record) -> DisparityTable | None:
    """Shares of pairs without an answer by group, and whether groups differ; None where all have one."""
    if not record.acquisition:
        return None
    groups = tuple(dict.fromkeys(own.group for item in record.acquisition for own in item.shares))
    level = record.settings.level
    rows, flags = [], set[str]()
    for item in record.acquisition:
        texts = {own.group: _share_text(own) for own in item.shares}
        tests: tuple[str, ...] = ()
        if not record.no_claim:
            entry = item.disparity
            p = p_text(entry.omnibus.p_adjusted) if entry else NOT_MEASURED
            flags |= set(entry.omnibus.flags if entry else ())
            p += flag_marks(entry.omnibus.flags) if entry else ""
            tests = (p, _band_text(entry, level) if entry else NOT_MEASURED)
        rows.append((item.attribute, "no answer", (*(texts.get(g, NOT_MEASURED) for g in groups), *tests)))
    heads = (*groups, *(() if record.no_claim else ("p adjusted", "differences with a band beyond 0")))
    title = f"Failure to acquire: share of pairs without an answer, {100 * level:g} % intervals (Wilson)"
    over = counted(len(rows), "attribute")
    tested = f"Games-Howell tests, Holm over {over}; in a test each group has two more identities"
    notes = (record.no_claim,) if record.no_claim else (tested, *legend(rows, flags))
    return DisparityTable(title, heads, tuple(rows), notes, justify="left")


def _share_text(own: AcquisitionShare) -> str:
    interval = f"[{two_digits(own.low)}, {two_digits(own.high)}]"
    return f"{two_digits(own.share)} {interval}, {own.failed} of {own.n_pairs} / {own.n_identities}"


def acquisition_csv(record: Record) -> str:
    """Every share of pairs without an answer, one row an attribute and group."""
    rows = [
        {
            "target": spreadsheet_text(item.target),
            "attribute": spreadsheet_text(item.attribute),
            **own.model_dump(),
            "group": spreadsheet_text(own.group),
            "p_adjusted": ""
            if record.no_claim or item.disparity is None
            else item.disparity.omnibus.p_adjusted,
            "no_claim": record.no_claim,
        }
        for item in record.acquisition
        for own in item.shares
    ]
    return csv_text(rows) if rows else "target,attribute,group,n_pairs,n_identities,failed,share\n"


def acquisition_differences_csv(record: Record) -> str:
    """Every difference of shares of pairs without an answer, as in ``differences_to_csv``."""
    return _differences_csv(record, [item.disparity for item in record.acquisition if item.disparity])


def interaction_table(record: Record, by: str) -> DisparityTable | None:
    """How levels of an axis differ inside each stratum, and whether they do so alike; None where no axis
    has two strata."""
    found = [(entry, entry.interaction) for entry in record.disparities if entry.by == by]
    crossed = [(entry, item) for entry, item in found if item is not None]
    if not crossed:
        return None
    strata = tuple(dict.fromkeys(one.where for _, item in crossed for one in item.within))
    rows = []
    alpha = 1 - record.settings.level
    for entry, item in crossed:
        for a, b in dict.fromkeys((one.a, one.b) for one in item.within):
            own = {one.where: one for one in item.within if (one.a, one.b) == (a, b)}
            texts = [_difference_text(own[name]) if name in own else NOT_MEASURED for name in strata]
            texts.append(_between_text(item, f"{b} minus {a}", alpha))
            tests = p_text(item.test.p), f"{p_text(item.test.p_adjusted)}{flag_marks(item.test.flags)}"
            rows.append((entry.attribute, entry.concept, (f"{b} minus {a}", *texts, *tests)))
    level = f"{100 * record.settings.level:g} %"
    title = (
        f"Are differences by {crossed[0][1].factor} the same in all strata? Single {level} intervals; "
        f"Games-Howell tests of the interaction, Holm over {counted(len(crossed), 'row')}"
    )
    heads = ("difference", *strata, f"between strata, {level} bands", "p", "p adjusted")
    flags = {flag for _, item in crossed for flag in item.test.flags}
    flags |= {flag for _, item in crossed for one in item.within for flag in one.flags}
    without: dict[str, list[str]] = {}
    for entry, item in crossed:
        if item.test.p is None:
            without.setdefault(item.test.reason, []).append(f"{entry.attribute} / {entry.concept}")
    reasons = [f"no test, {reason}: {shortlist(names)}" for reason, names in without.items()]
    notes = [*legend(rows, flags), *reasons]
    return DisparityTable(title, heads, tuple(rows), tuple(notes), justify="left")


def _between_text(item: Interaction, which: str, alpha: float) -> str:
    """How a difference of levels differs between two strata: the only one, or those beyond 0."""
    own = [one for one in item.between if one.where == which]
    if len(own) == 1:
        return _beyond_text(own[0])
    if item.test.p_adjusted is None:
        return NOT_MEASURED
    if item.test.p_adjusted > alpha:
        return f"no claim: not rejected at {alpha:.2g}"
    return "; ".join(_beyond_text(one) for one in own if _excludes_zero(one)) or "none"


def _beyond_text(one: Contrast) -> str:
    if one.difference is None or one.band is None:
        return _difference_text(one)
    band = f"[{two_digits(one.band.low)}, {two_digits(one.band.high)}]"
    return f"{one.b} minus {one.a}: {two_digits(one.difference)} {band}{flag_marks(one.flags)}"


def _excludes_zero(one: Contrast) -> bool:
    return one.band is not None and not one.band.low <= 0 <= one.band.high


def _difference_text(one: Contrast) -> str:
    if one.difference is None:
        return NOT_MEASURED
    marks = flag_marks(one.flags)
    if one.ci is None:
        return f"{two_digits(one.difference)}{STATUS_MARKS[one.status]}{marks}"
    return f"{interval_text(one.difference, one.ci)}{marks}"


def _omnibus_texts(test: Omnibus) -> tuple[str, str, str]:
    out = f" (without {', '.join(test.left_out)})" if test.left_out else ""
    if test.statistic is None or test.df1 is None or test.df2 is None:
        return (f"undefined: {test.reason}{out}", NOT_MEASURED, NOT_MEASURED)
    text = f"q({test.df1:.0f}, {two_digits(test.df2)}) = {two_digits(test.statistic)}{out}"
    return p_text(test.p), f"{p_text(test.p_adjusted)}{flag_marks(test.flags)}", text


def _band_text(entry: Disparity, level: float) -> str:
    """Differences that the band separates from zero, in a row whose omnibus test is rejected."""
    if entry.omnibus.p_adjusted is None:
        return NOT_MEASURED
    if entry.omnibus.p_adjusted > 1 - level:
        return f"no claim: the row's test is not rejected at {1 - level:.2g}"
    parts = [_beyond_text(pair) for pair in entry.pairwise if _excludes_zero(pair)]
    return "; ".join(parts) or "none"


def _difference_notes(
    entries: Sequence[Disparity], rows: Sequence[tuple[str, str, tuple[str, ...]]]
) -> list[str]:
    notes = ['"none" and "no claim" do not say that there is no difference; that takes an equivalence test']
    flags = {flag for entry in entries for pair in entry.pairwise for flag in pair.flags}
    flags |= {flag for entry in entries for flag in entry.omnibus.flags}
    notes += legend(rows, flags)
    if any("skewed" in entry.omnibus.flags for entry in entries):
        notes.append("‡ beside p: with skewed scores, unequal sizes and unequal spreads the test errs often")
    return [*notes, *_strata_notes(entries)]


def _strata_notes(entries: Sequence[Disparity]) -> list[str]:
    """Which strata a difference of levels rests on, where it is not all of them."""
    every = {name for entry in entries for pair in entry.pairwise for name in pair.strata}
    by_text: dict[str, list[str]] = {}
    for entry in entries:
        for pair in entry.pairwise:
            if every and set(pair.strata) != every:
                over = f"over {', '.join(pair.strata)} alone" if pair.strata else "not compared"
                row = f"{entry.attribute}, {entry.concept}"
                by_text.setdefault(f"{pair.b} minus {pair.a}, {over}", []).append(row)
    return [f"{text} (both have pairs nowhere else): {'; '.join(rows)}" for text, rows in by_text.items()]


def differences_to_csv(record: Record) -> str:
    """Every pairwise difference in full, one row each; only the header where nothing is compared.

    Where a difference may not be claimed, its row holds the reason in place of numbers.
    """
    return _differences_csv(record, record.disparities)


def _differences_csv(record: Record, entries: Sequence[Disparity]) -> str:
    rows = [
        _claimed(
            record,
            _csv_row(entry, pair, {"omnibus_p_adjusted": entry.omnibus.p_adjusted} | _own_columns(pair)),
        )
        for entry in entries
        for pair in entry.pairwise
    ]
    return csv_text(rows) if rows else "target,by,attribute,concept,a,b,difference\n"


def interactions_to_csv(record: Record) -> str:
    """Every difference inside a stratum and between two strata in full, one row each.

    Where a difference may not be claimed, its row holds the reason in place of numbers.
    """
    rows = [
        _claimed(
            record,
            _csv_row(
                entry, one, {"kind": kind, "test_p": item.test.p, "test_p_adjusted": item.test.p_adjusted}
            ),
        )
        for entry in record.disparities
        if (item := entry.interaction) is not None
        for kind, differences in (("within", item.within), ("between", item.between))
        for one in differences
    ]
    return csv_text(rows) if rows else "target,by,attribute,concept,a,b,difference\n"


def _claimed(record: Record, row: Mapping[str, object]) -> dict[str, object]:
    """The row as it is, or labels and the reason alone."""
    labels = ("target", "by", "attribute", "concept", "a", "b")
    kept = {name: "" if record.no_claim and name not in labels else value for name, value in row.items()}
    return {**kept, "no_claim": record.no_claim}


def _own_columns(pair: Difference) -> dict[str, object]:
    """What only a difference between groups has."""
    own = pair.model_dump(exclude={*Contrast.model_fields, "reasons", "strata", "identities_for_half_width"})
    counts = zip("ab", pair.identities_for_half_width or ("", ""), strict=True)
    return {
        **own,
        **{f"identities_for_half_width_{side}": count for side, count in counts},
        "strata": "; ".join(pair.strata),
    }


def _csv_row(entry: Disparity, pair: Contrast, more: Mapping[str, object]) -> dict[str, object]:
    labels = {name: getattr(entry, name) for name in ("target", "by", "attribute", "concept")}
    row = {
        **labels,
        **pair.model_dump(include={*Contrast.model_fields, "where"} - {"ci", "band", "flags", "reasons"}),
    }
    for name, interval in (("ci", pair.ci), ("band", pair.band)):
        row[f"{name}_low"] = interval.low if interval else ""
        row[f"{name}_high"] = interval.high if interval else ""
    row |= {"flags": " ".join(pair.flags), **more}
    return {name: spreadsheet_text(value) if isinstance(value, str) else value for name, value in row.items()}
