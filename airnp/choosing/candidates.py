"""Settings that were tried, and how well each of them predicts held-out entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp.choosing.judging import Judges

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Candidate:
    """Settings that were tried.

    Attributes
    ----------
    settings : dict
        What the grid said, as arguments of :func:`airnp.fit`.
    nmae, standard_error : float
        Mean absolute error on the held-out entries, over the range of the observed ones; NaN if it failed.
        The standard error takes the entries of a hole as one.
    n_iter : int
        Iterations that were run.
    stop_reason : str
    seconds : float
        That the fit took; for members of a stack, their share.
    error : Exception or None
        Why it failed.
    """

    settings: dict[str, Any]
    nmae: float = float("nan")
    standard_error: float = float("nan")
    n_iter: int = 0
    stop_reason: str = ""
    seconds: float = 0.0
    error: BaseException | None = None
    errors: Floats = field(default_factory=lambda: np.empty(0), repr=False)


@dataclass(frozen=True, eq=False)
class Search:
    """All candidates of a search, in the order of the grid.

    Attributes
    ----------
    candidates : list of Candidate
    judges : Judges
        The observed entries that judged them, and that none of them saw; see :mod:`airnp.choosing.judging`.
    seed : int
        Repeats it.
    """

    candidates: list[Candidate]
    judges: Judges = field(repr=False)
    seed: int

    @property
    def held_out(self) -> npt.NDArray[np.bool_]:
        """True at the observed entries that judged, (m, n)."""
        return self.judges.held_out

    @property
    def best(self) -> Candidate:
        """The candidate with the lowest error on held-out entries.

        Its error is the lowest of several, and therefore lower than what to expect: :func:`airnp.complete`
        has an honest one.
        """
        return min(self.finished, key=lambda candidate: candidate.nmae)

    @property
    def finished(self) -> list[Candidate]:
        """The candidates that did not fail."""
        return [candidate for candidate in self.candidates if candidate.error is None]

    def to_dataframe(self) -> Any:
        """Return a pandas DataFrame with a row for each candidate: its settings, its error, how it went."""
        from pandas import DataFrame

        return DataFrame([{**each.settings, **_outcome(each)} for each in self.candidates])

    def __str__(self) -> str:
        lines = [f"{'NMAE':>9} {'± s.e.':>9} {'iterations':>10}  settings"]
        for each in self.candidates:
            said = ", ".join(f"{name}={value!r}" for name, value in each.settings.items()) or "defaults"
            how = "" if each.error is None else f"  failed: {type(each.error).__name__}: {each.error}"
            lines.append(f"{each.nmae:9.5f} {each.standard_error:9.5f} {each.n_iter:10d}  {said}{how}")
        return "\n".join(lines)


def _outcome(candidate: Candidate) -> dict[str, Any]:
    names = ("nmae", "standard_error", "n_iter", "stop_reason", "seconds", "error")
    return {name: getattr(candidate, name) for name in names}
