"""The command line as a whole, and the commands demo, info and bench."""

import builtins
import json
import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
from PIL import Image

import airnp
from airnp import masks
from airnp.commands import bench, demo
from airnp.commands import info as info_command
from airnp.commands import main as cli
from airnp.commands.base import WorkError
from tests.commands.commandline import environment, facts, main, mistake, process, without  # noqa: F401

QUICK = ["--size", "24", "--iterations", "30"]


# --- the command line as a whole ---


@pytest.mark.parametrize("start", [["-m", "airnp"], ["-c", "from airnp.commands.main import main; main()"]])
def test_version_from_a_process_of_its_own(start):
    command = [sys.executable, *start, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout == f"airnp {airnp.__version__}\n"


def test_help_brings_no_heavy_library():
    code = """
import contextlib, io, sys
from airnp.commands.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["complete", "--help"])
print(*sys.modules)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "airnp" in loaded
    assert not loaded & {"numba", "scipy", "pandas", "PIL", "tqdm", "threadpoolctl", "cupy", "ssl"}


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_examples_that_parse_and_says_its_exit_codes(name, capsys):
    assert main(name, "--help") == 0
    shown = capsys.readouterr().out
    assert "130  interrupted" in shown
    text = shown.partition("examples:\n")[2].partition("exit codes:")[0]
    examples = [part.replace('"', "").split() for line in text.splitlines() for part in line.split(" && ")]
    commands = [words[words.index("airnp") + 1 :] for words in examples if words and words[-1] != "--help"]
    parsed = [cli._parser().parse_args(words).command for words in commands]
    assert parsed.count(name) >= len(parsed) - 1  # one may show what to do next
    assert name in parsed


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


def test_an_interrupt_is_said_in_a_word(monkeypatch, capsys):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setitem(cli.COMMANDS, "info", cli.COMMANDS["info"]._replace(run=interrupted))
    assert mistake(capsys, "info", code=130) == "interrupted"


def test_work_that_fails_is_no_mistake(monkeypatch, capsys):
    def failing(options):
        raise WorkError("the disk is full")

    monkeypatch.setitem(cli.COMMANDS, "info", cli.COMMANDS["info"]._replace(run=failing))
    assert mistake(capsys, "info", code=1) == "the disk is full"


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_traceback_on_demand(how, monkeypatch, capsys, tmp_path):
    words = ["complete", tmp_path / "none.csv", "-o", tmp_path / "out.csv"]
    monkeypatch.delenv("AIRNP_TRACEBACK", raising=False)
    assert "none.csv" in mistake(capsys, *words)
    monkeypatch.setenv("AIRNP_TRACEBACK", "1" if how == "variable" else "0")
    assert main(*words, *(["--traceback"] if how == "option" else [])) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback (most recent call last):\n")
    assert "\nairnp complete: [Errno 2] No such file" in shown


def test_warnings_are_plain_lines(monkeypatch, capsys):
    def warning(options):
        warnings.warn("a row is empty", UserWarning, stacklevel=1)
        return 0

    for quiet, expected in [([], "airnp demo: warning: a row is empty\n"), (["--quiet"], "")]:
        monkeypatch.setitem(cli.COMMANDS, "demo", cli.COMMANDS["demo"]._replace(run=warning))
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            assert main("demo", *quiet) == 0
        assert capsys.readouterr().err == expected


def test_a_reader_that_goes_away_is_no_drama():
    command = [sys.executable, "-m", "airnp", "info"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as started:
        started.stdout.close()
        errors = started.stderr.read()
    assert (started.returncode, errors) == (1, b"")


# --- airnp demo ---


@pytest.mark.parametrize("mask", ["random", "patch", "text", "scratches"])
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
    for score in ("airnp.fit", "row and column interpolation", "mean of the observed entries"):
        assert score in report
        assert score in shown
    assert f"--mask {mask}" in report
    assert f"wrote {folder / 'before_after.png'}" in shown


def test_demo_says_nothing_when_quiet(tmp_path, capsys):
    assert main("demo", "--output", tmp_path, "--quiet", *QUICK) == 0
    assert capsys.readouterr() == ("", "")


def test_demo_as_json(tmp_path, capsys):
    done = facts(capsys, "demo", "--output", tmp_path, *QUICK)
    assert (done["size"], done["n_iter"], done["figure"]) == (24, 30, str(tmp_path / "before_after.png"))
    assert done["scores"][0]["method"] == "airnp.fit"


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


def test_demo_without_pillow_names_the_extra(tmp_path, capsys, without):  # noqa: F811
    without("PIL")
    assert main("demo", "--output", tmp_path, *QUICK) == 2
    assert capsys.readouterr().err == 'airnp demo: the demo draws with Pillow: pip install "airnp[images]"\n'


def test_demo_is_reproducible_and_never_sees_what_is_hidden(tmp_path, monkeypatch, capsys):
    seen, fit = [], airnp.fit

    def spy(Y, mask, **options):
        seen.append((Y, mask, options))
        return fit(Y, mask, **options)

    monkeypatch.setattr(airnp, "fit", spy)
    words = ["demo", "--output", tmp_path, "--missing", "0.4", "--seed", "3", "--force", *QUICK]
    first, second = (facts(capsys, *words) for _ in range(2))
    assert first["scores"] == second["scores"]
    Y, mask, options = seen[0]
    assert np.isnan(Y[~mask]).all()
    assert "truth" not in options
    assert first["missing"] == 1 - mask.mean()
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


def test_info_names_versions(capsys, without):  # noqa: F811
    without("cupy")
    shown = info(capsys)
    assert shown["airnp"] == airnp.__version__
    assert shown["numpy"] == np.__version__
    assert shown["array-api-compat"][0].isdigit()
    assert shown["cupy"] == 'not installed: pip install "airnp[cuda12x]" or "airnp[cuda13x]"'


def test_info_says_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr(info_command, "PACKAGES", ("a-package-of-that-name-there-is-not",))
    assert info(capsys)["a-package-of-that-name-there-is-not"] == "not installed"


def test_info_knows_blas_and_threads(capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shown = info(capsys)
    assert shown["threads"] == "1"
    assert "unknown" not in shown["blas"]


def test_info_as_json_is_the_same(capsys, without):  # noqa: F811
    without("cupy")
    shown = info(capsys)
    assert main("info", "--json") == 0
    assert json.loads(capsys.readouterr().out) == shown


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


# --- airnp bench ---


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone with two benchmarks and a module that is none, around the current folder."""
    echo = (
        '"""Which words? All of them."""\nif __name__ == "__main__":\n'
        "    import os, sys\n    print(os.getcwd(), *sys.argv[1:], flush=True)\n    sys.exit(7)\n"
    )
    for name, text in {
        "airnp/__init__.py": "",
        "bench/__init__.py": "",
        "bench/echo.py": echo,
        "bench/shared.py": '"""Not for running."""\n',
        "bench/drawn/__init__.py": '"""A package."""\n',
        "bench/drawn/__main__.py": "",
        "deep/down/x": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path / "deep" / "down")
    return tmp_path


def test_bench_lists_what_can_be_run(clone, capsys):
    assert main("bench") == 0
    assert capsys.readouterr().out == "echo   Which words? All of them.\ndrawn  A package.\n"


def test_bench_runs_one_where_the_user_is(clone, capfd):
    assert main("bench", "echo", "--quick", "--help", "file") == 7
    assert capfd.readouterr().out == f"{clone / 'deep' / 'down'} --quick --help file\n"


def test_bench_knows_those_of_this_clone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main("bench") == 0
    assert "\nspeed " in capsys.readouterr().out


def test_bench_that_there_is_not(clone, capsys):
    assert mistake(capsys, "bench", "spede") == "there is no benchmark 'spede'; there are echo, drawn"


def test_bench_without_a_clone(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "site" / "airnp" / "commands" / "bench.py"))
    assert f"there is no clone of airnp around {tmp_path}" in mistake(capsys, "bench", "speed")


def test_bench_waits_for_a_benchmark_that_tidies_up_after_ctrl_c(clone):
    (clone / "bench" / "echo.py").write_text(
        'if __name__ == "__main__":\n    import sys, time\n    try:\n        print("ready", flush=True)\n'
        "        time.sleep(99)\n    except KeyboardInterrupt:\n        time.sleep(1)\n        sys.exit(5)\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "airnp", "bench", "echo"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=environment(), start_new_session=True
    ) as started:
        assert started.stdout.readline() == b"ready\n"
        os.killpg(started.pid, signal.SIGINT)  # a terminal tells all processes in front
        assert started.wait(timeout=120) == 5


def test_bench_ended_by_a_signal(clone):
    (clone / "bench" / "echo.py").write_text(
        'if __name__ == "__main__":\n    import os, signal\n    os.kill(os.getpid(), signal.SIGTERM)\n',
        encoding="utf-8",
    )
    assert process("bench", "echo").returncode == 128 + 15
