"""Finding a file of the catalogue: in ``AIRNP_DATA``, in the cache, or at its public home.

Wherever it comes from, a file is used only if its SHA-256 is the known one.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from airnp.datasets.catalogue import DataFile

__all__ = [
    "ChecksumError",
    "DataFileError",
    "DownloadError",
    "cache_folder",
    "given_folder",
    "locate",
    "where",
]

_TIMEOUT = (10, 60)  # seconds to connect, seconds between two pieces
_PIECE = 1 << 16
_BY_HAND = (
    "Put the file into a folder by hand and let AIRNP_DATA name that folder, or run 'airnp data fetch' where "
    "there is a connection and copy the folder that 'airnp data path' shows."
)


class DataFileError(OSError):
    """A file that cannot be used: what is wrong, and what to do about it."""

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(f"{problem}\n{advice}" if advice else problem)
        self.problem = problem
        self.advice = advice


class ChecksumError(DataFileError):
    """A file that is not the one it should be. It is not used."""


class DownloadError(DataFileError):
    """A file that is neither here nor to be had from its public homes."""


def given_folder() -> Path | None:
    """Return the folder that ``AIRNP_DATA`` names, or None where it is not set.

    Raises
    ------
    NotADirectoryError
        If it names something else.
    """
    named = os.environ.get("AIRNP_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise NotADirectoryError(f"AIRNP_DATA names {named}, which is not a folder; correct it or unset it")
    return folder


def cache_folder() -> Path:
    """Return the folder for downloads: ``AIRNP_CACHE``, else the usual place for caches of this system.

    It need not exist yet.
    """
    named = os.environ.get("AIRNP_CACHE")
    return Path(named).expanduser() if named else Path(_pooch().os_cache("airnp"))


def where(file: DataFile) -> str:
    """Say where a file is, without fetching it: "AIRNP_DATA", "cache", "wrong file" or "not here"."""
    place, path = _place(file)
    if not path.is_file():
        return "not here"
    return place if _checksum(path) == file.sha256 else "wrong file"


def locate(file: DataFile, *, progress: bool = False) -> Path:
    """Return the path of a file that has the known content; download it if it is not here.

    Parameters
    ----------
    file : DataFile
        An entry of the catalogue.
    progress : bool, default False
        Show a progress bar on standard error during a download.

    Returns
    -------
    Path
        Where the file is.

    Raises
    ------
    ChecksumError
        If the file in ``AIRNP_DATA`` or all that could be downloaded has another content. A wrong file in the
        cache is replaced.
    DownloadError
        If it is not here and cannot be downloaded.
    ImportError
        If it has to be looked for in the cache or downloaded and pooch is not installed.
    """
    place, path = _place(file)
    if path.is_file():
        found = _checksum(path)
        if found == file.sha256:
            return path
        if place == "AIRNP_DATA":
            raise ChecksumError(
                f"{path} is not the file that airnp knows: expected SHA-256 {file.sha256}, found {found}",
                "Replace it, or take it away (or unset AIRNP_DATA) to have it downloaded.",
            )
    return _downloaded(file, path, progress)


def _place(file: DataFile) -> tuple[str, Path]:
    """Return the path at which a file is, or would be after a download, and the name of that place."""
    given = given_folder()
    if given is not None and (path := given / file.name).is_file():
        return "AIRNP_DATA", path
    return "cache", cache_folder() / file.name


def _downloaded(file: DataFile, path: Path, progress: bool) -> Path:
    """Try the addresses in turn; each of them may have moved, or hold something else by now."""
    pooch = _pooch()
    tried = ""
    refused = False
    for url in file.urls:
        try:
            pooch.retrieve(
                url,
                known_hash=f"sha256:{file.sha256}",
                fname=path.name,
                path=path.parent,
                downloader=_CheckedDownloader(file, progress),
            )
        except OSError as error:  # those of requests are OSErrors too
            tried += f"\n  {url}: {_reason(error)}"
            refused = refused or isinstance(error, ChecksumError)
        else:
            return path
    if refused:
        raise ChecksumError(
            f"{file.name}: what was downloaded is not the file that airnp knows "
            f"(expected SHA-256 {file.sha256}) and was refused:{tried}",
            _BY_HAND,
        )
    raise DownloadError(f"{file.name} is not here and could not be downloaded:{tried}", _BY_HAND)


class _CheckedDownloader:
    """Pooch's download over HTTP, with the checksum compared here, so that the message can name both."""

    def __init__(self, file: DataFile, progress: bool) -> None:
        self._file = file
        self._download = _pooch().HTTPDownloader(progressbar=progress, chunk_size=_PIECE, timeout=_TIMEOUT)

    def __call__(self, url: str, output_file: Any, pooch: Any) -> None:
        self._download(url, output_file, pooch)
        found = _checksum(Path(output_file))
        if found != self._file.sha256:
            raise ChecksumError(f"found SHA-256 {found}")


def _checksum(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _reason(error: OSError) -> str:
    """Say in a few words why a download failed; the messages of requests are long and repeat the address."""
    from requests import exceptions

    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        error.response.close()  # pooch leaves it open, and with it the connection
        return f"the server answers {error.response.status_code} {error.response.reason}".rstrip()
    if isinstance(error, exceptions.Timeout):
        return "the server does not answer"
    if isinstance(error, exceptions.ConnectionError):
        return "no connection"
    return (str(error) or type(error).__name__).splitlines()[0]


def _pooch() -> Any:
    try:
        import pooch
    except ImportError as error:
        raise ImportError('finding and downloading data needs pooch: pip install "airnp[data]"') from error
    return pooch
