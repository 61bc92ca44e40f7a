"""Load the data sets of the catalogue from their files, as a :class:`~airnp.datasets.Dataset`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from airnp import masks
from airnp.datasets.catalogue import ENTRIES, FILES, Dataset
from airnp.datasets.download import locate
from airnp.images.formats import PILLOW_FORMATS, load_pillow

Matrix = NDArray[np.float64]

_LUMA = (0.299, 0.587, 0.114)  # ITU-R 601


# --- pictures ---


def barbara() -> Dataset:
    """Load the picture Barbara: a `matrix` of 240×240 grey values in [0, 1]."""
    return _picture("barbara")


def baboon() -> Dataset:
    """Load the picture Baboon: a `matrix` of 240×240 grey values in [0, 1].

    Notes
    -----
    The file has 500×480 colour pixels. They are resized as in the program of the paper's authors, without
    smoothing; a picture resized with smoothing is easier to complete, and its errors cannot be compared with
    the paper's.
    """
    return _picture("baboon")


def cameraman() -> Dataset:
    """Load the picture Cameraman: a `matrix` of 240×240 grey values in [0, 1]."""
    return _picture("cameraman")


def _picture(name: str) -> Dataset:
    (path,) = _paths(name)
    return _dataset(name, read_picture(path, ENTRIES[name].shape))


def texture_mask() -> NDArray[np.bool_]:
    """Load the paper's texture mask, (240, 240), True = observed: text over about 9 % of a picture."""
    (path,) = _paths("texture_mask")
    with open_picture(path) as picture:
        return masks.from_image(picture)


# --- ratings ---


def syn_netflix() -> Dataset:
    """Load Syn-Netflix: synthetic ratings of 200 items by 150 users, in groups of equal taste.

    Returns
    -------
    Dataset
        With a `matrix` of 150×200 ratings from 1 to 5, all known; `row_graph` and `column_graph`, sparse; and
        the split of Monti et al., 15 % in `mask` and another 15 % in `test_mask`. The paper on AIR draws
        masks of its own.
    """
    (path,) = _paths("syn_netflix")
    ratings, training, testing, users, items = read_matlab(path, ("M", "Otraining", "Otest", "Wrow", "Wcol"))
    return _dataset(
        "syn_netflix",
        ratings,
        mask=training > 0,
        test_mask=testing > 0,
        row_graph=users,
        column_graph=items,
    )


def movielens_100k() -> Dataset:
    """Load MovieLens 100K: 100 000 ratings of 1682 films by 943 users.

    Returns
    -------
    Dataset
        With a `matrix` of 943×1682 ratings from 1 to 5, NaN where there is none; the given split, 80 000
        ratings in `mask` and 20 000 in `test_mask`; `row_graph` and `column_graph`, sparse, which Monti et
        al. made of what is known about users and films.
    """
    (path,) = _paths("movielens_100k")
    names = ("M", "Otraining", "Otest", "W_users", "W_movies")
    ratings, training, testing, users, films = read_matlab(path, names)
    training, testing = training > 0, testing > 0
    return _dataset(
        "movielens_100k",
        np.where(training | testing, ratings, np.nan),  # the file has 0 there, which is no rating
        mask=training,
        test_mask=testing,
        row_graph=users,
        column_graph=films,
    )


# --- drugs and their targets ---


def dti_ic() -> Dataset:
    """Load which of 210 drugs are known to act on which of 204 ion channels.

    Returns
    -------
    Dataset
        With a `matrix` of 210×204 zeros and ones; the similarity of the drugs in `row_graph` and of the
        targets in `column_graph`; their names in KEGG in `row_labels` and `column_labels`.

    Notes
    -----
    The similarity of drugs is not quite symmetric in the file; here it is the mean of both directions. An
    interaction that was never tried counts as none.
    """
    return _interactions("dti_ic")


def dti_gpcr() -> Dataset:
    """Load which of 223 drugs are known to act on which of 95 G protein-coupled receptors; see `dti_ic`."""
    return _interactions("dti_gpcr")


def _interactions(name: str) -> Dataset:
    acting, drug_similarity, target_similarity = (read_table(path) for path in _paths(name))
    # The file has a row for each target; the paper, and airnp, have one for each drug.
    if not (
        acting.column_labels == drug_similarity.row_labels == drug_similarity.column_labels
        and acting.row_labels == target_similarity.row_labels == target_similarity.column_labels
    ):
        raise ValueError(f"{name}: the tables do not name the same drugs and targets in the same order")
    return _dataset(
        name,
        np.ascontiguousarray(acting.values.T),
        row_graph=(drug_similarity.values + drug_similarity.values.T) / 2,
        column_graph=(target_similarity.values + target_similarity.values.T) / 2,
        row_labels=acting.column_labels,
        column_labels=acting.row_labels,
    )


# --- by name ---

_LOADERS: dict[str, Callable[[], Dataset]] = {
    loader.__name__: loader
    for loader in (barbara, baboon, cameraman, syn_netflix, dti_ic, dti_gpcr, movielens_100k)
}


def names() -> tuple[str, ...]:
    """Return the names of all data sets.

    Examples
    --------
    >>> from airnp import datasets
    >>> "dti_ic" in datasets.names()
    True
    """
    return tuple(_LOADERS)


def load(name: str) -> Dataset:
    """Load the data set of a name, one of :func:`names`.

    Raises
    ------
    ValueError
        If there is no data set of that name.
    ChecksumError, DownloadError, ImportError
        If a file has another content, cannot be downloaded, or cannot be read.

    Examples
    --------
    >>> from airnp import datasets
    >>> datasets.load("lena")
    Traceback (most recent call last):
    ...
    ValueError: name: expected one of 'barbara', 'baboon', 'cameraman', 'syn_netflix', 'dti_ic', 'dti_gpcr',
    'movielens_100k', got 'lena'
    """
    if name not in _LOADERS:
        raise ValueError(f"name: expected one of {', '.join(map(repr, _LOADERS))}, got {name!r}")
    return _LOADERS[name]()


def _paths(name: str) -> list[Path]:
    return [locate(FILES[file]) for file in ENTRIES[name].files]


def _dataset(name: str, matrix: NDArray[np.float64], **parts: Any) -> Dataset:
    entry = ENTRIES[name]
    if matrix.shape != entry.shape:
        raise ValueError(f"{name}: expected a matrix of shape {entry.shape}, got {matrix.shape}")
    return Dataset(name, matrix, source=entry.source, licence=entry.licence, **parts)


# --- files ---


def open_picture(path: Path) -> Any:
    """Return the file as a Pillow image."""
    return load_pillow('reading pictures needs Pillow: pip install "airnp[data]"').Image.open(
        path, formats=PILLOW_FORMATS
    )


def read_picture(path: Path, shape: tuple[int, int]) -> Matrix:
    """Return a picture in grey values from 0 to 1, resized as in the authors' program.

    Each channel is interpolated linearly between the nearest four pixels, rounded to a byte, and then
    converted to grey. Unlike Pillow, it takes no average over the pixels in between. Such an average makes
    Baboon (500×480) easier to complete: with 30 % missing the NMAE was lower by a fifth.
    """
    with open_picture(path) as picture:
        pixels = np.asarray(picture.convert("RGB"), dtype=np.float64)
    rows, columns = (_interpolation(new, old) for new, old in zip(shape, pixels.shape, strict=False))
    resized = np.einsum("im,mnc,jn->ijc", rows, pixels, columns, optimize=True)
    grey: Matrix = _to_bytes(_to_bytes(resized) @ _LUMA) / 255
    return grey


def _interpolation(new: int, old: int) -> Matrix:
    """Return the matrix that interpolates `new` values linearly from `old`, each standing for an interval."""
    centre = np.clip((np.arange(new) + 0.5) * old / new - 0.5, 0, old - 1)
    below = np.minimum(centre.astype(int), max(old - 2, 0))
    above = np.minimum(below + 1, old - 1)
    weights = np.zeros((new, old))
    np.add.at(weights, (np.arange(new), below), 1 - (centre - below))
    np.add.at(weights, (np.arange(new), above), centre - below)
    return weights


def _to_bytes(values: Matrix) -> Matrix:
    """Round to whole numbers, halves upwards, also halves that rounding errors left a little too small."""
    rounded: Matrix = np.floor(values + (0.5 + 1e-9))
    return rounded


def read_matlab(path: Path, names: tuple[str, ...]) -> list[Any]:
    """Return variables of a MATLAB 7.3 file: arrays, and CSR arrays for sparse ones.

    MATLAB stores arrays by columns, so they are transposed in HDF5; here they are as in MATLAB.
    """
    try:
        import h5py
    except ImportError as error:
        raise ImportError('reading MATLAB 7.3 files needs h5py: pip install "airnp[data]"') from error
    with h5py.File(path, "r") as file:
        return [_variable(file[name]) for name in names]


def _variable(stored: Any) -> Any:
    if "MATLAB_sparse" not in stored.attrs:
        return np.ascontiguousarray(stored[()].T)
    from scipy import sparse

    rows = int(stored.attrs["MATLAB_sparse"])
    starts = stored["jc"][()].astype(np.int64)
    # A sparse matrix without entries has neither data nor indices in the file.
    data = stored["data"][()] if "data" in stored else np.zeros(0)
    indices = stored["ir"][()].astype(np.int64) if "ir" in stored else np.zeros(0, dtype=np.int64)
    return sparse.csc_array((data, indices, starts), shape=(rows, len(starts) - 1)).tocsr()


class Table(NamedTuple):
    """A matrix with the names of its rows and columns."""

    values: Matrix
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]


def read_table(path: Path) -> Table:
    """Return a table whose first line names the columns and whose first column names the rows."""
    header, *lines = [line.split("\t") for line in path.read_text(encoding="ascii").splitlines()]
    labels = tuple(line[0] for line in lines)
    values = np.array([line[1:] for line in lines], dtype=np.float64)
    return Table(values, labels, tuple(header[1:]))
