"""The command line and the demonstration behind it."""

import builtins
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import airnp
from airnp import cli, demo, masks

QUICK = ["--size", "24", "--iterations", "30"]


def main(*words):
    """Run the command line in this process and return its exit code, however it leaves."""
    try:
        return cli.main([str(word) for word in words])
    except SystemExit as left:
        return left.code


@pytest.fixture
def without(monkeypatch):
    """Make a package impossible to import."""

    def hide(package):
        for name in list(sys.modules):
            if name == package or name.startswith(f"{package}."):
                monkeypatch.delitem(sys.modules, name)
        importing = builtins.__import__

        def refuse(name, *rest, **options):
            if name == package or name.startswith(f"{package}."):
                raise ModuleNotFoundError(f"No module named {package!r}", name=package)
            return importing(name, *rest, **options)

        monkeypatch.setattr(builtins, "__import__", refuse)

    return hide


# --- the command line as a whole ---


@pytest.mark.parametrize("start", [["-m", "airnp"], ["-c", "from airnp.cli import main; main()"]])
def test_version_from_a_process_of_its_own(start):
    root = Path(airnp.__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, *start, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == f"airnp {airnp.__version__}\n"


def test_help_lists_every_command(capsys):
    assert main("--help") == 0
    shown = capsys.readouterr().out
    assert all(f"    {name} " in shown for name in cli.COMMANDS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "required: command"),
        (["paint"], "invalid choice: 'paint'"),
        (["demo", "--size", "15"], "argument --size: must be a whole number of at least 16, got '15'"),
        (["demo", "--size", "big"], "must be a whole number of at least 16, got 'big'"),
        (["demo", "--seed", "-1"], "argument --seed: must be a whole number of at least 0, got '-1'"),
        (["demo", "--iterations", "0"], "must be a whole number of at least 1"),
        (["demo", "--missing", "1"], "argument --missing: must be a number between 0 and 1, got '1'"),
        (["demo", "--missing", "half"], "must be a number between 0 and 1, got 'half'"),
        (["demo", "--missing", "nan"], "must be a number between 0 and 1, got 'nan'"),
        (["demo", "--mask", "moths"], "argument --mask: invalid choice: 'moths'"),
        (["demo", "--mask", "patch", "--missing", "0.5"], "--missing goes with --mask random"),
    ],
)
def test_a_wrong_command_line_is_explained(words, message, capsys):
    assert main(*words) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


def test_a_missing_module_that_no_one_foresaw_is_a_bug(monkeypatch):
    def broken(options):
        raise ModuleNotFoundError("No module named 'forgotten'")

    monkeypatch.setitem(cli.COMMANDS, "info", cli.COMMANDS["info"]._replace(run=broken))
    with pytest.raises(ModuleNotFoundError, match="forgotten"):
        main("info")


def test_an_interrupt_leaves_quietly(monkeypatch, capsys):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.COMMANDS, "info", cli.COMMANDS["info"]._replace(run=interrupted))
    assert main("info") == 130
    assert capsys.readouterr().err == ""


# --- airnp demo ---


@pytest.mark.parametrize("mask", demo.MASKS)
def test_demo_writes_a_picture_and_a_report(mask, tmp_path, capsys):
    folder = tmp_path / "new" / "folder"
    assert main("demo", "--output", folder, "--mask", mask, *QUICK) == 0

    assert sorted(path.name for path in folder.iterdir()) == ["before_after.png", "report.md"]
    with Image.open(folder / "before_after.png") as figure:
        side = 24 * 16
        assert figure.mode == "RGB"
        assert figure.width > 4 * side
        assert figure.height > side
    report = (folder / "report.md").read_text(encoding="utf-8")
    shown = capsys.readouterr().out
    for score in ("AIR (airnp)", "row and column interpolation", "mean of the observed entries"):
        assert score in report
        assert score in shown
    assert f"--mask {mask}" in report
    assert f"wrote {folder / 'before_after.png'}" in shown


def test_demo_says_nothing_when_quiet(tmp_path, capsys):
    assert main("demo", "--output", tmp_path, "--quiet", *QUICK) == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["before_after.png", "report.md"])
def test_demo_overwrites_only_when_told(name, tmp_path, capsys, monkeypatch):
    (tmp_path / name).write_text("precious", encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(airnp, "fit", lambda *given, **named: pytest.fail("computed before looking"))
        assert main("demo", "--output", tmp_path, *QUICK) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"airnp demo: {tmp_path / name} is there already; --force overwrites\n"
    assert (tmp_path / name).read_text(encoding="utf-8") == "precious"
    assert [path.name for path in tmp_path.iterdir()] == [name]

    assert main("demo", "--output", tmp_path, "--force", "--quiet", *QUICK) == 0
    assert (tmp_path / name).read_bytes() != b"precious"


def test_demo_into_a_file_is_a_mistake_and_no_traceback(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main("demo", "--output", tmp_path / "file", *QUICK) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("airnp demo: ")
    assert shown.count("\n") == 1


def test_demo_without_pillow_names_the_extra(tmp_path, capsys, without):
    without("PIL")
    assert main("demo", "--output", tmp_path, *QUICK) == 2
    assert capsys.readouterr().err == 'airnp demo: the demo draws with Pillow: pip install "airnp[images]"\n'


def test_demo_knows_the_same_masks_as_the_command_line(tmp_path):
    parser = cli._parser()
    for mask in demo.MASKS:
        assert parser.parse_args(["demo", "--mask", mask]).mask == mask
    with pytest.raises(ValueError, match=r"unknown mask 'moths'; valid names are 'random', 'patch'"):
        demo.run(tmp_path, mask="moths")


def test_demo_defaults_are_those_of_the_command_line():
    options = vars(cli._parser().parse_args(["demo"]))
    assert {name: options[name] for name in ("output", "size", "mask", "seed", "iterations", "force")} == {
        name: default
        for name, default in {**demo.run.__kwdefaults__, "output": demo.run.__defaults__[0]}.items()
        if name not in ("missing", "progress")
    }


def test_demo_is_reproducible_and_never_sees_what_is_hidden(tmp_path, monkeypatch):
    seen = []
    fit = airnp.fit

    def spy(Y, mask, **options):
        seen.append((Y, mask, options))
        return fit(Y, mask, **options)

    monkeypatch.setattr(airnp, "fit", spy)
    first, second = (
        demo.run(tmp_path, size=24, missing=0.4, seed=3, iterations=30, force=True) for _ in range(2)
    )
    assert first.scores == second.scores
    Y, mask, options = seen[0]
    assert np.isnan(Y[~mask]).all()
    assert "truth" not in options
    assert first.missing == 1 - mask.mean()
    np.testing.assert_array_equal(mask, masks.random((24, 24), 0.4, seed=3))


@pytest.mark.parametrize("size", [16, 33, 128])
def test_scene_is_a_picture(size):
    picture = demo.scene(size)
    assert picture.shape == (size, size)
    assert picture.min() >= 0
    assert picture.max() <= 1
    assert picture.std() > 0.15
    np.testing.assert_array_equal(picture, demo.scene(size))


def test_fill_with_mean():
    Y = np.array([[1.0, np.nan], [3.0, 8.0]])
    np.testing.assert_array_equal(demo.fill_with_mean(Y, ~np.isnan(Y)), [[1.0, 4.0], [3.0, 8.0]])


def test_fill_from_neighbours_interpolates_both_ways_and_keeps_what_is_observed():
    Y = np.array([[1.0, 2.0, 9.0], [4.0, 0.0, 6.0], [7.0, 10.0, 9.0]])
    mask = np.ones((3, 3), dtype=bool)
    mask[1, 1] = False
    filled = demo.fill_from_neighbours(Y, mask)
    assert filled[1, 1] == (5.0 + 6.0) / 2
    np.testing.assert_array_equal(filled[mask], Y[mask])


def test_fill_from_neighbours_with_an_empty_row():
    Y = np.array([[2.0, 4.0], [np.nan, np.nan], [6.0, 8.0]])
    filled = demo.fill_from_neighbours(Y, ~np.isnan(Y))
    np.testing.assert_array_equal(filled[1], [(5.0 + 4.0) / 2, (5.0 + 6.0) / 2])


# --- airnp info ---


def info(capsys):
    """Return what ``airnp info`` prints, by name."""
    assert main("info") == 0
    return dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())


def test_info_names_versions(capsys, without):
    without("cupy")
    shown = info(capsys)
    assert shown["airnp"] == airnp.__version__
    assert shown["numpy"] == np.__version__
    assert shown["array-api-compat"][0].isdigit()
    assert shown["cupy"] == 'not installed: pip install "airnp[cuda12x]" or "airnp[cuda13x]"'


def test_info_says_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr(cli, "_PACKAGES", ("a-package-of-that-name-there-is-not",))
    assert info(capsys)["a-package-of-that-name-there-is-not"] == "not installed"


def test_info_lists_devices(capsys, cupy_double):
    shown = info(capsys)["cupy"]
    assert shown.count("sm_80") == cupy_double.settings.devices == 2


def test_info_says_why_there_is_no_device(capsys, cupy_double):
    cupy_double.settings.failure = 35
    assert "no usable device" in info(capsys)["cupy"]
    assert "cudaErrorInsufficientDriver" in info(capsys)["cupy"]


def test_info_says_why_cupy_does_not_load(capsys, monkeypatch):
    importing = builtins.__import__

    def broken(name, *rest, **options):
        if name == "cupy":
            raise ImportError("libcuda.so.1: cannot open shared object file\nand advice")
        return importing(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", broken)
    assert (
        info(capsys)["cupy"] == "installed, but does not load: libcuda.so.1: cannot open shared object file"
    )
