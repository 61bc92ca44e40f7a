"""Picture and table files that are not what their names say, or declare more than they hold."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

import airnp
from airnp import tables
from airnp.images import formats

PICTURE = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)


def test_only_named_formats_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import EpsImagePlugin

    def run(*args: object, **more: object) -> None:
        raise AssertionError("a PostScript interpreter was started")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", run)
    path = tmp_path / "picture.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(formats.PictureError, match="cannot be read as a picture"):
        formats.read(path)
    with pytest.raises(OSError, match="cannot identify image file"):
        airnp.masks.from_image(path)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def test_pictures_that_declare_too_much_are_refused_before_they_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import imagecodecs

    def decode(*args: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(imagecodecs, "png_decode", decode)
    header = struct.pack(">IIBBBBB", 15_000, 10_000, 16, 6, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    path = tmp_path / "bomb.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + parts)
    with pytest.raises(formats.PictureError, match=r"declares 15000×10000 pixels, 1.1 GiB"):
        formats.read(path)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_tiff_files_are_turned_as_their_orientation_says(tmp_path: Path, orientation: int) -> None:
    import tifffile
    from PIL import Image, ImageOps

    path = tmp_path / "turned.tif"
    tags = [(274, "H", 1, orientation, True)]
    tifffile.imwrite(path, PICTURE, photometric="rgb", metadata=None, extratags=tags)
    with Image.open(path) as opened:
        expected = np.asarray(ImageOps.exif_transpose(opened))
    np.testing.assert_array_equal(formats.read(path).pixels, expected)


def array_header(shape: tuple[int, ...]) -> bytes:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return header.getvalue()


def test_npy_files_that_declare_more_than_they_hold_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.npy"
    path.write_bytes(array_header((10**6, 10**6)))
    with pytest.raises(tables.TableError, match=r"huge.npy: .*its header says \(1000000, 1000000\)"):
        tables.read(path)
    archive = tmp_path / "huge.npz"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("X.npy", array_header((10**6, 10**6)))
    with pytest.raises(tables.TableError, match=r"huge.npz: .*its header says \(1000000, 1000000\)"):
        tables.read(archive)


@pytest.mark.parametrize(
    "text",
    [
        "matrix array real general\n2 2\n1\n2\n3\n4\n5\n6\n",
        "matrix array real general\n1 2\n1\n2\n3\n",
        "matrix array real general\n1000000 1000000\n1\n",
        "matrix array real symmetric\n2 3\n1\n2\n3\n",
        "matrix array real symmetric\n2 2\n1\n2\n3\n4\n",
        "matrix coordinate real general\n2 2 1\n1 1 5\n2 2 6\n",
        "matrix coordinate real general\n2 2 1\n3 1 5\n",
        "matrix coordinate real general\n2 2 1\n0 1 5\n",
        "matrix coordinate real general\n2 2 1\n-1 1 5\n",
        "matrix coordinate real general\n2 2 1\n1 1 5 6\n",
        "matrix coordinate real general\n100000000 100000000 1\n1 1 5\n",
    ],
)
def test_matrix_market_files_with_other_numbers_than_they_declare_are_refused(
    tmp_path: Path, text: str
) -> None:
    path = tmp_path / "odd.mtx"
    path.write_text("%%MatrixMarket " + text)
    with pytest.raises(tables.TableError, match=r"odd\.mtx: "):
        tables.read(path)


def test_archives_with_overlapping_members_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "overlap.npz"
    np.savez(path, X=np.ones((50, 50)))
    with zipfile.ZipFile(path, "a") as archive:
        first = archive.infolist()[0]
        for number in range(4):  # entries of the directory that all point to the same bytes
            twin = zipfile.ZipInfo(f"copy {number}.npy")
            twin.header_offset, twin.CRC = first.header_offset, first.CRC
            twin.compress_size, twin.file_size = first.compress_size, first.file_size
            archive.filelist.append(twin)
            archive.NameToInfo[twin.filename] = twin
        archive._didModify = True
    with pytest.raises(tables.TableError, match=r"overlap.npz: its members overlap"):
        tables.read(path)


def test_out_may_not_be_the_memory_of_the_mask() -> None:
    mask = np.ones((20, 20), np.uint8)
    mask[3:5, 3:5] = 0
    before = mask.copy()
    with pytest.raises(ValueError, match=r"^out: expected memory of its own, got that of mask"):
        airnp.inpaint(np.full((20, 20), 7, np.uint8), mask, out=mask)
    np.testing.assert_array_equal(mask, before)
