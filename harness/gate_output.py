"""What the gate says: on a terminal, as JUnit, as a step summary in Markdown, as JSON."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.gate import Check, GateResult
from harness.numbers import number
from harness.tables import escape_markdown
from targets.base.files import atomic, write_json

GATE_SCHEMA = "facedelta.gate/1"
_HEADS = ("check", "outcome", "change", "bounds", "margin", "pairs", "identities", "to decide")
# Control characters that XML 1.0 can't hold, whatever the escaping.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def print_gate(out: Console, result: GateResult) -> None:
    """Print one line a check, the notes and the outcome."""
    shown = Table(title=f"Gate: {escape(str(result.new))} against {escape(str(result.baseline))}")
    for head in _HEADS:
        shown.add_column(head)
    for check in result.checks:
        shown.add_row(*(escape(text) for text in _texts(check)))
    out.print(shown)
    for check in result.checks:
        if not check.passed:
            out.print(escape(check.summary))
    for note in result.notes:
        out.print(f"note: {escape(note)}")
    out.print(f"gate: {result.outcome}")


def _texts(check: Check) -> tuple[str, ...]:
    change = check.change
    bounds = "" if math.isnan(change.low) else f"[{change.low:.3g}, {change.high:.3g}]"
    return (
        check.name,
        check.outcome,
        "" if math.isnan(change.change) else f"{change.change:.3g}",
        bounds,
        f"{check.rule.margin:g} {check.rule.harmful}",
        str(change.n_pairs),
        str(change.n_identities),
        _needed(check),
    )


def _needed(check: Check) -> str:
    if check.identities_needed is not None:
        return f"{check.identities_needed} identities"
    # With a spread that is known, only a planned change beyond the margin leaves no number that would do.
    return "none" if check.outcome == "inconclusive" and check.change.se > 0 else ""


def write_junit(path: Path, result: GateResult) -> None:
    """Write one test case a check; what is inconclusive or not comparable is an error, not a skip.

    A skipped test is green in most viewers, and the gate must not be.
    """
    counts = {
        "tests": len(result.checks),
        "failures": sum(check.outcome == "fail" for check in result.checks),
        "errors": sum(check.outcome in ("inconclusive", "not comparable") for check in result.checks),
    }
    attributes = {"name": "facedelta gate", **{name: str(count) for name, count in counts.items()}}
    suite = ElementTree.Element("testsuite", attributes)
    for check in result.checks:
        case = ElementTree.SubElement(suite, "testcase", classname="facedelta.gate", name=_xml(check.name))
        if check.outcome == "fail":
            ElementTree.SubElement(case, "failure", message=_xml(check.reason))
        elif not check.passed:
            ElementTree.SubElement(case, "error", type=check.outcome, message=_xml(check.reason))
    with atomic(path) as temporary:
        ElementTree.ElementTree(suite).write(temporary, encoding="utf-8", xml_declaration=True)


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)


def append_step_summary(path: Path, result: GateResult) -> None:
    """Append a Markdown section; earlier steps' text stays."""
    lines = [
        f"## Regression gate: {result.outcome}",
        "",
        _pipe(_HEADS),
        _pipe(["---"] * len(_HEADS)),
    ]
    lines += [_pipe([escape_markdown(text) for text in _texts(check)]) for check in result.checks]
    lines += ["", *(f"- {escape_markdown(check.summary)}" for check in result.checks if not check.passed)]
    lines += [f"- note: {escape_markdown(note)}" for note in result.notes]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="\n") as stream:
        stream.write("\n".join(lines) + "\n")


def _pipe(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def write_gate_json(path: Path, result: GateResult) -> None:
    """Write every check with all its digits; null where a value is undefined."""
    write_json(path, gate_json(result))


def gate_json(result: GateResult) -> dict[str, Any]:
    """The result as strict JSON values."""
    return {
        "schema": GATE_SCHEMA,
        "outcome": result.outcome,
        "exit_status": result.exit_status,
        "new": str(result.new),
        "baseline": str(result.baseline),
        "policy": result.limits.model_dump(mode="json"),
        "checks": [_check_json(check) for check in result.checks],
        "notes": list(result.notes),
    }


def _check_json(check: Check) -> dict[str, Any]:
    change = check.change
    numbers = ("change", "se", "df", "low", "high", "p_inside", "p_beyond")
    return {
        **check.rule.model_dump(mode="json", exclude={"group"}),
        "groups": list(check.groups),
        "outcome": check.outcome,
        "reason": check.reason,
        "n_pairs": change.n_pairs,
        "n_identities": change.n_identities,
        "lost": change.lost,
        **{name: number(getattr(change, name)) for name in numbers},
        "p_beyond_adjusted": number(check.p_beyond_adjusted),
        "identities_needed": check.identities_needed,
    }
