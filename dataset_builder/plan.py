"""What a build will do, in counts, hours and dollars."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """What a build will do.

    Attributes:
        sources: source faces to make.
        edits: transformed faces to make.
        calls: detector -> pictures it will be asked about, at most.
        hours: estimated hours of making pictures.
        device: what those hours are hours of ("GPU" or "CPU").
        dollars: what the attribute detector may cost, about; None where it is free or has no prices.
    """

    sources: int
    edits: int
    calls: dict[str, int]
    hours: float
    device: str
    dollars: float | None = None

    def lines(self) -> list[str]:
        """The plan in words, a line a fact."""
        what = {"GPU": "GPU hours on an H100", "CPU": "CPU hours"}
        return [
            f"source faces      {self.sources:,}",
            f"transformed faces {self.edits:,}",
            *(f"{f'calls, {name}':18}{count:,} pictures at most" for name, count in self.calls.items()),
            f"estimated         {self.hours:.1f} {what[self.device]}",
            *([] if self.dollars is None else [f"estimated         ${self.dollars:,.2f} for attributes"]),
        ]
