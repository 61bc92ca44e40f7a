"""Picture files: grey or colour, with or without alpha, 8 or 16 bits.

Pillow reads and writes most formats. It would reduce two kinds to 8 bits: PNG files of 16 bits in colour or
with alpha, which imagecodecs handles, and TIFF files, which tifffile handles.
"""

from __future__ import annotations

import importlib
import io
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

__all__ = ["SUFFIXES", "Picture", "PictureError", "kind_of", "load_pillow", "read", "write"]

NEEDS_PILLOW = 'pictures need Pillow: pip install "airnp[images]"'

_FORMATS = {
    ".png": "PNG",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".webp": "WEBP",
    ".bmp": "BMP",
}
SUFFIXES = tuple(_FORMATS)
"""The suffixes of file names that can be read and written."""

PILLOW_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF")
"""What Pillow may take a file for, whatever its name: none of these starts another program."""

_MOST_BYTES = 2**30
"""Size of the largest picture that is decoded."""

_OPAQUE_ONLY = ("JPEG", "BMP")
_BYTES_ONLY = ("JPEG", "BMP", "WEBP")

Pixels = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]


class PictureError(ValueError):
    """A file that cannot be read or written as a picture; the message names it."""


@dataclass(frozen=True, eq=False)
class Picture:
    """The pixels of a picture file, with its transparency in an array of its own.

    Attributes
    ----------
    pixels : array of uint8 or uint16, (H, W) or (H, W, 3)
        Grey, or red, green and blue.
    alpha : array (H, W) or None
        Opacity, of the same dtype.
    profile : bytes or None
        ICC profile, which says what the colours mean. Only Pillow reads it.
    """

    pixels: Pixels
    alpha: Pixels | None = None
    profile: bytes | None = None

    @property
    def size(self) -> str:
        """Width and height in words."""
        return f"{self.pixels.shape[1]}×{self.pixels.shape[0]} pixels"

    @property
    def most(self) -> int:
        """The largest value: white, or opaque."""
        return int(np.iinfo(self.pixels.dtype).max)

    @property
    def has_holes(self) -> bool:
        """Whether any pixel is not opaque."""
        return self.alpha is not None and bool((self.alpha < self.most).any())


def kind_of(path: Path) -> str:
    """Return which of `SUFFIXES` a file name ends in, or raise `PictureError`."""
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise PictureError(f"{path}: expected a name that ends in one of {', '.join(SUFFIXES)}")
    return suffix


def read(path: Path) -> Picture:
    """Read a picture, and rotate it as its EXIF orientation says.

    Raises
    ------
    OSError
        If the file cannot be opened.
    ImportError
        If a package is missing; the message names the extra.
    PictureError
        If the file is no picture, or of a kind that would lose information.
    """
    content = path.read_bytes()
    try:
        if content.startswith((b"II*\0", b"MM\0*")):
            return _read_tiff(content)
        if _is_deep_png(content):
            width, height = struct.unpack(">II", content[16:24])
            _check_pixels(width, height, {2: 3, 4: 2, 6: 4}[content[25]], 2)
            return _from_array(_imagecodecs().png_decode(content))
        return _read_with_pillow(content)
    except PictureError as error:
        raise PictureError(f"{path}: {error}") from error
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        # Bytes that are no picture can fail in any way; to the user each means the same.
        raise PictureError(f"{path}: cannot be read as a picture ({error})") from error


def write(file: BinaryIO, kind: str, picture: Picture) -> None:
    """Write a picture to an open file in the format of one of `SUFFIXES`.

    Raises
    ------
    ImportError
        If a package is missing; the message names the extra.
    PictureError
        If the format cannot hold the picture.
    """
    format_ = _FORMATS[kind]
    if picture.pixels.dtype != np.uint8 and format_ in _BYTES_ONLY:
        raise PictureError(f"{kind} cannot hold 16 bits; .png and .tif can")
    if format_ in _OPAQUE_ONLY:
        if picture.has_holes:
            raise PictureError(f"{kind} cannot hold transparent pixels; .png can")
        picture = replace(picture, alpha=None)
    pixels = picture.pixels if picture.alpha is None else np.dstack([picture.pixels, picture.alpha])
    if format_ == "TIFF":
        _write_tiff(file, pixels, picture)
    elif format_ == "PNG" and pixels.dtype == np.uint16 and pixels.ndim == 3:
        file.write(_imagecodecs().png_encode(pixels))
    else:
        _write_with_pillow(file, format_, pixels, picture.profile)


def _check_pixels(width: int, height: int, channels: int, depth: int) -> None:
    """Raise unless a picture has a size that is decoded; a small file can declare any."""
    if width * height * channels * depth > _MOST_BYTES:
        raise PictureError(
            f"it declares {width}×{height} pixels, {width * height * channels * depth / 2**30:.1f} GiB; "
            f"at most {_MOST_BYTES / 2**30:.0f} GiB are decoded"
        )


def _from_array(array: Pixels) -> Picture:
    """Return an array (H, W) or (H, W, channels) as a picture."""
    if array.dtype not in (np.uint8, np.uint16):
        raise PictureError(f"expected 8 or 16 bits for a channel, found {array.dtype}")
    if array.ndim == 3 and array.shape[-1] in (2, 4):
        pixels = array[..., :-1] if array.shape[-1] == 4 else array[..., 0]
        return Picture(np.ascontiguousarray(pixels), np.ascontiguousarray(array[..., -1]))
    if array.ndim == 2 or (array.ndim == 3 and array.shape[-1] == 3):
        return Picture(array)
    raise PictureError(f"expected one picture, grey or in colour, found an array of shape {array.shape}")


# --- Pillow ---


def _read_with_pillow(content: bytes) -> Picture:
    pillow = load_pillow()
    with pillow.Image.open(io.BytesIO(content), formats=PILLOW_FORMATS) as opened:
        _check_pixels(opened.width, opened.height, len(opened.getbands()), 1)
        if getattr(opened, "n_frames", 1) > 1:
            raise PictureError("expected one picture, found several in one file")
        profile = opened.info.get("icc_profile")
        image = pillow.ImageOps.exif_transpose(opened)
    if image.mode in ("1", "P", "PA"):
        # The numbers of a palette cannot be filled in; its colours can.
        is_transparent = image.mode == "PA" or "transparency" in image.info
        image = image.convert("L" if image.mode == "1" else "RGBA" if is_transparent else "RGB")
    elif image.mode in ("L", "RGB") and "transparency" in image.info:
        image = image.convert("LA" if image.mode == "L" else "RGBA")
    if image.mode not in ("L", "LA", "RGB", "RGBA", "I;16"):
        raise PictureError(
            f"its kind {image.mode} is none of grey and RGB, with or without alpha; convert it"
        )
    return replace(_from_array(np.array(image)), profile=profile)


def _write_with_pillow(file: BinaryIO, format_: str, pixels: Pixels, profile: bytes | None) -> None:
    options: dict[str, Any] = {"icc_profile": profile} if profile is not None and format_ != "BMP" else {}
    if format_ == "JPEG":
        options |= {"quality": 95, "subsampling": 0}
    elif format_ == "WEBP":
        options |= {"lossless": True, "exact": True}
    load_pillow().Image.fromarray(pixels).save(file, format=format_, **options)


def load_pillow(message: str = NEEDS_PILLOW) -> Any:
    """Return the package ``PIL`` with the modules that airnp uses, or raise an ImportError with a message."""
    try:
        import PIL
        from PIL import Image, ImageDraw, ImageFont, ImageOps  # noqa: F401
    except ImportError as error:
        raise ImportError(message) from error
    return PIL


# --- PNG of 16 bits ---


def _is_deep_png(content: bytes) -> bool:
    """Whether this is a PNG file of 16 bits in colour or with alpha: bit depth 16, colour type 2, 4 or 6."""
    header = content[24:26]
    return content.startswith(b"\x89PNG\r\n\x1a\n") and header in (b"\x10\2", b"\x10\4", b"\x10\6")


def _imagecodecs() -> Any:
    return _load(
        "imagecodecs", 'PNG files of 16 bits in colour need imagecodecs: pip install "airnp[images]"'
    )


# --- TIFF ---

_GREY, _RGB = 1, 2  # "photometric interpretation"


def _read_tiff(content: bytes) -> Picture:
    with _tifffile().TiffFile(io.BytesIO(content)) as opened:
        if len(opened.pages) != 1:
            raise PictureError(f"expected one picture, found {len(opened.pages)} in one file")
        page = opened.pages.first
        if page.photometric not in (_GREY, _RGB) or page.axes not in ("YX", "YXS", "SYX"):
            raise PictureError("it is none of grey and RGB, with or without alpha; convert it")
        _check_pixels(page.imagewidth, page.imagelength, page.samplesperpixel, page.dtype.itemsize)
        array = page.asarray()
        orientation = page.tags.get("Orientation")
    array = np.moveaxis(array, 0, -1) if page.axes == "SYX" else array
    return _from_array(_upright(array, 1 if orientation is None else int(orientation.value)))


def _upright(array: Pixels, orientation: int) -> Pixels:
    """Return pixels as they are to be seen, from the orientation 1 to 8 of TIFF and EXIF."""
    mirrored = array[:, ::-1] if orientation in (2, 4, 5, 7) else array
    turns = {3: 2, 4: 2, 5: 1, 6: 3, 7: 3, 8: 1}.get(orientation, 0)
    return np.ascontiguousarray(np.rot90(mirrored, turns))


def _write_tiff(file: BinaryIO, pixels: Pixels, picture: Picture) -> None:
    options: dict[str, Any] = {"photometric": "minisblack" if picture.pixels.ndim == 2 else "rgb"}
    if picture.alpha is not None:
        options |= {"extrasamples": ["unassalpha"], "planarconfig": "contig"}
    if picture.profile is not None:
        options["iccprofile"] = picture.profile
    content = io.BytesIO()
    _tifffile().imwrite(content, pixels, metadata=None, **options)
    file.write(content.getvalue())


def _tifffile() -> Any:
    message = 'TIFF files need tifffile, which comes with scikit-image: pip install "airnp[images]"'
    return _load("tifffile", message)


def _load(package: str, message: str) -> Any:
    """Import a package, or raise an ImportError with a message."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(message) from error
