"""``airnp inpaint``: real pictures, through the command line."""

import shlex
import sys

import numpy as np
import pytest
from PIL import Image

import airnp.images.inpainting
from airnp.commands.demo import scene
from airnp.images import files
from airnp.images.files import Picture
from tests.commands.commandline import facts, main, mistake, process

QUICK = ["--max-iter", "20", "--quiet"]
RED = (255, 0, 0)


def photograph(colour=True, dtype=np.uint8):
    grey = scene(24)[:, :20]
    levels = np.stack([grey, 0.8 * grey, 1 - grey], axis=-1) if colour else grey
    return np.rint(levels * np.iinfo(dtype).max).astype(dtype)


def holes():
    observed = np.ones((24, 20), dtype=bool)
    observed[3:7, 5:9] = observed[15, 2:12] = False
    return observed


def written(path, pixels, alpha=None):
    with open(path, "wb") as file:
        files.write(file, files.kind_of(path), Picture(pixels, alpha))
    return path


@pytest.fixture
def mask(tmp_path):
    return written(tmp_path / "mask.png", np.where(holes(), 255, 0).astype(np.uint8))


@pytest.fixture
def photo(tmp_path):
    return written(tmp_path / "photo.png", photograph())


def check_filled(given, found):
    """Observed pixels are as they were, the others are not."""
    assert found.shape == given.shape
    assert found.dtype == given.dtype
    np.testing.assert_array_equal(found[holes()], given[holes()])
    assert (found[~holes()] != given[~holes()]).mean() > 0.5


@pytest.mark.parametrize("alpha", [False, True])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("colour", [False, True])
@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_every_kind_of_picture(suffix, colour, dtype, alpha, mask, tmp_path):
    given = photograph(colour, dtype)
    opacity = np.arange(480).reshape(24, 20).astype(dtype) if alpha else None
    photo = written(tmp_path / f"photo{suffix}", given, opacity)
    out = tmp_path / f"out{suffix}"
    assert main("inpaint", photo, "--mask", mask, "-o", out, *QUICK) == 0
    found = files.read(out)
    check_filled(given, found.pixels)
    if alpha:
        np.testing.assert_array_equal(found.alpha, opacity)


def test_the_answer_is_that_of_inpaint(photo, mask, tmp_path):
    out = tmp_path / "out.png"
    words = ["--max-iter", "30", "--seed", "4", "--regularizers", "tv", "--quiet"]
    assert main("inpaint", photo, "--mask", mask, "-o", out, *words) == 0
    options = {"max_iter": 30, "seed": 4, "regularizers": [airnp.TotalVariation()]}
    expected = airnp.images.inpainting.inpaint(photograph(), holes(), channel_axis=-1, **options)
    np.testing.assert_array_equal(files.read(out).pixels, expected)


def test_a_mask_the_other_way_round(photo, mask, tmp_path):
    inverted = written(tmp_path / "inverted.tif", np.where(holes(), 0, 65535).astype(np.uint16))
    for name, words in {"a.png": [mask], "b.png": [inverted, "--mask-invert"]}.items():
        assert main("inpaint", photo, "--mask", *words, "-o", tmp_path / name, *QUICK) == 0
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("name", ["#ff0000", "#f00", "red"])
def test_a_colour_means_missing(name, dtype, tmp_path):
    given = photograph(dtype=dtype)
    given[~holes()] = np.array(RED, dtype=dtype) * dtype(np.iinfo(dtype).max // 255)
    photo, out = written(tmp_path / "photo.png", given), tmp_path / "out.png"
    assert main("inpaint", photo, "--missing", name, "-o", out, *QUICK) == 0
    check_filled(given, files.read(out).pixels)


def test_a_colour_with_a_tolerance(tmp_path, capsys):
    given = photograph(colour=False)
    given[given > 240] = 240
    given[~holes()] = 250
    photo = written(tmp_path / "photo.png", given)
    words = ["inpaint", photo, "--missing", "white", "-o", tmp_path / "out.png"]
    assert (
        mistake(capsys, *words, "--tolerance", "4")
        == f"{photo}: no pixel is missing; none is of the colour white"
    )
    assert main(*words, "--tolerance", "5", *QUICK) == 0
    check_filled(given, files.read(tmp_path / "out.png").pixels)


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_transparent_pixels_are_filled_and_become_opaque(suffix, tmp_path):
    given = photograph()
    photo = written(tmp_path / "photo.png", given, np.where(holes(), 255, 0).astype(np.uint8))
    out = tmp_path / f"out{suffix}"
    assert main("inpaint", photo, "--missing", "alpha", "-o", out, *QUICK) == 0
    found = files.read(out)
    if suffix == ".png":
        check_filled(given, found.pixels)
        assert (found.alpha == 255).all()
    else:
        assert found.alpha is None


def test_what_is_a_little_transparent_stays_so(tmp_path, capsys):
    alpha = np.full((24, 20), 255, dtype=np.uint8)
    alpha[0, :3], alpha[1, 0] = 0, 7
    photo = written(tmp_path / "photo.png", photograph(), alpha)
    words = ["inpaint", photo, "--missing", "alpha"]
    assert main(*words, "-o", tmp_path / "out.png", *QUICK) == 0
    found = files.read(tmp_path / "out.png").alpha
    assert found[1, 0] == 7
    assert (found[0] == 255).all()
    assert (
        mistake(capsys, *words, "-o", tmp_path / "out.jpg") == ".jpg cannot hold transparent pixels; .png can"
    )


def test_json_and_text_say_what_was_done(photo, mask, tmp_path, capsys):
    words = ["inpaint", photo, "--mask", mask, "-o", tmp_path / "out.png", "--max-iter", "20"]
    done = facts(capsys, *words)
    assert done.pop("seconds") > 0
    assert done == {
        "command": "inpaint",
        "input": str(photo),
        "output": str(tmp_path / "out.png"),
        "width": 20,
        "height": 24,
        "channels": 3,
        "bits": 8,
        "missing": 26,
        "stop_reason": "done",
        "seed": 0,
    }
    assert main(*words, "--force") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{photo}: 20×24 pixels, colour, 8 bits, 5.4% missing"
    assert lines[2] == f"wrote {tmp_path / 'out.png'}"


def test_a_pipe_sees_no_progress_bar_unless_asked_for(photo, mask, tmp_path):
    words = ["inpaint", photo, "--mask", mask, "-o", tmp_path / "out.png", "--force", "--max-iter", "20"]
    assert process(*words).stderr == ""
    assert "3/3" in process(*words, "--progress").stderr


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
def test_a_mistake_is_one_line_that_names_it(words, message, photo, mask, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.png").write_text("no picture", encoding="utf-8")
    written(tmp_path / "small.png", np.zeros((4, 5), dtype=np.uint8))
    white = np.full((24, 20), 255, dtype=np.uint8)
    written(tmp_path / "white.png", white)
    written(tmp_path / "thin.png", white, white - 1)
    written(tmp_path / "deep.tif", photograph(dtype=np.uint16))
    before = sorted(tmp_path.iterdir())
    assert mistake(capsys, "inpaint", *shlex.split(words)).startswith(message)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "one of the arguments --mask --missing is required"),
        ("--mask a.png --missing red", "not allowed with argument --mask"),
        ("--missing red --tolerance -1", "--tolerance: must be a whole number of at least 0"),
    ],
)
def test_a_wrong_word_is_explained(words, message, capsys):
    assert main("inpaint", "photo.png", "-o", "b.png", *shlex.split(words)) == 2
    assert message in capsys.readouterr().err


def test_without_pillow_the_extra_is_named(photo, mask, tmp_path, capsys, monkeypatch):
    deep = written(tmp_path / "deep.png", photograph(dtype=np.uint16))  # read without Pillow
    monkeypatch.setitem(sys.modules, "PIL", None)
    for words in ([photo, "--mask", mask], [deep, "--missing", "red"]):
        shown = mistake(capsys, "inpaint", *words, "-o", tmp_path / "b.png")
        assert shown == 'pictures need Pillow: pip install "airnp[images]"'


# --- Ctrl-C ---


def interrupt_after(monkeypatch, channels):
    """Let the filling of a picture be interrupted when so many of its channels are done."""

    def interrupted(pixels, observed, *, out, **options):
        for channel in range(channels):
            out[..., channel][~observed] = pixels[..., channel][~observed] ^ 1
        raise KeyboardInterrupt

    monkeypatch.setattr(airnp.images.inpainting, "inpaint", interrupted)


def test_ctrl_c_writes_what_is_filled(photo, mask, tmp_path, capsys, monkeypatch):
    interrupt_after(monkeypatch, channels=1)
    out = tmp_path / "out.png"
    assert main("inpaint", photo, "--mask", mask, "-o", out) == 130
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == [
        "interrupted: 67% of what is missing is as it was",
        f"wrote the result so far to {out}",
    ]
    given, found = photograph(), files.read(out).pixels
    np.testing.assert_array_equal(found[..., 1:], given[..., 1:])
    np.testing.assert_array_equal(found[..., 0] != given[..., 0], ~holes())


def test_ctrl_c_before_anything_is_filled(photo, mask, tmp_path, capsys, monkeypatch):
    interrupt_after(monkeypatch, channels=0)
    words = ["inpaint", photo, "--mask", mask, "-o", tmp_path / "out.png"]
    assert mistake(capsys, *words, code=130) == "interrupted"
    assert not (tmp_path / "out.png").exists()


def test_the_file_is_whole_for_other_programs(photo, mask, tmp_path):
    assert main("inpaint", photo, "--mask", mask, "-o", tmp_path / "out.webp", *QUICK) == 0
    with Image.open(tmp_path / "out.webp") as seen:
        assert seen.size == (20, 24)
        check_filled(photograph(), np.asarray(seen))
