"""What the gate says: on a terminal, as JUnit, as a step summary in Markdown, as JSON."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.gate import Check, GateResult
from harness.numbers import number
from harness.tables import escape_markdown
from harness.terminal import print_columns, say
from targets.base.files import atomic, write_json
from targets.base.text import counted, without_control_characters

GATE_SCHEMA = "facedelta.gate/1"
_HEADS = ("check", "outcome", "change", "bound", "margin", "pairs", "identities", "to decide")
# Viewers want a time. All checks are decided at once, and one command gives the same bytes each time.
_NO_TIME = "0.000"
# Control characters that XML 1.0 can't hold, whatever the escaping.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def print_gate(out: Console, result: GateResult) -> None:
    """Print one line a check, the notes and the outcome."""
    head, *heads = _HEADS
    rows = [((name,), texts) for name, *texts in map(_texts, result.checks)]
    print_columns(out, f"Gate: {result.new} against {result.baseline}", (head,), heads, rows)
    for line in _lines(result):
        say(out, line)
    for note in result.notes:
        say(out, f"note: {note}")
    say(out, f"gate: {result.outcome}")


def _lines(result: GateResult) -> list[str]:
    """Why a check did not pass, what a pass leaves out, and which checks are of an unchanged model."""
    lines = [check.summary for check in result.checks if not check.passed or _leaves_out(check)]
    unchanged = Counter(check.reason for check in result.checks if check.passed and check.change.unchanged)
    return [*lines, *(f"{counted(count, 'check')}: pass: {reason}" for reason, count in unchanged.items())]


def _leaves_out(check: Check) -> bool:
    change = check.change
    return not change.unchanged and (change.lost > 0 or not check.planned.terms.unseen)


def _texts(check: Check) -> tuple[str, ...]:
    change = check.change
    bound = check.decided.bound
    return (
        check.name,
        check.outcome,
        "" if math.isnan(change.change) else f"{change.change:.3g}",
        "" if math.isnan(bound) else f"{bound:.3g}",
        f"{check.planned.terms.margin:g} {check.rule.harmful}",
        str(change.n_pairs),
        str(change.n_identities),
        _needed(check),
    )


def _needed(check: Check) -> str:
    if check.identities_needed is not None:
        total = " in both groups" if len(check.groups) > 1 else ""
        return f"{check.identities_needed} identities{total}"
    # With a spread that is known, only changes or lost pairs up to the margin leave no number that would do.
    known = (
        (check.change.se > 0 or check.change.lost)
        and not check.change.cannot_pass
        and not check.planned.constant
    )
    return "none" if check.outcome == "inconclusive" and known else ""


def write_junit(path: Path, result: GateResult) -> None:
    """Write one test case a check; what is inconclusive or not comparable is an error, not a skip.

    A skipped test is green in most viewers, and the gate must not be.
    """
    outcomes = [check.outcome for check in result.checks]
    failures = outcomes.count("fail")
    counts = {
        "name": "facedelta gate",
        "tests": str(len(outcomes)),
        "failures": str(failures),
        "errors": str(len(outcomes) - outcomes.count("pass") - failures),
        "skipped": "0",
        "time": _NO_TIME,
    }
    suites = ElementTree.Element("testsuites", {k: v for k, v in counts.items() if k != "skipped"})
    suite = ElementTree.SubElement(suites, "testsuite", counts)
    for check in result.checks:
        case = ElementTree.SubElement(
            suite, "testcase", classname="facedelta.gate", name=_xml(check.name), time=_NO_TIME
        )
        if not check.passed:
            kind = "failure" if check.outcome == "fail" else "error"
            fault = ElementTree.SubElement(case, kind, type=check.outcome, message=_xml(check.reason))
            fault.text = _xml(_in_lines(check))
        else:
            ElementTree.SubElement(case, "system-out").text = _xml(check.reason)
    with atomic(path) as temporary:
        ElementTree.ElementTree(suites).write(temporary, encoding="utf-8", xml_declaration=True)


def _in_lines(check: Check) -> str:
    """What a viewer shows of a check that did not pass: a line a fact."""
    facts = [f"{head}: {text}" for head, text in zip(_HEADS, _texts(check), strict=True) if text]
    return "\n".join([*facts, f"reason: {check.reason}"])


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", without_control_characters(text))


def append_step_summary(path: Path, result: GateResult) -> None:
    """Append a Markdown section; earlier steps' text stays."""
    lines = [
        f"## Regression gate: {result.outcome}",
        "",
        _pipe(_HEADS),
        _pipe(["---"] * len(_HEADS)),
    ]
    lines += [_pipe([escape_markdown(text) for text in _texts(check)]) for check in result.checks]
    lines += ["", *(f"- {escape_markdown(line)}" for line in _lines(result))]
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
    numbers = ("change", "se", "df", "low", "high", "worst_low", "worst_high", "p_beyond")
    return {
        **check.rule.model_dump(mode="json", exclude={"group"}),
        "groups": list(check.groups),
        "since": check.planned.since,
        "margin_in_force": check.planned.terms.margin,
        "largest_change_in_force": check.planned.terms.largest,
        "unchanged": bool(change.unchanged),
        "outcome": check.outcome,
        "reason": check.reason,
        "n_pairs": change.n_pairs,
        "n_identities": change.n_identities,
        "lost": change.lost,
        **{name: number(getattr(change, name)) for name in numbers},
        "unseen_share": change.unseen,
        "bound": number(check.decided.bound),
        "p_beyond_adjusted": number(check.p_beyond_adjusted),
        "identities_needed": check.identities_needed,
    }
