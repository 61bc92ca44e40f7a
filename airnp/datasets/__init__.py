"""The data of the paper's experiments: three pictures, two kinds of tables, and a set of ratings.

Each loader returns a :class:`Dataset`. The files are not part of airnp. They come from the folder that the
environment variable ``AIRNP_DATA`` names, else from a cache, else from their public homes, and are used only
if their SHA-256 is the known one. Reading them needs ``pip install "airnp[data]"``.

>>> from airnp import datasets
>>> datasets.names()
('barbara', 'baboon', 'cameraman', 'syn_netflix', 'dti_ic', 'dti_gpcr', 'movielens_100k')
"""

from airnp.datasets.catalogue import Dataset
from airnp.datasets.download import ChecksumError, DownloadError
from airnp.datasets.loaders import (
    baboon,
    barbara,
    cameraman,
    dti_gpcr,
    dti_ic,
    load,
    movielens_100k,
    names,
    syn_netflix,
    texture_mask,
)

__all__ = [
    "ChecksumError",
    "Dataset",
    "DownloadError",
    "baboon",
    "barbara",
    "cameraman",
    "dti_gpcr",
    "dti_ic",
    "load",
    "movielens_100k",
    "names",
    "syn_netflix",
    "texture_mask",
]
