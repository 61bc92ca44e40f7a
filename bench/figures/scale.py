"""How large and how long: the paper's sizes, or small and short ones that only show that all works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Divisors of sizes and of iterations."""

    size: int = 1
    iterations: int = 1

    def steps(self, iterations: int) -> int:
        """Return how many iterations stand for so many of the paper's."""
        return max(1, iterations // self.iterations)

    def length(self, lines: int) -> int:
        """Return how many rows, columns or components stand for so many of the paper's."""
        return max(1, lines // self.size)


FULL = Scale()
QUICK = Scale(size=4, iterations=10)
