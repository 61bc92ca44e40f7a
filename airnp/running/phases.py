"""The one phase of a fit or two: a second one goes on with all observations, where entries were held out."""

from __future__ import annotations

from dataclasses import dataclass

from airnp.stopping.monitors import Choice

_SPARE_SHARE, _SPARE_LEAST, _SPARE_MOST = 0.05, 10, 500
"""How much of ``max_iter`` is kept for a second phase, and how many iterations at least and at most."""


@dataclass
class Phases:
    """How far a fit has come.

    Attributes
    ----------
    start : int
        The iteration at which this phase began.
    chosen : Choice or None
        The iterate that the second phase began with; None in the first.
    stopped : str or None
        Why a monitor has just ended this phase.
    ended : str or None
        Why the first phase ended, once it has.
    used_up : bool
        Whether it ended because its iterations were used up.
    """

    start: int = 0
    chosen: Choice | None = None
    stopped: str | None = None
    ended: str | None = None
    used_up: bool = False

    def limit(self, max_iter: int, wants_follow_up: bool) -> int:
        """Return the iteration at which this phase ends at the latest.

        Examples
        --------
        >>> Phases().limit(1000, wants_follow_up=True), Phases().limit(1000, wants_follow_up=False)
        (950, 1000)
        """
        if self.chosen is not None:
            return min(max_iter, self.start + _SPARE_MOST)
        spare = min(_SPARE_MOST, int(_SPARE_SHARE * max_iter))
        return max_iter if spare < _SPARE_LEAST or not wants_follow_up else max_iter - spare

    def end_first(self, reason: str) -> None:
        """Note why the first phase ended."""
        self.ended, self.used_up = reason, self.stopped is None

    def begin_second(self, start: int, chosen: Choice) -> None:
        """Note where the second phase begins."""
        self.start, self.chosen, self.stopped = start, chosen, None
