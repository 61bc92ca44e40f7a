"""Picture files: every kind survives a round trip, and every refusal names the file."""

import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from airnp.images import formats as files
from airnp.images.formats import Picture, PictureError

LOSSLESS = (".png", ".tif", ".tiff", ".webp", ".bmp")


def some_picture(colour, dtype, alpha):
    rng = np.random.default_rng(0)
    most = np.iinfo(dtype).max
    shape = (11, 17, 3) if colour else (11, 17)
    return Picture(
        rng.integers(0, most, shape, dtype=dtype, endpoint=True),
        rng.integers(0, most, shape[:2], dtype=dtype, endpoint=True) if alpha else None,
    )


def write(path, picture):
    with open(path, "wb") as file:
        files.write(file, files.kind_of(path), picture)
    return path


# --- round trips ---


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("suffix", LOSSLESS)
def test_a_round_trip_keeps_every_pixel(suffix, colour, dtype, alpha, tmp_path):
    picture = some_picture(colour, dtype, alpha)
    if (dtype == np.uint16 and suffix in (".webp", ".bmp")) or (alpha and suffix == ".bmp"):
        with pytest.raises(PictureError, match=f"{suffix} cannot hold"):
            files.write(io.BytesIO(), suffix, picture)
        return
    back = files.read(write(tmp_path / f"a{suffix}", picture))
    expected = picture.pixels
    if suffix == ".webp" and not colour:  # a format without grey
        expected = np.repeat(expected[..., np.newaxis], 3, axis=-1)
    np.testing.assert_array_equal(back.pixels, expected)
    assert back.pixels.dtype == dtype
    assert (back.alpha is None) == (not alpha)
    if alpha:
        np.testing.assert_array_equal(back.alpha, picture.alpha)


def test_jpeg_is_nearly_lossless_and_drops_an_opaque_alpha(tmp_path):
    ramp = np.add.outer(np.arange(64), np.arange(64)).astype(np.uint8)
    back = files.read(write(tmp_path / "a.jpg", Picture(ramp, np.full_like(ramp, 255))))
    assert back.alpha is None
    assert np.abs(back.pixels.astype(int) - ramp).max() <= 3
    with pytest.raises(PictureError, match=r"\.jpg cannot hold transparent pixels; \.png can"):
        files.write(io.BytesIO(), ".jpg", Picture(ramp, np.full_like(ramp, 254)))


def test_pillow_reads_the_upper_eight_bits_of_what_is_write(tmp_path):
    picture = some_picture(True, np.uint16, True)
    with Image.open(write(tmp_path / "a.png", picture)) as seen:
        upper = np.asarray(seen)
    assert seen.mode == "RGBA"
    np.testing.assert_array_equal(upper[..., :3], picture.pixels >> 8)
    np.testing.assert_array_equal(upper[..., 3], picture.alpha >> 8)


def test_a_profile_is_kept(tmp_path):
    Image.new("RGB", (2, 2)).save(tmp_path / "a.png", icc_profile=b"what colours mean")
    picture = files.read(tmp_path / "a.png")
    for name in ("b.png", "b.tif", "b.jpg"):
        with Image.open(write(tmp_path / name, picture)) as seen:
            assert seen.info["icc_profile"] == b"what colours mean"


# --- other kinds of files ---


@pytest.mark.parametrize(("mode", "channels"), [("1", 1), ("P", 3), ("LA", 2)])
def test_other_modes_of_pillow_are_converted(mode, channels, tmp_path):
    Image.new("RGB", (4, 3), "red").convert(mode).save(tmp_path / "a.png")
    picture = files.read(tmp_path / "a.png")
    assert picture.pixels.dtype == np.uint8
    assert picture.pixels.shape == ((3, 4, 3) if channels == 3 else (3, 4))
    assert (picture.alpha is not None) == (channels == 2)


@pytest.mark.parametrize("mode", ["P", "L", "RGB"])
def test_a_transparent_colour_becomes_alpha(mode, tmp_path):
    image = Image.new("RGB", (2, 1), "white")
    image.putpixel((0, 0), (0, 0, 0))
    image = image.convert(mode)
    image.save(tmp_path / "a.png", transparency=image.getpixel((0, 0)))
    assert files.read(tmp_path / "a.png").alpha.tolist() == [[0, 255]]


def test_a_photograph_is_rotated_by_its_exif_orientation(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.new("L", (4, 3)).save(tmp_path / "a.jpg", exif=exif)
    assert files.read(tmp_path / "a.jpg").pixels.shape == (4, 3)


def test_files_that_would_lose_information_are_refused(tmp_path):
    Image.new("CMYK", (4, 3)).save(tmp_path / "a.jpg")
    with pytest.raises(PictureError, match="its kind CMYK is none of grey and RGB"):
        files.read(tmp_path / "a.jpg")
    frames = [Image.new("L", (4, 3), level) for level in (0, 255)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(PictureError, match="expected one picture, found several in one file"):
        files.read(tmp_path / "a.gif")


PLANES = np.arange(3 * 30 * 40, dtype=np.uint16).reshape(3, 30, 40)


def test_a_tiff_with_a_plane_per_channel_is_read(tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", PLANES, photometric="rgb", planarconfig="separate")
    np.testing.assert_array_equal(files.read(tmp_path / "a.tif").pixels, np.moveaxis(PLANES, 0, -1))


@pytest.mark.parametrize(
    ("array", "options", "message"),
    [
        (np.zeros((3, 4), np.float32), {}, "expected 8 or 16 bits for a channel, found float32"),
        (np.zeros((5, 30, 4), np.uint8), {}, "expected one picture, found 5 in one file"),
        (
            np.zeros((30, 40, 5), np.uint8),
            {"planarconfig": "contig"},
            "expected one picture, grey or in colour",
        ),
        (PLANES[0], {"photometric": "miniswhite"}, "it is none of grey and RGB"),
        (
            np.moveaxis(PLANES[[0, 1, 2, 0]], 0, -1),
            {"photometric": "separated"},
            "it is none of grey and RGB",
        ),
    ],
)
def test_other_kinds_of_tiff_are_refused(array, options, message, tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", array, **{"photometric": "minisblack", **options})
    with pytest.raises(PictureError, match=rf"a\.tif: {message}"):
        files.read(tmp_path / "a.tif")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read as a picture"),
        (b"no picture", "cannot be read as a picture"),
        (b"II*\0 no picture", "expected one picture, found 0 in one file"),
    ],
)
def test_a_file_that_is_no_picture_is_refused(content, message, tmp_path):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(PictureError, match=rf"a\.png: {message}"):
        files.read(tmp_path / "a.png")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_truncated_file_is_refused(dtype, tmp_path):
    path = write(tmp_path / "a.png", some_picture(True, dtype, False))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(PictureError, match=r"a\.png: cannot be read as a picture"):
        files.read(path)


def test_an_unknown_suffix_is_refused():
    with pytest.raises(PictureError, match=r"a\.xcf: expected a name that ends in one of \.png, "):
        files.kind_of(Path("a.xcf"))


@pytest.mark.parametrize(
    ("package", "suffix", "dtype", "message"),
    [
        ("PIL", ".png", np.uint8, "pictures need Pillow"),
        ("tifffile", ".tif", np.uint8, "TIFF files need tifffile, which comes with scikit-image"),
        ("imagecodecs", ".png", np.uint16, "PNG files of 16 bits in colour need imagecodecs"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(package, suffix, dtype, message, tmp_path, monkeypatch):
    picture = some_picture(True, dtype, False)
    path = write(tmp_path / f"a{suffix}", picture)
    monkeypatch.setitem(sys.modules, package, None)
    for use in (lambda: files.read(path), lambda: files.write(io.BytesIO(), suffix, picture)):
        with pytest.raises(ImportError) as caught:
            use()
        assert str(caught.value) == f'{message}: pip install "airnp[images]"'


# --- PNG of 16 bits ---


def test_a_damaged_file_is_refused(tmp_path):
    path = write(tmp_path / "a.png", some_picture(True, np.uint16, False))
    content = path.read_bytes()
    path.write_bytes(content[:60] + bytes([content[60] ^ 1]) + content[61:])
    with pytest.raises(PictureError, match=r"a\.png: cannot be read as a picture"):
        files.read(path)


def test_a_file_without_filters_and_in_several_parts_is_read(tmp_path):
    """Written by hand after the standard, so that reading does not depend on our writer alone."""
    pixels = np.random.default_rng(1).integers(0, 2**16, (5, 12, 3), dtype=np.uint16)
    lines = pixels.astype(">u2").view(np.uint8).reshape(5, -1)
    packed = zlib.compress(np.pad(lines, ((0, 0), (1, 0))).tobytes())
    header = struct.pack(">IIBBBBB", 12, 5, 16, 2, 0, 0, 0)
    parts = [
        (b"IHDR", header),
        (b"tEXt", b"a\0b"),
        (b"IDAT", packed[:50]),
        (b"IDAT", packed[50:]),
        (b"IEND", b""),
    ]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))
    np.testing.assert_array_equal(files.read(tmp_path / "a.png").pixels, pixels)
