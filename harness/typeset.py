"""Tables as LaTeX (booktabs) and as one HTML page, both set by great-tables, which escapes labels."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from harness.tables import DisparityTable
from targets.base.text import without_control_characters

LONGEST = 40
"""More rows than this don't fit on a page: LaTeX then gets a longtable."""
WIDEST = 4
"""More columns than this don't fit across a page: LaTeX then gets small print, and a sideways table."""
_FOR_GROUPS = 0.74
"""Share of a sideways table's width for the columns of groups; the names of a row have the rest."""
# Private-use characters, which labels lose: two braces would be units to great-tables, and the usual fonts of
# LaTeX have a dash in the place of a bar.
_BRACE, _BAR = "\ue000", "\ue001"
# What pdflatex sets without further packages: letters with these accents, and these letters and marks.
_ACCENTS = set(map(chr, (0x300, 0x301, 0x302, 0x303, 0x304, 0x306, 0x307, 0x308, 0x30A, 0x30B, 0x30C)))
_PLAIN = set("†‡—–…‘’“”æœøåßłıÆŒØÅŁ±§¶°×÷·£©®¬¿¡çÇşŞţŢ")

# Between two signs that TeX's fonts would draw as one other, two hyphens as a dash.
_LIGATURE = re.compile(r"(?<=-)(?=-)|(?<=')(?=')|(?<=,)(?=,)|(?<=[`?!])(?=`)")


def to_latex(tables: Sequence[DisparityTable]) -> str:
    """Booktabs tables, one after the other; the first lines say what the document needs.

    More than ``LONGEST`` rows break over pages; others of more than ``WIDEST`` columns lie sideways, and
    their cells break into lines.
    """
    texts = [_latex(table) for table in tables]
    packages = dict.fromkeys(name for table in tables for name in _packages(table))
    needs = f"% needs: \\usepackage{{{','.join(packages)}}}\n"
    if not all(map(_set_by_pdflatex, set("".join(texts)))):
        needs += "% needs: lualatex or xelatex, and a font with the letters of every label\n"
    return needs + "\n".join(texts)


def _shape(table: DisparityTable) -> tuple[bool, bool]:
    """Whether a table breaks over pages, and whether it lies sideways."""
    long = len(table.rows) > LONGEST
    return long, len(table.groups) > WIDEST and not long


def _packages(table: DisparityTable) -> list[str]:
    long, wide = _shape(table)
    return ["booktabs", "caption", "array", *(["longtable"] if long else []), *(["rotating"] if wide else [])]


def _latex(table: DisparityTable) -> str:
    long, wide = _shape(table)
    text = str(_styled(table, bar=_BAR).as_latex(use_longtable=long))
    text = text.replace(_BRACE, "").replace(_BAR, "\\textbar{}")
    text = _LIGATURE.sub("{}", text)
    # The end of the row above would take a star for its own.
    text = re.sub(r"^(\s*)\*", r"\1{}*", text, flags=re.MULTILINE)
    text = text.replace("\\begin{minipage}", "\\noindent\\begin{minipage}")
    space = "1pt" if long else "2pt"
    text = text.replace("\\selectfont", f"\\selectfont\\setlength{{\\tabcolsep}}{{{space}}}", 1).lstrip("\n")
    if wide:
        column = f">{{\\centering\\arraybackslash}}p{{{_FOR_GROUPS / len(table.groups):.4f}\\linewidth}}"
        text = text.replace("c" * len(table.groups) + "}", column * len(table.groups) + "}", 1)
        text = re.sub(r"\\begin{table}(\[.*?\])?", r"\\begin{sidewaystable}", text)
        text = text.replace("\\end{table}", "\\end{sidewaystable}")
    return text


def _set_by_pdflatex(sign: str) -> bool:
    parts = unicodedata.normalize("NFD", sign)
    letter, accents = parts[0], parts[1:]
    ascii_letter = letter.isascii() and (letter.isprintable() or letter in "\n\t")
    accented = sign <= "\u01f5" and len(accents) <= 1 and _ACCENTS.issuperset(accents)
    return sign in _PLAIN or (ascii_letter and accented)


def to_html(tables: Sequence[DisparityTable]) -> str:
    """One page with every table; it has no script and asks for nothing."""
    parts = []
    for index, table in enumerate(tables):
        styled = _styled(table, id=f"table-{index + 1}")
        parts.append(styled.as_raw_html().replace(_BRACE, ""))
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    )
    title = html.escape(without_control_characters(tables[0].title))
    return f"{head}<title>{title}</title>\n</head>\n<body>\n" + "\n".join(parts) + "\n</body>\n</html>\n"


def _font_size(rows: int, columns: int) -> str:
    if columns <= WIDEST:
        return "10px"
    return "7px" if rows > LONGEST else "8px"


def _styled(table: DisparityTable, bar: str = "|", **options: Any) -> Any:
    """The table as great-tables holds it; ``bar`` stands in for the bar of every text."""
    import great_tables
    import pandas as pd

    def plain(text: str) -> str:
        text = " ".join(re.sub("[\ue000\ue001]", " ", text).split())
        text = without_control_characters(text).replace("|", bar)
        return text.replace("{{", f"{{{_BRACE}{{")

    heads: dict[str, Any] = {f"column_{index}": plain(head) for index, head in enumerate(table.groups)}
    columns = {
        "Attribute": [plain(row[0]) for row in table.rows],
        "Concept": [plain(row[1]) for row in table.rows],
    }
    columns |= {name: [plain(row[2][index]) for row in table.rows] for index, name in enumerate(heads)}
    styled = (
        great_tables.GT(pd.DataFrame(columns), **options)
        .tab_header(plain(table.title))
        .cols_label(heads)
        .cols_align("center", list(heads))
        .tab_options(table_font_size=_font_size(len(table.rows), len(heads)))
    )
    for number, block in enumerate(dict.fromkeys(filter(None, table.blocks))):
        own = [name for name, other in zip(heads, table.blocks, strict=True) if other == block]
        styled = styled.tab_spanner(label=plain(block), columns=own, id=f"block {number}")
    for note in table.notes:
        styled = styled.tab_source_note(plain(note))
    return styled
