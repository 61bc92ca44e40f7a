"""Pictures on disk: every kind there and back, and every message about one that cannot be meant."""

import builtins
import io
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from airnp.images import files, png16
from airnp.images.files import Picture, PictureError

LOSSLESS = (".png", ".tif", ".tiff", ".webp", ".bmp")


def some_picture(colour, dtype, alpha):
    rng = np.random.default_rng(0)
    most = np.iinfo(dtype).max
    shape = (11, 17, 3) if colour else (11, 17)
    return Picture(
        rng.integers(0, most, shape, dtype=dtype, endpoint=True),
        rng.integers(0, most, shape[:2], dtype=dtype, endpoint=True) if alpha else None,
    )


def written(path, picture):
    with open(path, "wb") as file:
        files.write(file, files.kind_of(path), picture)
    return path


# --- there and back ---


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("suffix", LOSSLESS)
def test_pixels_come_back_exactly(suffix, colour, dtype, alpha, tmp_path):
    picture = some_picture(colour, dtype, alpha)
    if (dtype == np.uint16 and suffix in (".webp", ".bmp")) or (alpha and suffix == ".bmp"):
        with pytest.raises(PictureError, match=f"{suffix} cannot hold"):
            files.write(io.BytesIO(), suffix, picture)
        return
    back = files.read(written(tmp_path / f"a{suffix}", picture))
    expected = picture.pixels
    if suffix == ".webp" and not colour:  # a format without grey
        expected = np.repeat(expected[..., np.newaxis], 3, axis=-1)
    np.testing.assert_array_equal(back.pixels, expected)
    assert back.pixels.dtype == dtype
    assert (back.alpha is None) == (not alpha)
    if alpha:
        np.testing.assert_array_equal(back.alpha, picture.alpha)


def test_jpeg_is_nearly_the_same_and_drops_an_alpha_that_hides_nothing(tmp_path):
    ramp = np.add.outer(np.arange(64), np.arange(64)).astype(np.uint8)
    back = files.read(written(tmp_path / "a.jpg", Picture(ramp, np.full_like(ramp, 255))))
    assert back.alpha is None
    assert np.abs(back.pixels.astype(int) - ramp).max() <= 3
    with pytest.raises(PictureError, match=r"\.jpg cannot hold transparent pixels; \.png can"):
        files.write(io.BytesIO(), ".jpg", Picture(ramp, np.full_like(ramp, 254)))


def test_pillow_reads_the_upper_eight_bits_of_what_is_written(tmp_path):
    picture = some_picture(True, np.uint16, True)
    with Image.open(written(tmp_path / "a.png", picture)) as seen:
        upper = np.asarray(seen)
    assert seen.mode == "RGBA"
    np.testing.assert_array_equal(upper[..., :3], picture.pixels >> 8)
    np.testing.assert_array_equal(upper[..., 3], picture.alpha >> 8)


def test_a_profile_is_kept(tmp_path):
    Image.new("RGB", (2, 2)).save(tmp_path / "a.png", icc_profile=b"what colours mean")
    picture = files.read(tmp_path / "a.png")
    for name in ("b.png", "b.tif", "b.jpg"):
        with Image.open(written(tmp_path / name, picture)) as seen:
            assert seen.info["icc_profile"] == b"what colours mean"


# --- what Pillow has ---


@pytest.mark.parametrize(("mode", "channels"), [("1", 1), ("P", 3), ("LA", 2)])
def test_other_modes(mode, channels, tmp_path):
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


def test_what_the_camera_turned_is_turned_back(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.new("L", (4, 3)).save(tmp_path / "a.jpg", exif=exif)
    assert files.read(tmp_path / "a.jpg").pixels.shape == (4, 3)


def test_what_would_lose_something_is_refused(tmp_path):
    Image.new("CMYK", (4, 3)).save(tmp_path / "a.jpg")
    with pytest.raises(PictureError, match="its kind CMYK is none of grey and RGB"):
        files.read(tmp_path / "a.jpg")
    frames = [Image.new("L", (4, 3), level) for level in (0, 255)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(PictureError, match="expected one picture, found several in one file"):
        files.read(tmp_path / "a.gif")


def test_a_tiff_of_other_numbers_is_refused(tmp_path):
    import tifffile

    for array, message in [
        (np.zeros((3, 4), np.float32), "expected 8 or 16 bits for a channel, found float32"),
        (np.zeros((5, 30, 4), np.uint8), "expected one picture, found 5 in one file"),
    ]:
        tifffile.imwrite(tmp_path / "a.tif", array, photometric="minisblack")
        with pytest.raises(PictureError, match=message):
            files.read(tmp_path / "a.tif")


def test_other_kinds_of_tiff(tmp_path):
    import tifffile

    path = tmp_path / "a.tif"
    planes = np.arange(3 * 30 * 40, dtype=np.uint16).reshape(3, 30, 40)
    tifffile.imwrite(path, planes, photometric="rgb", planarconfig="separate")
    np.testing.assert_array_equal(files.read(path).pixels, np.moveaxis(planes, 0, -1))
    for array, photometric in [
        (planes[0], "miniswhite"),
        (np.moveaxis(planes[[0, 1, 2, 0]], 0, -1), "separated"),
    ]:
        tifffile.imwrite(path, array, photometric=photometric)
        with pytest.raises(PictureError, match=r"a\.tif: it is none of grey and RGB"):
            files.read(path)
    tifffile.imwrite(path, np.zeros((30, 40, 5), np.uint8), photometric="minisblack", planarconfig="contig")
    with pytest.raises(
        PictureError, match="expected one picture, grey or in colour, found an array of shape"
    ):
        files.read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "cannot be read as a picture"),
        (b"no picture", "cannot be read as a picture"),
        (b"II*\0 no picture", "expected one picture, found 0 in one file"),
    ],
)
def test_a_file_that_is_no_picture(content, message, tmp_path):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(PictureError, match=rf"a\.png: {message}"):
        files.read(tmp_path / "a.png")


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_file_that_is_cut_off(dtype, tmp_path):
    path = written(tmp_path / "a.png", some_picture(True, dtype, False))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(PictureError, match=r"a\.png: cannot be read as a picture"):
        files.read(path)


def test_a_name_that_says_nothing():
    with pytest.raises(PictureError, match=r"a\.xcf: expected a name that ends in one of \.png, "):
        files.kind_of(Path("a.xcf"))


@pytest.mark.parametrize(
    ("package", "suffix", "message"),
    [
        ("PIL", ".png", 'pictures need Pillow: pip install "airnp[images]"'),
        (
            "tifffile",
            ".tif",
            'TIFF files need tifffile, which comes with scikit-image: pip install "airnp[images]"',
        ),
    ],
)
def test_a_missing_package_is_named_with_its_extra(package, suffix, message, tmp_path, monkeypatch):
    path = written(tmp_path / f"a{suffix}", some_picture(True, np.uint8, False))
    for name in list(sys.modules):
        if name.split(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    importing = builtins.__import__

    def refuse(name, *rest, **options):
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return importing(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError) as caught:
        files.read(path)
    assert str(caught.value) == message


# --- PNG of 16 bits ---


def filtered(lines, filters, size):
    """Filter bytes as the standard describes it, byte by byte."""
    out = bytearray()
    for row, kind in enumerate(filters):
        out.append(kind)
        for place, value in enumerate(lines[row]):
            left = int(lines[row][place - size]) if place >= size else 0
            above = int(lines[row - 1][place]) if row else 0
            corner = int(lines[row - 1][place - size]) if row and place >= size else 0
            estimate = left + above - corner
            nearest = min((left, above, corner), key=lambda pixel: abs(estimate - pixel))
            guess = (0, left, above, (left + above) // 2, nearest)[kind]
            out.append((int(value) - guess) % 256)
    return bytes(out)


def png(pixels, body, interlaced=0):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 16, {2: 4, 3: 2, 4: 6}[channels], 0, 0, interlaced)
    packed = zlib.compress(body)
    parts = [
        (b"IHDR", header),
        (b"tEXt", b"a\0b"),
        (b"IDAT", packed[:50]),
        (b"IDAT", packed[50:]),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("shape", [(12, 5), (5, 12), (1, 1)])
def test_all_filters_are_undone(shape, channels):
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 2**16, (*shape, channels), dtype=np.uint16)
    lines = pixels.astype(">u2").view(np.uint8).reshape(shape[0], -1)
    filters = np.arange(shape[0])[::-1] % 5
    content = png(pixels, filtered(lines, filters, 2 * channels))
    assert png16.is_deep(content)
    np.testing.assert_array_equal(png16.decode(content), pixels)


def test_other_files_are_left_to_pillow(tmp_path):
    for mode in ("RGB", "I;16"):
        Image.new(mode, (2, 2)).save(tmp_path / "a.png")
        assert not png16.is_deep((tmp_path / "a.png").read_bytes())
    assert not png16.is_deep(b"")


def test_damage_is_found():
    pixels = np.zeros((3, 4, 3), dtype=np.uint16)
    content = png16.encode(pixels)
    with pytest.raises(ValueError, match="the checksum of its part IDAT is wrong"):
        png16.decode(content[:45] + bytes([content[45] ^ 1]) + content[46:])
    for body, interlaced, message in [
        (b"\0" * (3 * 25 - 1), 0, "its pixels are cut off"),
        (b"\5" * (3 * 25), 0, "unknown filter 5"),
        (b"\0" * (3 * 25), 1, "interlaced PNG files of 16 bits are not supported"),
    ]:
        with pytest.raises(ValueError, match=message):
            png16.decode(png(pixels, body, interlaced))
