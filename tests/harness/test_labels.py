"""Labels that look alike are one label or are named; people's verdicts, decimal commas, ragged rows."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataset_builder.schema.taxonomy import load_taxonomy
from targets.base.errors import InputError
from tests.harness.test_audit_scores import COLUMNS, row, scores
from tests.support import PAIR_COLUMNS, call, drawn_pairs, write_csv

COMPOSED, DECOMPOSED = "caf\u00e9", "cafe\u0301"
SPACES = [" WM", "WM ", "\u00a0WM\u00a0", "\tWM", "WM\u3000", "\u2009WM\n"]
ALIKE = [("WM", "wm"), ("WM", "W\u200bM"), ("WM", "\ufeffWM"), (COMPOSED, DECOMPOSED), ("W M", "W\u00a0M"),
         ("WM", "\uff37\uff2d"), ("W M", "W  M"), ("WM", "W\u00adM")]  # fmt: skip


def rows_with(column: str, labels: tuple[str, str]) -> list[tuple[object, ...]]:
    """Twelve pairs, every second with the other label; ids of pairs get a number before the label."""
    made = []
    for i in range(12):
        given = {"identity": f"i{i // 2}", column: labels[i % 2]}
        made.append(row(i, 0.1, 0.2 + (i * 7 % 5) / 50, **given))
        if column == "pair_id":
            made[-1] = (f"p{i // 2}-{labels[i % 2]}", *made[-1][1:])
    return made


def audited(table: Path, capsys: pytest.CaptureFixture[str], *more: object) -> dict[str, Any]:
    run = table.parent / "run"
    words = more or ("--scores", table)
    done = call(capsys, "audit", *words, "--out", run, "--max-failures", 1)
    assert done.status == 0, done.err
    return dict(json.loads((run / "record.json").read_text(encoding="utf-8")))


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_outer_spaces_are_no_part_of_a_label(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / f"s.{kind}"
    made = [
        dict(
            zip(
                COLUMNS, row(i, 0.1, 0.2 + i / 50, demographic=label, concept=f"{label[:1]}face"), strict=True
            )
        )
        for i, label in enumerate([*SPACES, "WM"])
    ]
    for item in made:
        item["concept"] = str(item["concept"]).replace("W", "")
    if kind == "csv":
        write_csv(table, [f" {name}\u00a0" for name in COLUMNS], [tuple(item.values()) for item in made])
    elif kind == "jsonl":
        table.write_text("\n".join(map(json.dumps, made)), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(made), table)
    record = audited(table, capsys)
    assert (record["groups"], record["concepts"], record["data"]["n_pairs"]) == (["WM"], ["face"], 7)


@pytest.mark.parametrize("column", ["demographic", "attribute", "identity", "pair_id", "concept"])
@pytest.mark.parametrize("labels", ALIKE, ids=ascii)
def test_labels_that_look_alike_are_named(
    column: str, labels: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = audited(scores(tmp_path / "s.csv", rows_with(column, labels)), capsys)
    (warning,) = [text for text in record["warnings"] if "differ only in" in text]
    assert f"column '{column}'" in warning
    for label in labels:
        assert ascii(label)[1:-1] in warning


def test_identities_of_two_groups_are_not_held_against_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [
        row(i, 0.1, 0.2, demographic="AB"[i % 2], identity=("anna", "Anna")[i % 2] + str(i // 2))
        for i in range(8)
    ]
    record = audited(scores(tmp_path / "s.csv", made), capsys)
    assert not [text for text in record["warnings"] if "differ only" in text]


def test_a_table_of_pictures_and_its_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A path in the other Unicode form, or with a space around it, is the picture that is there."""
    table = drawn_pairs(tmp_path, ("WM",))
    lines = [line.split(",") for line in table.read_text(encoding="utf-8").splitlines()[1:]]
    for number, (name, form) in enumerate((("NFC", "NFD"), ("NFD", "NFC"))):
        old = tmp_path / lines[number][5]
        old.rename(old.with_name(unicodedata.normalize(name, COMPOSED) + f"{number}.png"))
        lines[number][5] = "images/" + unicodedata.normalize(form, COMPOSED) + f"{number}.png"
    lines[2][6] = f"\u00a0{lines[2][6]} "
    lines[3][3] = "wm"
    write_csv(table, PAIR_COLUMNS, lines)
    (tmp_path / "own.py").write_text(
        "import numpy as np\nclass T:\n    concepts = ('bright',)\n    def score(self, images):\n"
        "        return np.array([[np.asarray(image).mean() / 255] for image in images])\n"
    )
    record = audited(table, capsys, table, "--target", f"{tmp_path}/own.py:T")
    assert record["data"]["fault_share"] == 0
    assert any("'WM' and 'wm' differ only" in text for text in record["warnings"])


@pytest.mark.parametrize(("label", "known"), [("wm", "WM"), ("W\u200bM", "WM"), (DECOMPOSED, COMPOSED)])
def test_a_taxonomy_and_a_policy_name_the_label_that_is_meant(
    label: str, known: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taxonomy = tmp_path / "t.toml"
    taxonomy.write_text(
        f'name = "t"\n[groups."{known}"]\ntitle = "x"\nethnicity = "a"\nsex = "male"\n'
        '[attributes.glasses]\ntitle = "g"\ncategory = "c"\n',
        encoding="utf-8",
    )
    made = [
        row(i, 0.1, 0.2 + i / 50, demographic=label, attribute="glasses", identity=f"i{i}") for i in range(12)
    ]
    table = scores(tmp_path / "s.csv", made)
    done = call(capsys, "audit", "--scores", table, "--taxonomy", taxonomy, "--out", tmp_path / "none")
    assert (done.status, f"did you mean {known!a}?" in done.err) == (2, True), done.err
    audited(table, capsys)
    policy = tmp_path / "p.toml"
    policy.write_text(
        f'[[rule]]\nmetric = "delta"\nattribute = "glasses"\nconcept = "face"\ngroup = "{known}"\n'
        'harmful = "both"\nmargin = 0.4\n',
        encoding="utf-8",
    )
    run = tmp_path / "run"
    done = call(capsys, "gate", run, "--baseline", run, "--policy", policy)
    assert (done.status, f"did you mean {label!a}?" in done.err) == (2, True), done.err


@pytest.mark.parametrize("names", [*ALIKE, (" WM", "BM"), ("W\u202eM", "BM")], ids=ascii)
def test_a_taxonomy_holds_no_names_that_look_alike(names: tuple[str, str], tmp_path: Path) -> None:
    taxonomy = tmp_path / "t.toml"
    groups = [f'[groups."{name}"]\ntitle = "x"\nethnicity = "a"\nsex = "male"\n' for name in names]
    text = 'name = "t"\n' + "".join(groups) + '[attributes.glasses]\ntitle = "g"\ncategory = "c"\n'
    taxonomy.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"differ only in case|must have no outer spaces"):
        load_taxonomy(str(taxonomy))


@pytest.mark.parametrize(
    ("verdicts", "kept"), [(("yes", "no"), 6), ((True, False), 6), ((1, 0), 6), (("Yes ", " NO"), 6)], ids=str
)
@pytest.mark.parametrize("name", ["validated", "Validated"])
def test_pairs_that_people_rejected_are_left_out(
    verdicts: tuple[object, object], kept: int, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = [(*row(i, 0.1, 0.2 if i % 2 else 0.9, identity=f"i{i}"), verdicts[i % 2 == 0]) for i in range(12)]
    table = write_csv(tmp_path / "s.csv", (*COLUMNS, name), made)
    done = call(capsys, "audit", "--scores", table, "--out", tmp_path / "run", "--max-failures", 0)
    assert (done.status, "left out: not_validated 6" in done.out) == (0, True), done.err + done.out
    (cell,) = json.loads((tmp_path / "run" / "record.json").read_text())["cells"]
    assert cell["n_pairs"] == kept
    assert cell["delta"] == pytest.approx(0.1)


def test_rejected_pairs_of_pictures_and_verdicts_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = drawn_pairs(tmp_path, ("WM",))
    lines = [line.split(",") for line in table.read_text(encoding="utf-8").splitlines()[1:]]
    marks = ["yes", "no", "unsure", "", "yes", "yes"]
    write_csv(
        table, (*PAIR_COLUMNS, "validated"), [(*line, mark) for line, mark in zip(lines, marks, strict=True)]
    )
    (tmp_path / "own.py").write_text(
        "import numpy as np\nclass T:\n    concepts = ('bright',)\n    def score(self, images):\n"
        "        return np.array([[np.asarray(image).mean() / 255] for image in images])\n"
    )
    record = audited(table, capsys, table, "--target", f"{tmp_path}/own.py:T")
    assert record["data"]["n_pairs"] == 5
    (warning,) = [text for text in record["warnings"] if "validated" in text]
    assert "2 rows with neither yes nor no ('unsure' in pairs.csv row 4) are kept" in warning


def test_a_decimal_comma_is_offered_as_a_point(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = scores(tmp_path / "s.csv", [row(i, "0,42", "0,5") for i in range(12)])
    done = call(capsys, "audit", "--scores", table, "--out", tmp_path / "run")
    assert (done.status, "write a decimal point: 0.42" in done.err) == (2, True), done.err
    printed = tmp_path / "t.csv"
    printed.write_text('attribute,concept,group,delta,half_width\na,c,WM,"0,1",1\n', encoding="utf-8")
    assert "write a decimal point: 0.1" in call(capsys, "table", printed).err


def test_semicolons_are_told_before_ragged_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "s.csv"
    lines = [";".join(COLUMNS), *(";".join(map(str, row(i, "0,42", "0,5"))) for i in range(3))]
    table.write_text("\n".join(lines), encoding="utf-8")
    done = call(capsys, "audit", "--scores", table, "--out", tmp_path / "run")
    assert (done.status, "looks separated by semicolons" in done.err) == (2, True), done.err


@pytest.mark.parametrize("before", ["", "\n\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_ragged_row_has_its_line(
    before: str, end: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "s.csv"
    made = [",".join(map(str, row(i, 0.1, 0.2))) for i in range(5)]
    made[1] = made[1].replace("WM", '"W\nM"')
    made[3] += ",more"
    table.write_text(before + end.join([",".join(COLUMNS), *made]) + end, encoding="utf-8", newline="")
    done = call(capsys, "audit", "--scores", table, "--out", tmp_path / "run")
    line = 6 + len(before)
    assert (done.status, f"must have 8 cells, got 9 in line {line}: " in done.err) == (2, True), done.err
