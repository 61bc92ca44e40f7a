"""The CUDA C++ sources that ship with the package, found by name.

An installed wheel carries them in ``airnp/kernels``; a checkout (and an editable install of it) keeps
them in ``kernels/`` beside the package, where people look for them. Nothing here needs CuPy or a device.
"""

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

__all__ = ["module", "names", "read"]

_SUFFIX = ".cu"
_SUPPORT = "support.cuh"
_FAMILIES = {"sparse_": "sparse.cuh"}


def _folder() -> Traversable:
    """Return the folder that holds the sources."""
    inside = files("airnp").joinpath("kernels")
    beside = Path(__file__).resolve().parents[2] / "kernels"
    for candidate in (inside, beside):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError("this installation of airnp has no kernels folder; please reinstall it")


def names() -> tuple[str, ...]:
    """Return the names of all kernel sources, sorted, without their file ending."""
    found = (entry.name for entry in _folder().iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX)))


def read(name: str) -> str:
    """Return the text of one kernel source.

    Parameters
    ----------
    name : str
        One of `names`, for example ``"adam"``.

    Returns
    -------
    str
        The CUDA C++ source.

    Raises
    ------
    ValueError
        If there is no kernel of that name; the message lists the valid ones.
    """
    valid = names()
    if name not in valid:
        raise ValueError(f"unknown kernel {name!r}; valid names are {', '.join(map(repr, valid))}")
    return _folder().joinpath(name + _SUFFIX).read_text(encoding="utf-8")


def module(name: str) -> str:
    """Return one kernel source with what it shares with others in front: a text that compiles by itself.

    All of them share ``support.cuh``; those whose names begin with ``sparse_`` share ``sparse.cuh``, too.
    There is no ``#include`` in it, because neither NVRTC nor an installed wheel has a folder to look in.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    str
        The CUDA C++ source for ``cupy.RawModule``.
    """
    own, folder = read(name), _folder()
    shared = [_SUPPORT, *(header for family, header in _FAMILIES.items() if name.startswith(family))]
    texts = [folder.joinpath(header).read_text(encoding="utf-8") for header in shared]
    return "\n".join([*texts, own])
