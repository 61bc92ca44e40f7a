"""``airnp inpaint``: real pictures, through the command line."""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import airnp.images.inpainting
from airnp.commands.demo import scene
from airnp.commands.inpaint import looks_inverted
from airnp.images import formats as files
from airnp.images.formats import Picture
from airnp.resemblance import stages
from tests.commands.commandline import facts, main, mistake

QUICK = "--method patches --quality fast --quiet"
RED = (255, 0, 0)


def photograph(colour=True, dtype=np.uint8):
    grey = scene(48)[12:36, 4:24]
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


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("", {}),
        ("--quality fast --seed 4 --threads 1", {"quality": "fast", "seed": 4}),
        ("--patch 4 --search 7 --neighbours 20", {"patch": 4, "search": 7, "neighbours": 20}),
        ("--method patches", {"method": "patches"}),
        ("--method biharmonic", {"method": "biharmonic"}),
        ("--method linear", {"method": "linear"}),
        (
            "--method air --max-iter 30 --seed 4 --regularizers tv",
            {"method": "air", "max_iter": 30, "seed": 4, "regularizers": [airnp.TotalVariation()]},
        ),
    ],
)
def test_the_answer_is_that_of_inpaint(words, options, photo):
    assert main(f"inpaint photo.png --mask mask.png -o out.png --quiet {words}") == 0
    expected = airnp.inpaint(photograph(), holes(), channel_axis=-1, **options)
    np.testing.assert_array_equal(read("out.png").pixels, expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_standard_deviations_as_numbers_and_as_a_picture(dtype, photo):
    write("photo.png", photograph(dtype=dtype))
    line = "inpaint photo.png --mask mask.png --quiet --quality fast --force -o out.png --std"
    assert main(f"{line} std.npy") == 0
    assert main(f"{line} std.png") == 0
    found = airnp.inpaint(photograph(dtype=dtype), holes(), channel_axis=-1, quality="fast", full=True)
    np.testing.assert_array_equal(np.load("std.npy"), found.std)
    assert found.std[~holes()].min() > 0
    levels = read("std.png").pixels
    assert levels.dtype == dtype
    np.testing.assert_array_equal(levels, np.rint(found.std))


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
    line = "inpaint photo.png --mask mask.png -o out.png --quality fast"
    done = facts(capsys, line)
    assert done.pop("seconds") > 0
    found = airnp.inpaint(photograph(), holes(), channel_axis=-1, quality="fast", full=True)
    assert done == {
        "command": "inpaint",
        "input": "photo.png",
        "output": "out.png",
        "width": 20,
        "height": 24,
        "channels": 3,
        "bits": 8,
        "missing": 26,
        "method": "auto",
        "chosen": found.chosen,
        "expected": found.expected,
        "expected_error": found.expected_error,
        "stop_reason": "done",
        "seed": 0,
    }
    assert main(f"{line} --force --std std.png") == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0] == "photo.png: 20×24 pixels, colour, 8 bits, 5.4% missing"
    assert lines[1].startswith(f"method auto: patch {found.chosen['patch']}, search 10, ")
    expected = f"{found.expected:.2f} ± {found.expected_error:.2f}"
    assert lines[2] == f"expected error {expected} grey levels of 255"
    assert lines[3].startswith("filled in ")
    assert lines[4:] == ["wrote out.png", "wrote std.png"]
    assert shown.err == ""
    assert main(f"{line} --force --progress") == 0
    assert "100%" in capsys.readouterr().err


def test_without_trials_there_is_no_error_to_expect(photo, capsys):
    line = "inpaint photo.png --mask mask.png -o out.png --method linear"
    done = facts(capsys, line)
    assert (done["method"], done["chosen"], done["expected"], done["expected_error"]) == (
        "linear",
        {},
        None,
        None,
    )
    assert main(f"{line} --force") == 0
    assert capsys.readouterr().out.splitlines()[1] == "method linear"


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
        ("photo.png --mask mask.png -o b.png --method air --rank 9 --depth 1", "--rank: "),
        *(
            (f"photo.png --mask mask.png -o b.png {words}", f"{words.split()[0]} goes with --method air")
            for words in ("--max-iter 9", "--rank 9", "--depth 1", "--regularizers tv", "--dtype float32")
        ),
        *(
            (
                f"photo.png --mask mask.png -o b.png --method {method} {words}",
                f"{words.split()[0]} goes with --method auto or patches",
            )
            for method, words in (
                ("air", "--time-limit 9"),
                ("air", "--checkpoint run.npz"),
                ("linear", "--std std.npy"),
                ("biharmonic", "--quality fast"),
                ("air", "--patch 5"),
            )
        ),
        (
            "photo.png --mask mask.png -o b.png --checkpoint-every 3",
            "--checkpoint-every goes with --checkpoint",
        ),
        ("photo.png --mask mask.png -o b.png --checkpoint run", "--checkpoint: expected a name that ends in"),
        (
            "photo.png --mask mask.png -o b.png --std b.jpg",
            "--std: expected a name that ends in .png or .npy",
        ),
        ("photo.png --mask mask.png -o b.png --std b.png", "--std and --output are the same file"),
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


# --- masks that look inverted ---


def test_a_mask_that_looks_inverted_gets_a_hint(photo, capsys):
    write("inverted.png", np.where(holes(), 0, 255).astype(np.uint8))
    line = "inpaint photo.png --method linear -o out.png --force --mask"
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(f"{line} inverted.png") == 0
        shown = capsys.readouterr()
        assert shown.err.startswith("airnp inpaint: warning: inverted.png looks inverted: most pixels")
        assert shown.err.endswith("; with --mask-invert black means observed\n")
        assert main(f"{line} mask.png --mask-invert") == 0
        assert capsys.readouterr().err.endswith("; without --mask-invert white means observed\n")
        for words in ("inverted.png --mask-invert", "mask.png"):
            assert main(f"{line} {words}") == 0
            assert capsys.readouterr().err == ""


@pytest.mark.parametrize("missing", [0.55, 0.7, 0.9, 0.99])
def test_pixels_missing_at_random_do_not_look_inverted(missing):
    for seed in range(5):
        assert not looks_inverted(airnp.masks.random((64, 64), missing, seed=seed))


def test_a_window_of_a_larger_picture_does_not_look_inverted():
    observed = np.zeros((64, 64), dtype=bool)
    observed[20:50, 20:50] = True
    assert not looks_inverted(observed)
    observed[::4] = True  # one line of four
    assert not looks_inverted(observed)


# --- interrupted runs ---


def interrupt_in(monkeypatch, *, round_of_patches):
    """Press Ctrl-C in some round of patches."""
    rounds, run = [], stages.Patches.run

    def interrupted(self, window, threads):
        rounds.append(self)
        if len(rounds) == round_of_patches:
            raise KeyboardInterrupt
        return run(self, window, threads)

    monkeypatch.setattr(stages.Patches, "run", interrupted)


def test_ctrl_c_writes_the_picture_so_far(photo, capsys, monkeypatch):
    interrupt_in(monkeypatch, round_of_patches=2)
    line = "inpaint photo.png --mask mask.png -o out.png --method patches --std std.npy"
    assert main(line) == 130
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].startswith("interrupted after ")
    assert lines[-2:] == ["wrote the picture so far to out.png", "wrote std.npy"]
    check_filled(photograph(), read("out.png").pixels)


def test_ctrl_c_in_a_fit_writes_nothing(photo, capsys, monkeypatch):
    def interrupted(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(airnp.images.inpainting, "fit", interrupted)
    shown = mistake(capsys, "inpaint photo.png --mask mask.png -o out.png --method air", code=130)
    assert shown == "interrupted"
    assert not Path("out.png").exists()


def test_a_time_limit_writes_the_smooth_surface(photo, capsys):
    line = "inpaint photo.png --mask mask.png -o out.png --force --time-limit 1e-9"
    done = facts(capsys, line)
    # What the trials expect of a complete run says nothing about this one.
    assert (done["stop_reason"], done["expected"]) == ("time limit", None)
    check_filled(photograph(), read("out.png").pixels)
    assert main(line) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("time limit after ")
    assert lines[3] == "wrote the picture so far to out.png"


def test_a_device_is_handed_on(photo, monkeypatch, cupy_double):
    seen = []

    def spy(pixels, observed, *, xp, device, **options):
        seen.append((xp.__name__, device))
        return airnp.inpaint(pixels, observed, **options)

    monkeypatch.setattr(airnp.images.inpainting, "inpaint", spy)
    assert main(f"inpaint photo.png --mask mask.png -o out.png --device cuda:1 {QUICK}") == 0
    assert seen == [("cupy", 1)]


def test_the_same_command_continues_from_a_checkpoint(photo, monkeypatch):
    line = "inpaint photo.png --mask mask.png --method patches --quiet"
    assert main(f"{line} -o whole.png") == 0
    again = f"{line} -o out.png --force --checkpoint run.npz --checkpoint-every 1e-9"
    with monkeypatch.context() as patch:
        interrupt_in(patch, round_of_patches=2)
        assert main(again) == 130
    assert Path("out.png").read_bytes() != Path("whole.png").read_bytes()
    assert Path("run.npz").exists()
    with monkeypatch.context() as patch:
        # One more round than are left, so the first is not done again.
        interrupt_in(patch, round_of_patches=3)
        assert main(again) == 0
    assert Path("out.png").read_bytes() == Path("whole.png").read_bytes()
    assert not Path("run.npz").exists()


@pytest.mark.parametrize("first", ["--time-limit 1e-9", ""])
def test_stopped_trials_leave_the_checkpoint_to_the_next_command(first, photo, monkeypatch):
    line = "inpaint photo.png --mask mask.png --quality fast --quiet"
    assert main(f"{line} -o whole.png") == 0
    again = f"{line} -o out.png --force --checkpoint run.npz --checkpoint-every 1e-9"
    with monkeypatch.context() as patch:
        if not first:
            interrupt_in(patch, round_of_patches=1)
        assert main(f"{again} {first}") == (0 if first else 130)
    assert main(again) == 0
    assert Path("out.png").read_bytes() == Path("whole.png").read_bytes()


def test_a_checkpoint_of_another_picture_is_refused(photo, capsys, monkeypatch):
    line = "inpaint photo.png --mask mask.png --method patches -o out.png --force --checkpoint run.npz"
    with monkeypatch.context() as patch:
        interrupt_in(patch, round_of_patches=2)
        assert main(f"{line} --checkpoint-every 1e-9 --quiet") == 130
    write("photo.png", photograph()[::-1])
    assert "another picture, mask or settings" in mistake(capsys, line)


def test_the_output_is_a_whole_file_for_other_programs(photo):
    assert main(f"inpaint photo.png --mask mask.png -o out.webp {QUICK}") == 0
    with Image.open("out.webp") as seen:
        assert seen.size == (20, 24)
        check_filled(photograph(), np.asarray(seen))
