"""A rule for errors that end on a plateau: of iterates that are almost equally good, the last."""

from __future__ import annotations

from airnp.stopping.rules import HeldOut


class LastOfTheBest(HeldOut):
    """As :class:`airnp.HeldOut`, but among iterates with almost the lowest error the last is taken.

    For a rate that falls: its error ends on a plateau, where the lowest point is a matter of chance and the
    last one has settled most.

    Parameters
    ----------
    tolerance : float
        Share of the lowest error that counts as no difference.
    fraction, patience, relative_patience, every
        As of :class:`airnp.HeldOut`.
    """

    def __init__(
        self, tolerance: float, fraction: float, patience: int, relative_patience: float, every: int
    ) -> None:
        super().__init__(fraction, patience, relative_patience, every)
        self.tolerance = tolerance
