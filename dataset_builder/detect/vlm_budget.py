"""Money: what was spent, what is on its way, and the line that neither may pass."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from targets.base.errors import InputError

MILLION = 1_000_000


class BudgetError(InputError):
    """The next request could pass the budget; everything bought so far is kept."""


@dataclass
class Budget:
    """Dollars, shared by threads.

    Attributes:
        limit: never passed; None for no limit.
        price_input, price_output: dollars a million tokens; None where unknown.
        spent: so far on the questions of this run, by earlier runs too.
        elsewhere: dollars that other questions took or can still take in the same folder.
        reserved: for requests that have no answer yet, the most they can cost.
        largest_ratio: most tokens of a question over their estimate, as answers came in.
    """

    limit: float | None
    price_input: float | None
    price_output: float | None
    spent: float = 0.0
    elsewhere: float = 0.0
    reserved: float = 0.0
    largest_ratio: float = 1.0
    _on_its_way: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition, repr=False)

    def cost(self, tokens_in: float, tokens_out: float) -> float:
        """Dollars of so many tokens; 0 where prices are unknown."""
        return ((self.price_input or 0) * tokens_in + (self.price_output or 0) * tokens_out) / MILLION

    def price(self, tokens_in: int, tokens_out: int) -> float | None:
        """Dollars of so many tokens; None where a price is unknown."""
        known = self.price_input is not None and self.price_output is not None
        return self.cost(tokens_in, tokens_out) if known else None

    def most(self, estimated_in: int, most_out: int) -> float:
        """Dollars a request can cost at most."""
        return self.cost(estimated_in * self.largest_ratio, most_out)

    def headroom(self) -> float | None:
        """Dollars that are neither spent nor reserved; None without a limit."""
        return None if self.limit is None else self.limit - self.spent - self.elsewhere - self.reserved

    def error(self) -> BudgetError:
        """The line that says why it stops and how to go on."""
        spent = self.spent + self.elsewhere
        return BudgetError(
            f"the next request could pass the budget of ${self.limit:g}, of which ${spent:.4f} is "
            "spent; all answers are kept, and the same command with a larger --budget goes on"
        )

    def reserve(self, estimated_in: int, most_out: int) -> float:
        """Set aside what a request can cost at most; waits while answers on their way may still free money.

        Raises:
            BudgetError: it could pass the limit.
        """
        with self._changed:
            while True:
                amount = self.most(estimated_in, most_out)
                left = self.headroom()
                if left is None or amount <= left:
                    self.reserved += amount
                    self._on_its_way += 1
                    return amount
                if not self._on_its_way:
                    raise self.error()
                self._changed.wait()

    def settle(self, amount: float, estimated_in: int, tokens_in: int, tokens_out: int) -> None:
        """Replace a reservation by what the answer took."""
        with self._changed:
            self.largest_ratio = max(self.largest_ratio, tokens_in / max(1, estimated_in))
            self.spent += self.cost(tokens_in, tokens_out)
            self._release(amount)

    def forfeit(self, amount: float, *, charged: bool) -> None:
        """Give a reservation up; ``charged`` where a lost answer may have been billed all the same."""
        with self._changed:
            self.spent += amount if charged else 0.0
            self._release(amount)

    def spend(self, tokens_in: int, tokens_out: int, estimated_in: int | None = None) -> None:
        """Count what was bought without a reservation."""
        with self._changed:
            if estimated_in:
                self.largest_ratio = max(self.largest_ratio, tokens_in / estimated_in)
            self.spent += self.cost(tokens_in, tokens_out)

    def _release(self, amount: float) -> None:
        self.reserved -= amount
        self._on_its_way -= 1
        if not self._on_its_way:
            self.reserved = 0.0
        self._changed.notify_all()
