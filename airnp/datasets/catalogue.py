"""The data sets and their files, with the address, size and SHA-256 of each file.

A file may have several addresses. They are tried in turn, and only the known content is accepted, so an
address that moved or was overwritten costs time but never correctness. An address names a commit if the file
is known to be part of one; ``HEAD`` is the default branch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_RAW = "https://raw.githubusercontent.com"
_AIR_NET = f"{_RAW}/lizhemin15/AIR-Net/334a138105e72f78afda5323fab1abe94dd6c4e1"
_AIR_NET_NOW = f"{_RAW}/lizhemin15/AIR-Net/HEAD"
_MGCNN = f"{_RAW}/fmonti/mgcnn/17e6d4f17d3166ac174fdc451d07d7fd151af70a"
_PYDTI = f"{_RAW}/stephenliu0423/PyDTI/HEAD/datasets"
# The origin of the files of PyDTI; other projects publish the same checksums for the files there.
_KYOTO = "http://web.kuicr.kyoto-u.ac.jp/supp/yoshi/drugtarget"


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A matrix to complete, with all that its source says about it.

    Attributes
    ----------
    name : str
        The loader's name.
    matrix : ndarray of float64, shape (m, n)
        The values; NaN where unknown.
    source : str
        Who made the data and where the files come from.
    licence : str
        What is known about the terms of use.
    mask : ndarray of bool, shape (m, n), or None
        The entries given for training, True = observed; None if the source has no split of its own.
    test_mask : ndarray of bool, shape (m, n), or None
        The entries to measure the error on: ``airnp.metrics.rmse(X, data.matrix, ~data.test_mask)``.
    row_graph, column_graph : ndarray (k, k), scipy.sparse array, or None
        Adjacencies over the rows and the columns, symmetric and not negative, as
        :class:`airnp.FixedLaplacian` takes them.
    row_labels, column_labels : tuple of str, or None
        What the source calls the rows and the columns.

    Examples
    --------
    >>> import numpy as np
    >>> from airnp.datasets import Dataset
    >>> Dataset("steps", np.arange(6.0).reshape(2, 3), source="counted", licence="none needed")
    <Dataset steps: 2×3, values from 0 to 5>
    """

    name: str
    matrix: NDArray[np.float64]
    source: str
    licence: str
    mask: NDArray[np.bool_] | None = None
    test_mask: NDArray[np.bool_] | None = None
    row_graph: Any = None
    column_graph: Any = None
    row_labels: tuple[str, ...] | None = None
    column_labels: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        m, n = self.matrix.shape
        parts = [f"{m}×{n}", f"values from {np.nanmin(self.matrix):g} to {np.nanmax(self.matrix):g}"]
        if self.mask is not None:
            parts.append(f"{self.mask.mean():.1%} for training")
        if self.test_mask is not None:
            parts.append(f"{self.test_mask.mean():.1%} for testing")
        for what in ("graph", "labels"):
            lines = [line for line in ("row", "column") if getattr(self, f"{line}_{what}") is not None]
            if lines:
                plural = "s" if what == "graph" and len(lines) == 2 else ""
                parts.append(f"{' and '.join(lines)} {what}{plural}")
        return f"<Dataset {self.name}: {', '.join(parts)}>"


@dataclass(frozen=True)
class DataFile:
    """A file: its local name, SHA-256, size in bytes, and the addresses to try."""

    name: str
    sha256: str
    size: int
    urls: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """A data set: its name, shape, short description, files, source and terms of use."""

    name: str
    shape: tuple[int, int]
    what: str
    files: tuple[str, ...]
    source: str
    licence: str


_ALL_FILES = (
    DataFile(
        "barbara.jpg",
        "eb5df1fe8614d88d44f0ec3e8e809410193657ed45fdfae98fd7fd07a060fea2",
        9_979,
        (f"{_AIR_NET}/train_pics/Barbara.jpg",),
    ),
    DataFile(
        "baboon.bmp",
        "8650f437b5186197a4f09475a685170a3ff619cfb60bd2702b9b07d168a390f2",
        720_054,
        # Unlike the others, neither the commit nor the spelling of the name is confirmed.
        tuple(
            f"{base}/train_pics/{name}.bmp"
            for base in (_AIR_NET, _AIR_NET_NOW)
            for name in ("Baboon", "baboon")
        ),
    ),
    DataFile(
        "cameraman.jpg",
        "92686816d09821df8c0ff23433ec3028836a226db7214a0d29dfd88d66bcfe8d",
        7_312,
        (f"{_AIR_NET}/train_pics/Cameraman.jpg",),
    ),
    DataFile(
        "texture_mask.png",
        "f2ae2113e147e382161d8ebecdd4c6df7e2de0576efe23a9fd8a0a2aad791c7b",
        11_377,
        (f"{_AIR_NET}/masks/mask.png",),
    ),
    DataFile(
        "synthetic_netflix.mat",
        "b47789b280f868c17b6e3c7866608740a579ed29a8fd1dbb3ab218fc5ccc75ae",
        67_304,
        (f"{_MGCNN}/Data/synthetic_netflix/synthetic_netflix.mat",),
    ),
    DataFile(
        "movielens_100k_split1.mat",
        "a8c053a1d697b82c341cb2ad593af2495db7b50f721ae51af5534cc7b217747e",
        763_390,
        (f"{_MGCNN}/Data/movielens/split_1.mat",),
    ),
    *(
        DataFile(name, sha256, size, (f"{_PYDTI}/{name}", f"{_KYOTO}/{name}"))
        for name, sha256, size in (
            ("ic_admat_dgc.txt", "ac9df3498bc12af5174503e5f1e09ce26a6d78d753861a5eca55425f9f9ae2c9", 88_816),
            ("ic_simmat_dc.txt", "c1078ca88528d75ddb43d4ed2559391d7d8f5375ec572e6e9112e519d9cdbbf9", 365_986),
            ("ic_simmat_dg.txt", "e15626145623124ad42a45412c544d5fed5e079003727df784d29ed3ca72efef", 790_045),
            (
                "gpcr_admat_dgc.txt",
                "49b2a8a0139dac3116399618bfefc9d1afcc276ce31b7de4e241d1b6e62ef8ab",
                44_686,
            ),
            (
                "gpcr_simmat_dc.txt",
                "ba9c1cf096f0f688d1341fec22ebdecb63162005394d3b5ec3e2f2ef3fd40df9",
                417_709,
            ),
            (
                "gpcr_simmat_dg.txt",
                "c58c4311d2086a6914208ed0914598528ce54ade88eb52b0f737eedcaf5001e4",
                167_125,
            ),
        )
    ),
)

FILES = {file.name: file for file in _ALL_FILES}

_NO_LICENCE = "no licence was found at the source; not distributed with airnp, for research of your own"
_AUTHORS = "github.com/lizhemin15/AIR-Net, the program of Li, Sun, Wang and Wang (SIAM J. Imaging Sci. 2022)"
_MONTI = "github.com/fmonti/mgcnn, Monti, Bronstein and Bresson (NIPS 2017)"
_YAMANISHI = (
    "Yamanishi, Araki, Gutteridge, Honda and Kanehisa (Bioinformatics 2008), "
    "through github.com/stephenliu0423/PyDTI"
)
_MOVIELENS_TERMS = (
    "GroupLens: for research; cite Harper and Konstan (ACM TiiS 2015); no redistribution and no commercial "
    "use without permission; see grouplens.org/datasets/movielens/100k"
)


def _picture(name: str, file: str) -> Entry:
    return Entry(name, (240, 240), "picture, grey in [0, 1]", (file,), _AUTHORS, _NO_LICENCE)


def _drugs(name: str, shape: tuple[int, int], targets: str, prefix: str) -> Entry:
    files = tuple(f"{prefix}_{table}.txt" for table in ("admat_dgc", "simmat_dc", "simmat_dg"))
    return Entry(name, shape, f"drugs × {targets}, with similarities", files, _YAMANISHI, _NO_LICENCE)


_ALL_ENTRIES = (
    _picture("barbara", "barbara.jpg"),
    _picture("baboon", "baboon.bmp"),
    _picture("cameraman", "cameraman.jpg"),
    Entry("texture_mask", (240, 240), "mask for the pictures", ("texture_mask.png",), _AUTHORS, _NO_LICENCE),
    Entry(
        "syn_netflix",
        (150, 200),
        "users × items, with graphs and a split",
        ("synthetic_netflix.mat",),
        _MONTI,
        _NO_LICENCE,
    ),
    _drugs("dti_ic", (210, 204), "ion channels", "ic"),
    _drugs("dti_gpcr", (223, 95), "G protein-coupled receptors", "gpcr"),
    Entry(
        "movielens_100k",
        (943, 1682),
        "users × films, with graphs and a split",
        ("movielens_100k_split1.mat",),
        f"MovieLens 100K of GroupLens, as split and given graphs in {_MONTI}",
        _MOVIELENS_TERMS,
    ),
)

ENTRIES = {entry.name: entry for entry in _ALL_ENTRIES}
