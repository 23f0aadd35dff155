"""The strongest cells of attributes for which no concept was chosen beforehand."""

from __future__ import annotations

from harness.record import Record
from harness.tables import DisparityTable, cell_text, mark_notes, no_claim_notes, p_text

CELLS_OF_AN_ATTRIBUTE = 3


def strongest_tables(record: Record) -> list[DisparityTable]:
    """The largest mean changes of every attribute without a planned row; empty where all have rows.

    They are chosen by their size, so no groups are compared.
    """
    planned = {attribute for attribute, _ in record.rows}
    without = [attribute for attribute in record.attributes if attribute not in planned]
    cells = [
        cell
        for cell in record.cells
        if cell.by == "demographic" and cell.attribute in without and cell.delta is not None
    ]
    if not cells:
        return []
    cells.sort(key=lambda cell: -abs(cell.delta or 0.0))
    shown = [
        cell
        for attribute in without
        for cell in [cell for cell in cells if cell.attribute == attribute][:CELLS_OF_AN_ATTRIBUTE]
    ]
    rows = tuple(
        (cell.attribute, cell.concept, (cell.group, cell_text(cell), p_text(cell.p_adjusted)))
        for cell in shown
    )
    title = f"{record.targets[0].name}: largest of {len(cells):,} mean changes of attributes without a row"
    notes = (
        *no_claim_notes(record),
        "chosen by size: an interval misses more often than its level says; p is adjusted over all cells",
        "for rows, name concepts by --concept or in a taxonomy; or search with --discover --margin M",
        *mark_notes(shown, [(cell.attribute, cell.concept) for cell in shown]),
    )
    return [DisparityTable(title, ("group", "mean change", "p adjusted"), rows, notes, justify="left")]
