"""Find a file of the catalogue: in ``AIRNP_DATA``, in the cache, or at its public addresses.

Wherever it comes from, a file is used only if its SHA-256 is the known one.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from airnp.datasets.catalogue import DataFile

_TIMEOUT = (10, 60)  # seconds to connect, seconds between two pieces
_PIECE = 1 << 16
_BY_HAND = (
    "Put the file into a folder by hand and let AIRNP_DATA name that folder, or run 'airnp data fetch' where "
    "there is a connection and copy the folder that 'airnp data path' shows."
)


class DataFileError(OSError):
    """A file cannot be used: what is wrong, and what to do about it."""

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(f"{problem}\n{advice}" if advice else problem)
        self.problem = problem
        self.advice = advice


class ChecksumError(DataFileError):
    """A file has another content than the known one, and is not used."""


class DownloadError(DataFileError):
    """A file is not here and cannot be downloaded from any of its addresses."""


def given_folder() -> Path | None:
    """Return the folder that ``AIRNP_DATA`` names, or None; raise NotADirectoryError if it is no folder."""
    named = os.environ.get("AIRNP_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise NotADirectoryError(f"AIRNP_DATA names {named}, which is not a folder; correct it or unset it")
    return folder


def cache_folder() -> Path:
    """Return the folder for downloads, which need not exist: ``AIRNP_CACHE``, or the system's for caches."""
    named = os.environ.get("AIRNP_CACHE")
    return Path(named).expanduser() if named else Path(_pooch().os_cache("airnp"))


def where(file: DataFile) -> str:
    """Return where a file is, without fetching it: "AIRNP_DATA", "cache", "wrong file" or "not here"."""
    place, path = _place(file)
    if not path.is_file():
        return "not here"
    return place if _checksum(path) == file.sha256 else "wrong file"


def locate(file: DataFile, *, progress: bool = False) -> Path:
    """Return the path of a file with the known content; download it if it is not here.

    Parameters
    ----------
    file : DataFile
        An entry of the catalogue.
    progress : bool, default False
        Show a progress bar on standard error during a download.

    Raises
    ------
    ChecksumError
        If the file in ``AIRNP_DATA`` or everything downloaded has another content. A wrong file in the cache
        is replaced.
    DownloadError
        If it is not here and cannot be downloaded.
    ImportError
        If the cache or a download is needed and pooch is not installed.
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
    return _download(file, path, progress)


def _place(file: DataFile) -> tuple[str, Path]:
    """Return "AIRNP_DATA" or "cache", and the path that a file has there, or will have after a download."""
    given = given_folder()
    if given is not None and (path := given / file.name).is_file():
        return "AIRNP_DATA", path
    return "cache", cache_folder() / file.name


def _download(file: DataFile, path: Path, progress: bool) -> Path:
    """Try the addresses in turn; each may have moved, or have another content by now."""
    pooch = _pooch()
    failures, is_wrong = "", False
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
            failures += f"\n  {url}: {_reason(error)}"
            is_wrong = is_wrong or isinstance(error, ChecksumError)
        else:
            return path
    if is_wrong:
        raise ChecksumError(
            f"{file.name}: what was downloaded is not the file that airnp knows "
            f"(expected SHA-256 {file.sha256}) and was refused:{failures}",
            _BY_HAND,
        )
    raise DownloadError(f"{file.name} is not here and could not be downloaded:{failures}", _BY_HAND)


class _CheckedDownloader:
    """Download over HTTP with pooch, and check the SHA-256 here, so that the error can name it."""

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
    """Return in a few words why a download failed; messages of requests are long and repeat the address."""
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
