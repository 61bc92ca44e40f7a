"""What a user says of a file that would otherwise be guessed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """How to read a file, where that is not to be guessed.

    Attributes
    ----------
    header : bool or None
        Whether the first line of a text file holds the columns' names; None: guess.
    index : str or None
        The column with the rows' labels: its name, or its number from 1; ``"none"`` for none; None: guess.
    delimiter : str or None
        Between the cells of a text file; None: guess.
    missing : tuple of str
        What else means missing, besides empty cells, NaN, NA and the like. A number is compared as a number.
    array : str or None
        Which array of an ``.npz`` file.
    """

    header: bool | None = None
    index: str | None = None
    delimiter: str | None = None
    missing: tuple[str, ...] = ()
    array: str | None = None
