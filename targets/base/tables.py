"""Tables from CSV, TSV, JSON Lines and Parquet, read without guessing.

Text stays text: ``NA`` is a label, ``007`` and ``7`` are two identities. CSV cells are strings; JSON
values keep their type, so that a reader can refuse ``true`` as a score.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from targets.base.errors import InputError
from targets.base.files import read_parquet, read_regular
from targets.base.strict_json import parse_json
from targets.base.text import excerpt, nearest, shortlist

ObjectArray = npt.NDArray[np.object_]
LARGEST_SCORE = 1e100
"""No model's scale reaches so far, and beyond it squares and products of bounds overflow."""
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class Table:
    """Columns of equal length, in file order.

    Attributes:
        path: where it was read from.
        columns: name -> object array; a value is a string (CSV), a JSON value, or None where absent.
        first_row: the number a person would give the first data row (2 in a CSV with a header).
    """

    path: Path
    columns: dict[str, ObjectArray]
    first_row: int

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def require(self, names: Iterable[str], what: str) -> None:
        """Check that all columns in ``names`` exist.

        Raises:
            InputError: naming what is missing and what is there.
        """
        for name in names:
            if name not in self.columns:
                hint = nearest(name, self.columns)
                found = shortlist(list(self.columns), 8)
                raise InputError(f"{self.path}: {what} needs a column '{name}'{hint}; found {found}")

    def text(self, name: str, *, stripped: bool = True) -> ObjectArray:
        """The column as strings; an absent value or NaN is an empty string, a whole number keeps no '.0'.

        Args:
            name: of the column.
            stripped: without outer white space, non-breaking spaces too. Paths may want theirs.

        Raises:
            InputError: what is not UTF-8, a list or a struct.
        """
        values = self.columns[name]
        try:
            texts = [as_text(value) for value in values]
            return np.array([text.strip() for text in texts] if stripped else texts, dtype=object)
        except (TypeError, UnicodeError):
            row = next(index for index, value in enumerate(values) if not is_text(value))
            raise InputError(
                f"{self.path}: column '{name}' must hold UTF-8 text or numbers, got "
                f"{excerpt(ascii(values[row]), 80)} in {self.row(row)}"
            ) from None

    def row(self, index: int) -> str:
        """Name a row for a message."""
        return f"{self.path.name} row {index + self.first_row}"


def as_text(value: object) -> str:
    """A cell as text; nothing, None and NaN are an empty string, and 1.0 is "1".

    Raises:
        UnicodeError: bytes that are not UTF-8, or half of a surrogate pair.
        TypeError: a list or a struct.
    """
    if isinstance(value, str):
        if not value.isascii():
            value.encode()
        return value
    if value is None or value != value:
        return ""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list | dict):
        raise TypeError("no text")
    if isinstance(value, float | Decimal) and math.isfinite(value) and value == int(value):
        return str(int(value))
    return str(value)


def is_text(value: object) -> bool:
    """Whether a cell can be read as text."""
    try:
        as_text(value)
    except (TypeError, UnicodeError):
        return False
    return True


def read_table(path: Path, encoding: str = "utf-8") -> Table:
    """Read a table; the kind is told by the ending (.csv, .tsv, .jsonl, .ndjson, .parquet).

    Args:
        path: the file.
        encoding: of a text file. A UTF-8 byte order mark is dropped; nothing is guessed.

    Raises:
        InputError: no such file, unknown ending, wrong encoding, ragged rows, no rows, no header.
    """
    readers = {".csv": _read_csv, ".tsv": _read_csv, ".jsonl": _read_jsonl, ".ndjson": _read_jsonl}
    suffix = path.suffix.lower()
    if not path.is_file():
        raise InputError(f"no such file: {path}")
    if suffix == ".parquet":
        return _read_parquet(path)
    if suffix not in readers:
        raise InputError(f"{path}: a table must end in .csv, .tsv, .jsonl or .parquet, got '{path.suffix}'")
    return readers[suffix](path, read_text(path, encoding))


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """Read a text file in a declared encoding, without its byte order mark.

    Raises:
        InputError: the bytes are not in that encoding; the message says what to declare.
    """
    data = read_regular(path)
    if data[:2] in _UTF16_MARKS and not encoding.lower().replace("-", "").startswith("utf16"):
        raise InputError(
            f"{path} starts with a UTF-16 byte order mark: pass --encoding utf-16 or save it as UTF-8"
        )
    try:
        text = data.decode(encoding).removeprefix("\ufeff")
        text.encode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} must be {encoding}: byte 0x{data[error.start]:02x} at offset {error.start} is not; "
            "save it as UTF-8 or declare it with --encoding (cp1252 for older Excel files)"
        ) from None
    except UnicodeError as error:
        raise InputError(f"{path} can't be read as {encoding}: {excerpt(error)}") from None
    except (LookupError, ValueError):
        raise InputError(f"unknown encoding '{encoding}'") from None
    return text


def _read_csv(path: Path, text: str) -> Table:
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    if not text.strip():
        raise InputError(f"{path} is empty: a header row and at least one row are needed")
    blank = re.match(r"(?:[ \t]*(?:\r\n|\r|\n))*", text)
    text, skipped = text[blank.end() :], len(blank.group().splitlines())  # type: ignore[union-attr]
    names = _header(path, text, delimiter)

    ragged: list[str] = []

    def refuse(row: pa_csv.InvalidRow) -> Literal["error"]:
        counts = f"every row must have {row.expected_columns} cells, got {row.actual_columns}"
        ragged.append(f"{counts} in {_line_of(row.text, text, 1 + skipped)}: {excerpt(row.text, 80)}")
        return "error"

    try:
        table = pa_csv.read_csv(
            io.BytesIO(text.encode()),
            read_options=pa_csv.ReadOptions(use_threads=False),
            parse_options=pa_csv.ParseOptions(
                delimiter=delimiter, newlines_in_values=True, invalid_row_handler=refuse
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False, null_values=[]
            ),
        )
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: {ragged[0] if ragged else error}") from None
    columns = zip(_stripped(path, names), table.columns, strict=True)
    return Table(path, {name: _shared_strings(column) for name, column in columns}, 2 + skipped)


def _line_of(row: str, text: str, first: int) -> str:
    """Which line of a text a row is; the first of equal ones, which are ragged alike."""
    found = re.search(rf"^{re.escape(row)}\s*$", text, re.MULTILINE)
    return f"line {text.count(chr(10), 0, found.start()) + first}" if found else "a row"


def _header(path: Path, text: str, delimiter: str) -> list[str]:
    parsing = pa_csv.ParseOptions(
        delimiter=delimiter, newlines_in_values=True, invalid_row_handler=lambda _: "skip"
    )
    try:
        names = pa_csv.open_csv(io.BytesIO(text.encode() + b"\n"), parse_options=parsing).schema.names
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: its header can't be read, is a quotation mark open? {error}") from None
    others = {";": "semicolons", "\t": "tabs", ",": "commas", "|": "bars"}
    for sign, what in others.items():
        if len(names) == 1 and sign in names[0].strip():
            ours = others[delimiter]
            raise InputError(
                f"{path} must be separated by {ours}, but its header looks separated by {what}, got "
                f"{excerpt(names[0], 80)!r}: save it with {ours}, and with decimal points"
            )
    return list(names)


def _stripped(path: Path, names: Sequence[str]) -> list[str]:
    """Names of columns without outer white space, all different."""
    names = [name.strip() for name in names]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"{path}: column names must differ, '{repeated[0]}' occurs twice")
    return names


def _shared_strings(column: pa.ChunkedArray) -> ObjectArray:
    """Equal strings become one object: a long table repeats its labels millions of times."""
    encoded = column.combine_chunks().dictionary_encode()
    distinct: ObjectArray = np.array([*encoded.dictionary.to_pylist(), None], dtype=object)
    indices = np.asarray(encoded.indices.fill_null(len(distinct) - 1), dtype=np.intp)
    return distinct[indices]


def _read_jsonl(path: Path, text: str) -> Table:
    rows: list[dict[str, Any]] = []
    # Only a line feed ends a line: U+2028, U+0085 and form feeds are characters of a string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line, strict=False)
        except ValueError as error:
            raise InputError(f"{path} line {number} must be one JSON object: {error}") from None
        if not isinstance(row, dict):
            raise InputError(f"{path} line {number} must be one JSON object, got {type(row).__name__}")
        rows.append(row)
    if not rows:
        raise InputError(f"{path} holds no rows")
    keys = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: np.empty(len(rows), dtype=object) for name in _stripped(path, keys)}
    for index, row in enumerate(rows):
        for key, column in zip(keys, columns.values(), strict=True):
            column[index] = row.get(key)
    return Table(path, columns, first_row=1)


def _read_parquet(path: Path) -> Table:
    table = read_parquet(path)
    columns = {}
    for name, column in zip(_stripped(path, table.schema.names), table.columns, strict=True):
        try:
            is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
            columns[name] = _shared_strings(column) if is_text else _cells(column)
        except (pa.ArrowException, OverflowError, ValueError) as error:
            kind = f"column '{name}' of {column.type}"
            raise InputError(f"{path}: {kind} can't be read ({excerpt(error)}); write it as text") from None
    return Table(path, columns, first_row=1)


def _cells(column: pa.ChunkedArray) -> ObjectArray:
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type) or pa.types.is_time(column.type):
        # Python has no type for their nanoseconds; none is a label or score that is read as a number.
        column = column.cast(pa.string())
    values = np.empty(len(column), dtype=object)
    values[:] = column.to_pylist()
    return values


def parse_number(value: object) -> tuple[float, str | None]:
    """Read one score.

    Returns:
        The number and None; or NaN and what is wrong: ``"absent"`` for an empty cell, None, NA, NaN or
        null, and ``"not a finite number"`` for more than 1e100, a word, a JSON string or boolean.
    """
    if value is None:
        return float("nan"), "absent"
    if isinstance(value, bool) or not isinstance(value, str | Real | Decimal):
        return float("nan"), "not a finite number"
    if isinstance(value, str):
        return _parse_text(value)
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if np.isnan(number):
        return number, "absent"
    return (number, None) if abs(number) <= LARGEST_SCORE else (float("nan"), "not a finite number")


def _parse_text(value: str) -> tuple[float, str | None]:
    text = value.strip()
    if text.lower() in {"", "na", "n/a", "nan", "null", "none"}:
        return float("nan"), "absent"
    try:
        number = float(text) if "_" not in text else float("inf")
    except ValueError:
        return float("nan"), "not a finite number"
    return (number, None) if abs(number) <= LARGEST_SCORE else (float("nan"), "not a finite number")


def decimal_hint(value: object) -> str:
    """What to mend in a number with a decimal comma, as the end of a message; else an empty string."""
    text = str(value).strip()
    if not re.fullmatch(r"[+-]?\d*,\d+(e[+-]?\d+)?", text, re.IGNORECASE):
        return ""
    return f"; write a decimal point: {text.replace(',', '.')}"


def parse_numbers(
    column: ObjectArray, *, text_is_number: bool
) -> tuple[npt.NDArray[np.float64], dict[int, str]]:
    """Read a column of scores.

    Args:
        column: the cells.
        text_is_number: True for CSV, where every number is text; False where a JSON string is no number.

    Returns:
        float64 values with NaN where there is none, and row -> what is wrong there.
    """
    numbers = np.full(len(column), np.nan)
    faults: dict[int, str] = {}
    for index, value in enumerate(column):
        if isinstance(value, str) and not text_is_number:
            faults[index] = "not a finite number"
            continue
        number, fault = parse_number(value)
        if fault is None:
            numbers[index] = number
        else:
            faults[index] = fault
    return numbers, faults
