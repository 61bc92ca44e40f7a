"""``airnp inpaint``: real pictures, through the command line."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import airnp.images.inpainting
from airnp.commands.demo import scene
from airnp.images import formats as files
from airnp.images.formats import Picture
from tests.commands.commandline import facts, main, mistake

QUICK = "--max-iter 20 --quiet"
RED = (255, 0, 0)


def photograph(colour=True, dtype=np.uint8):
    grey = scene(24)[:, :20]
    levels = np.stack([grey, 0.8 * grey, 1 - grey], axis=-1) if colour else grey
    return np.rint(levels * np.iinfo(dtype).max).astype(dtype)


def holes():
    observed = np.ones((24, 20), dtype=bool)
    observed[3:7, 5:9] = observed[15, 2:12] = False
    return observed


def write(name, pixels, alpha=None):
    with open(name, "wb") as file:
        files.write(file, files.kind_of(Path(name)), Picture(pixels, alpha))


def read(name):
    return files.read(Path(name))


@pytest.fixture
def photo():
    """The pictures ``photo.png`` and ``mask.png``."""
    write("mask.png", np.where(holes(), 255, 0).astype(np.uint8))
    write("photo.png", photograph())


def check_filled(given, found):
    """Check that observed pixels are as they were, and most of the others are not."""
    assert found.shape == given.shape
    assert found.dtype == given.dtype
    np.testing.assert_array_equal(found[holes()], given[holes()])
    assert (found[~holes()] != given[~holes()]).mean() > 0.5


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_every_kind_of_picture(suffix, colour, dtype, alpha, photo):
    given = photograph(colour, dtype)
    opacity = np.arange(480).reshape(24, 20).astype(dtype) if alpha else None
    write(f"other{suffix}", given, opacity)
    assert main(f"inpaint other{suffix} --mask mask.png -o out{suffix} {QUICK}") == 0
    found = read(f"out{suffix}")
    check_filled(given, found.pixels)
    if alpha:
        np.testing.assert_array_equal(found.alpha, opacity)


def test_the_answer_is_that_of_inpaint(photo):
    words = "--max-iter 30 --seed 4 --regularizers tv --quiet"
    assert main(f"inpaint photo.png --mask mask.png -o out.png {words}") == 0
    options = {"max_iter": 30, "seed": 4, "regularizers": [airnp.TotalVariation()]}
    expected = airnp.images.inpainting.inpaint(photograph(), holes(), channel_axis=-1, **options)
    np.testing.assert_array_equal(read("out.png").pixels, expected)


def test_an_inverted_mask(photo):
    write("inverted.tif", np.where(holes(), 0, 65535).astype(np.uint16))
    assert main(f"inpaint photo.png --mask mask.png -o a.png {QUICK}") == 0
    assert main(f"inpaint photo.png --mask inverted.tif --mask-invert -o b.png {QUICK}") == 0
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("name", ["#ff0000", "#f00", "red"])
def test_a_colour_means_missing(name, dtype):
    given = photograph(dtype=dtype)
    given[~holes()] = np.array(RED, dtype=dtype) * dtype(np.iinfo(dtype).max // 255)
    write("photo.png", given)
    assert main(f"inpaint photo.png --missing '{name}' -o out.png {QUICK}") == 0
    check_filled(given, read("out.png").pixels)


def test_a_colour_with_a_tolerance(capsys):
    given = photograph(colour=False)
    given[given > 240] = 240
    given[~holes()] = 250
    write("photo.png", given)
    line = "inpaint photo.png --missing white -o out.png --tolerance"
    shown = mistake(capsys, f"{line} 4")
    assert shown == "photo.png: no pixel is missing; none is of the colour white"
    assert main(f"{line} 5 {QUICK}") == 0
    check_filled(given, read("out.png").pixels)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_transparent_pixels_are_filled_and_become_opaque(suffix):
    given = photograph()
    write("photo.png", given, np.where(holes(), 255, 0).astype(np.uint8))
    assert main(f"inpaint photo.png --missing alpha -o out{suffix} {QUICK}") == 0
    found = read(f"out{suffix}")
    if suffix == ".png":
        check_filled(given, found.pixels)
        assert (found.alpha == 255).all()
    else:
        assert found.alpha is None


def test_pixels_that_are_partly_transparent_stay_so(capsys):
    alpha = np.full((24, 20), 255, dtype=np.uint8)
    alpha[0, :3], alpha[1, 0] = 0, 7
    write("photo.png", photograph(), alpha)
    line = "inpaint photo.png --missing alpha -o"
    assert main(f"{line} out.png {QUICK}") == 0
    found = read("out.png").alpha
    assert found[1, 0] == 7
    assert (found[0] == 255).all()
    assert mistake(capsys, f"{line} out.jpg") == ".jpg cannot hold transparent pixels; .png can"


def test_json_text_and_progress(photo, capsys):
    line = "inpaint photo.png --mask mask.png -o out.png --max-iter 20"
    done = facts(capsys, line)
    assert done.pop("seconds") > 0
    assert done == {
        "command": "inpaint",
        "input": "photo.png",
        "output": "out.png",
        "width": 20,
        "height": 24,
        "channels": 3,
        "bits": 8,
        "missing": 26,
        "stop_reason": "done",
        "seed": 0,
    }
    assert main(f"{line} --force") == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0] == "photo.png: 20×24 pixels, colour, 8 bits, 5.4% missing"
    assert lines[2] == "wrote out.png"
    assert shown.err == ""
    assert main(f"{line} --force --progress") == 0
    assert "3/3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("none.png --mask mask.png -o b.png", "[Errno 2] No such file or directory: 'none.png'"),
        ("photo.png --mask none.png -o b.png", "[Errno 2] No such file or directory: 'none.png'"),
        ("text.png --mask mask.png -o b.png", "text.png: cannot be read as a picture"),
        ("photo.png --mask mask.png -o b.xcf", "b.xcf: expected a name that ends in one of .png"),
        ("photo.png --mask mask.png -o photo.png", "photo.png is there already; --force overwrites"),
        (
            "photo.png --mask small.png -o b.png",
            "small.png: expected 20×24 pixels as in photo.png, found 5×4 pixels",
        ),
        ("photo.png --mask thin.png -o b.png", "thin.png: expected a mask without transparent pixels"),
        ("photo.png --mask white.png -o b.png", "photo.png: no pixel is missing; none is black in white"),
        (
            "photo.png --mask white.png --mask-invert -o b.png",
            "photo.png: all pixels are missing; all are white in white.png",
        ),
        ("photo.png --missing alpha -o b.png", "--missing alpha: photo.png has no alpha channel"),
        ("photo.png --missing '#12' -o b.png", '--missing: expected alpha or a colour such as "#ff0000"'),
        ("photo.png --missing alpha --tolerance 3 -o b.png", "--tolerance goes with --missing COLOUR"),
        ("photo.png --missing red --mask-invert -o b.png", "--mask-invert goes with --mask"),
        ("photo.png --mask mask.png -o b.png --rank 9 --depth 1", "--rank: "),
        ("deep.tif --mask mask.png -o b.jpg", ".jpg cannot hold 16 bits; .png and .tif can"),
    ],
)
def test_a_mistake_is_explained_in_one_line(words, message, photo, folder, capsys):
    Path("text.png").write_text("no picture", encoding="utf-8")
    write("small.png", np.zeros((4, 5), dtype=np.uint8))
    white = np.full((24, 20), 255, dtype=np.uint8)
    write("white.png", white)
    write("thin.png", white, white - 1)
    write("deep.tif", photograph(dtype=np.uint16))
    before = sorted(folder.iterdir())
    assert mistake(capsys, f"inpaint {words}").startswith(message)
    assert sorted(folder.iterdir()) == before


def test_without_pillow_the_extra_is_named(photo, capsys, monkeypatch):
    write("deep.png", photograph(dtype=np.uint16))  # read without Pillow
    monkeypatch.setitem(sys.modules, "PIL", None)
    for words in ("photo.png --mask mask.png", "deep.png --missing red"):
        shown = mistake(capsys, f"inpaint {words} -o b.png")
        assert shown == 'pictures need Pillow: pip install "airnp[images]"'


# --- Ctrl-C ---


def interrupt_after(monkeypatch, channels):
    """Interrupt the filling of a picture when so many of its channels are done."""

    def interrupted(pixels, observed, *, out, **options):
        for channel in range(channels):
            out[..., channel][~observed] = pixels[..., channel][~observed] ^ 1
        raise KeyboardInterrupt

    monkeypatch.setattr(airnp.images.inpainting, "inpaint", interrupted)


def test_ctrl_c_writes_what_is_filled(photo, capsys, monkeypatch):
    interrupt_after(monkeypatch, channels=1)
    assert main("inpaint photo.png --mask mask.png -o out.png") == 130
    assert capsys.readouterr().out.splitlines()[1:] == [
        "interrupted: 67% of what is missing is as it was",
        "wrote the result so far to out.png",
    ]
    given, found = photograph(), read("out.png").pixels
    np.testing.assert_array_equal(found[..., 1:], given[..., 1:])
    np.testing.assert_array_equal(found[..., 0] != given[..., 0], ~holes())


def test_ctrl_c_before_anything_is_filled(photo, capsys, monkeypatch):
    interrupt_after(monkeypatch, channels=0)
    shown = mistake(capsys, "inpaint photo.png --mask mask.png -o out.png", code=130)
    assert shown == "interrupted"
    assert not Path("out.png").exists()


def test_the_output_is_a_whole_file_for_other_programs(photo):
    assert main(f"inpaint photo.png --mask mask.png -o out.webp {QUICK}") == 0
    with Image.open("out.webp") as seen:
        assert seen.size == (20, 24)
        check_filled(photograph(), np.asarray(seen))
