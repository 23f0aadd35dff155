"""Sentences of a report. CONTRIBUTING.md says which words a report may use; a test reads these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from harness.record import Cell, Record
from harness.tables import two_digits
from targets.base.text import counted, shortlist

FLAGS = {
    "few_identities": "fewer than 10 identities",
    "skewed": "skewed scores: intervals clustered by identity are widened (Hall 1992), and any interval may "
    "still miss more often than its level says",
    "bootstrap_misses": "so few identities that a bootstrap interval misses too often even for normal scores",
    "scale_dependent": "sign or decision differ on another scale of the score",
    "depends_on_filter": "on all candidates the difference has another sign or decision",
}
STATUSES = {
    "ok": "ok",
    "zero_variance": "every identity changed alike up to rounding: no interval, no test",
    "undefined": "one identity, or too few for this method: no interval",
}
REASONS = {
    "missing_source": "the source picture is missing",
    "missing_transformed": "the transformed picture is missing",
    "unreadable": "a picture can't be read",
    "no_face": "the target found no face",
    "no_answer": "the target gave no answer",
    "non_finite": "a score is no finite number",
    "no_reference": "the identity has too few other source pictures",
    "duplicate": "an earlier pair shows the same two pictures",
    "identical": "both pictures have the same pixels",
    "missing_label": "a label is empty",
    "not_validated": "a person has judged the pair not valid",
}
READING = (
    "A number is a mean over pairs: the transformed face's score minus that of the source face.",
    "Groups are what a face was prompted or rendered as. Synthetic faces don't tell how often a model errs.",
    "An interval that contains 0 does not show that nothing changed; that takes an equivalence test.",
    "A test of groups that is not rejected does not show that they are alike; that takes one too.",
)
RECOGNITION = (
    "A rate is a share of comparisons between these faces, at one threshold for all groups.",
    "FNMR: one identity, no match. FMR: two identities, a match. FTA: a face not found. TMR is 1 - FNMR.",
    "A change is the rate after the edit minus the rate before it, over the same comparisons.",
    "Intervals respect that identities and pictures repeat; a target FMR's threshold is set anew each time.",
)


def summary(record: Record) -> list[str]:
    """What the run found, one sentence an entry."""
    parts = (acquisition_sentences, _asked, _changes, _groups, _axes, _caveats)
    # The interaction of two axes is told by both.
    return list(dict.fromkeys(sentence for part in parts for sentence in part(record)))


LARGE_LOSS = 0.2
"""A cell that loses more than this share of its pairs is told first."""


def acquisition_sentences(record: Record) -> Iterator[str]:
    """Attributes whose pairs often have no answer, or whose groups differ in that."""
    alpha = 1 - record.settings.level
    for item in record.acquisition:
        large = [f"{own.group} {100 * own.share:.0f} %" for own in item.shares if own.share > LARGE_LOSS]
        p = item.disparity.omnibus.p_adjusted if item.disparity and not record.no_claim else None
        differ = p is not None and p <= alpha
        if not (large or differ):
            continue
        lost = f"more than a fifth of the pairs in {len(large)} of {counted(len(item.shares), 'group')}"
        parts = [f"{lost} ({', '.join(large)})"] if large else []
        if differ:
            over = counted(len(record.acquisition), "attribute")
            parts.append(f"shares that differ between groups (Games-Howell test, Holm over {over})")
        yield f"Failure to acquire, {item.attribute}: the target had no answer for {'; '.join(parts)}."


def _asked(record: Record) -> Iterator[str]:
    pairs = counted(record.data.n_pairs, "pair")
    groups = counted(len(record.groups), "group")
    attributes = counted(len(record.attributes), "attribute")
    yield (
        f"{record.targets[0].name} was asked about {pairs}: a source face, and the same face with one "
        f"attribute changed. The pairs cover {attributes} and {groups}."
    )


def _shown(record: Record) -> list[Cell]:
    rows = set(record.rows)
    return [
        cell for cell in record.cells if cell.by == "demographic" and (cell.attribute, cell.concept) in rows
    ]


def _changes(record: Record) -> Iterator[str]:
    cells = [cell for cell in _shown(record) if cell.n_pairs]
    tested = [cell for cell in cells if cell.p_adjusted is not None]
    alpha = 1 - record.settings.level
    clear = sum(cell.p_adjusted is not None and cell.p_adjusted <= alpha for cell in tested)
    if tested:
        yield (
            f"In {clear} of {counted(len(tested), 'tested cell')} the mean change differs from 0 at the "
            f"{100 * record.settings.level:g} % level, adjusted over all tests of the run (Holm)."
        )
    untested = len(cells) - len(tested)
    if untested:
        yield f"{counted(untested, 'cell')} with pairs can't be tested; the table says why."


def _groups(record: Record) -> Iterator[str]:
    if record.no_claim:
        words = "The model under audit has itself filtered the pairs: nothing is said about groups"
        yield f"{words} ({record.no_claim})."
        return
    entries = [entry for entry in record.disparities if entry.by == "demographic"]
    defined = [entry for entry in entries if entry.omnibus.p_adjusted is not None]
    if not defined:
        return
    alpha = 1 - record.settings.level
    rejected = [entry for entry in defined if (entry.omnibus.p_adjusted or 0.0) <= alpha]
    text = f"In {len(rejected)} of {counted(len(defined), 'row')} the groups' mean changes are not all equal"
    yield f"{text} (Games-Howell tests, Holm over the rows)."
    for entry in rejected:
        beyond = [
            pair
            for pair in entry.pairwise
            if pair.band and pair.difference is not None and not pair.band.low <= 0 <= pair.band.high
        ]
        depends = sum("depends_on_filter" in pair.flags for pair in beyond)
        if beyond:
            more = f", {depends} of them depend on the filter" if depends else ""
            yield (
                f"{entry.attribute}, {entry.concept}: {counted(len(beyond), 'difference')} between two "
                f"groups with a simultaneous band that excludes 0{more}."
            )


def _axes(record: Record) -> Iterator[str]:
    """Rows in which the levels of a coarser axis differ, and in which they do not differ alike."""
    alpha = 1 - record.settings.level
    for by in record.settings.by:
        entries = [entry for entry in record.disparities if entry.by == by != "demographic"]
        tested = [p for entry in entries if (p := entry.omnibus.p_adjusted) is not None]
        crossed = [
            (item.factor, p)
            for e in entries
            if (item := e.interaction) and (p := item.test.p_adjusted) is not None
        ]
        if tested and not record.no_claim:
            yield (
                f"By {by} with equal weights, the mean changes are not all equal in "
                f"{sum(p <= alpha for p in tested)} of {counted(len(tested), 'row')}."
            )
        if crossed and not record.no_claim:
            count = sum(p <= alpha for _, p in crossed)
            yield (
                f"In {count} of {counted(len(crossed), 'row')} the difference by {crossed[0][0]} is not the "
                "same in all strata (interaction)."
            )


def _caveats(record: Record) -> Iterator[str]:
    cells = [cell for cell in _shown(record) if cell.n_pairs]
    flags = Counter(flag for cell in cells for flag in cell.flags)
    for flag, count in flags.items():
        yield f"Caution in {count} of {counted(len(cells), 'cell')}: {FLAGS.get(flag, flag)}."
    lost: Counter[str] = Counter()
    for item in record.attrition:
        lost[item.reason] += item.lost
    if lost:
        parts = [
            f"{counted(count, 'pair')} ({REASONS.get(reason, reason)})" for reason, count in lost.items()
        ]
        yield f"Left out and counted: {'; '.join(parts)}."
    empty = sorted({cell.group for cell in _shown(record)} - {cell.group for cell in cells})
    if empty:
        yield f"No pair at all for {shortlist(empty)}."
    if sentence := filter_sentence(record):
        yield sentence
    if record.data.fault_share:
        yield f"{record.data.fault_share:.1%} of rows and pairs were lost to a broken file, row or answer."


def filter_sentence(record: Record) -> str:
    """Why nobody can tell what the filter does to differences; empty where it is told or none is shown."""
    state = record.selection_state
    if state is None or state.status == "ok" or not record.disparities or record.no_claim:
        return ""
    # A table of pairs, or of scores, need not have been filtered from anything.
    if record.data.kind != "dataset":
        return ""
    some = "some differences" if state.status == "partial" else "differences"
    return f"What the filter does to {some} is not available: {state.reason}."


def cell_sentence(cell: Cell) -> str:
    """One cell in words."""
    if cell.delta is None:
        return "No pair of this cell has both scores."
    counts = f"{counted(cell.n_pairs, 'pair')} of {counted(cell.n_identities, 'identity', 'identities')}"
    text = f"Mean change {two_digits(cell.delta)} over {counts}"
    if cell.ci is None:
        return f"{text}; {STATUSES[cell.status]}."
    interval = f"{two_digits(cell.ci.low)} to {two_digits(cell.ci.high)}"
    return f"{text}; {100 * cell.ci.level:g} % interval {interval}."
