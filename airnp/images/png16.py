"""PNG files of 16 bits in colour or with alpha, which Pillow reads with 8 of them and does not write.

Only what such files need of the format (W3C, Portable Network Graphics, third edition): five filters, no
interlacing, no palette. Everything else about pictures is in :mod:`airnp.images.files`.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["decode", "encode", "is_deep"]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = {2: 3, 4: 2, 6: 4}  # by colour type: RGB, grey and alpha, RGB and alpha
_NONE, _SUB, _UP, _AVERAGE, _PAETH = range(5)

Bytes = npt.NDArray[np.uint8]


def is_deep(content: bytes) -> bool:
    """Whether this is a PNG file of 16 bits in colour or with alpha."""
    return (
        content.startswith(_SIGNATURE)
        and len(content) > 26
        and content[24] == 16
        and content[25] in _CHANNELS
    )


def decode(content: bytes) -> npt.NDArray[np.uint16]:
    """Return the pixels of a file for which `is_deep` is true, (H, W, channels).

    Raises
    ------
    ValueError
        If the file is damaged or interlaced.
    """
    packed, header = [], b""
    for kind, data in _chunks(content):
        if kind == b"IHDR":
            header = data
        elif kind == b"IDAT":
            packed.append(data)
    width, height, _, colour, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if interlaced:
        raise ValueError("interlaced PNG files of 16 bits are not supported")
    channels = _CHANNELS[colour]
    size = 2 * channels
    raw = np.frombuffer(zlib.decompress(b"".join(packed)), dtype=np.uint8)
    if raw.size != height * (1 + width * size):
        raise ValueError("its pixels are cut off")
    lines = raw.reshape(height, 1 + width * size)
    pixels = _unfiltered(lines[:, 0], lines[:, 1:].reshape(height, width, size))
    return pixels.view(">u2").astype(np.uint16).reshape(height, width, channels)


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and data of each part of the file, its checksum compared."""
    place = len(_SIGNATURE)
    while place < len(content):
        length, kind = struct.unpack_from(">I4s", content, place)
        data = content[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack_from(">I", content, place + 8 + length)
        if zlib.crc32(kind + data) != checksum:
            raise ValueError(f"the checksum of its part {kind.decode('latin-1')} is wrong")
        yield kind, data
        place += 12 + length


def _unfiltered(filters: Bytes, lines: Bytes) -> Bytes:
    """Undo the filters: each byte was stored as its difference from a guess by the pixels before it.

    A pixel needs those to its left, above, and above left. So all pixels on a diagonal, from lower left to
    upper right, can be done at once.
    """
    if filters.max(initial=0) > _PAETH:
        raise ValueError(f"it has an unknown filter {filters.max()}")
    height, width, size = lines.shape
    # One more row and column of zeros, as the format wants it; signed, as the guesses need it.
    found = np.zeros((height + 1, width + 1, size), dtype=np.int16)
    for diagonal in range(height + width - 1):
        rows = np.arange(max(0, diagonal - width + 1), min(height, diagonal + 1))
        columns = diagonal - rows
        left, above, corner = found[rows + 1, columns], found[rows, columns + 1], found[rows, columns]
        guess = _guess(filters[rows], left, above, corner)
        found[rows + 1, columns + 1] = (lines[rows, columns] + guess) & 0xFF
    return np.ascontiguousarray(found[1:, 1:].astype(np.uint8))


def _guess(filters: Bytes, left: Any, above: Any, corner: Any) -> Any:
    estimate = left + above - corner
    to_left, to_above, to_corner = (abs(estimate - pixel) for pixel in (left, above, corner))
    nearest = np.where(
        (to_left <= to_above) & (to_left <= to_corner), left, np.where(to_above <= to_corner, above, corner)
    )
    kinds = filters[:, np.newaxis]
    return np.select(
        [kinds == _SUB, kinds == _UP, kinds == _AVERAGE, kinds == _PAETH],
        [left, above, (left + above) // 2, nearest],
        default=0,
    )


def encode(pixels: npt.NDArray[np.uint16]) -> bytes:
    """Return a PNG file of pixels (H, W, channels), 2 channels for grey and alpha, 3 or 4 for colour."""
    height, width, channels = pixels.shape
    colour = {count: kind for kind, count in _CHANNELS.items()}[channels]
    lines = pixels.astype(">u2").view(np.uint8).reshape(height, -1)
    # Differences from the line above are smaller numbers than the pixels, and pack better.
    differences = np.diff(lines, axis=0, prepend=np.zeros_like(lines[:1]))
    filtered = np.hstack([np.full((height, 1), _UP, dtype=np.uint8), differences])
    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes())), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
