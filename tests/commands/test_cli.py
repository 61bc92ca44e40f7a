"""The command line as a whole, and the commands demo, info and bench."""

import builtins
import dataclasses
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import airnp
from airnp import masks
from airnp.commands import bench, demo
from airnp.commands import info as info_command
from airnp.commands import main as cli
from airnp.commands.base import WorkError
from tests.commands.commandline import facts, main, mistake, start

QUICK = "--size 32"


def replace_run(monkeypatch, command, run):
    module = importlib.import_module(f"airnp.commands.{command}")
    monkeypatch.setattr(module, "COMMAND", module.COMMAND._replace(run=run))


def failing(error):
    """Return a function that raises an error, whatever it is called with."""

    def fail(*arguments, **options):
        raise error

    return fail


# --- the command line as a whole ---


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_standard_output_is_no_mistake_of_the_user(unbuffered):
    with open("/dev/full", "w") as full:
        code = "import sys; from airnp.commands.main import main; sys.exit(main(['info']))"
        path = str(Path(airnp.__file__).resolve().parents[1])
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": unbuffered}
        command = [sys.executable, "-c", code]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False
        )
    assert (done.returncode, done.stderr) == (1, "airnp info: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("words", [["-m", "airnp"], ["-c", "from airnp.commands.main import main; main()"]])
def test_version_in_a_process_of_its_own(words):
    with start(*words, "--version") as started:
        assert started.stdout.read() == f"airnp {airnp.__version__}\n"
    assert started.returncode == 0


def test_help_brings_no_heavy_library():
    code = """
import contextlib, io, sys
from airnp.commands.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["complete", "--help"])
print(*sys.modules)
"""
    with start("-c", code) as started:
        loaded = {name.split(".")[0] for name in started.stdout.read().split()}
    assert "airnp" in loaded
    assert not loaded & {"numba", "scipy", "pandas", "PIL", "tqdm", "threadpoolctl", "cupy", "ssl"}


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_examples_that_parse_and_lists_its_exit_codes(name, capsys):
    assert main(f"{name} --help") == 0
    shown = capsys.readouterr().out
    assert "130  interrupted" in shown
    text = shown.partition("examples:\n")[2].partition("exit codes:")[0]
    examples = [part.replace('"', "").split() for line in text.splitlines() for part in line.split(" && ")]
    commands = [words[words.index("airnp") + 1 :] for words in examples if words and words[-1] != "--help"]
    parsed = [cli._parser(words).parse_args(words).command for words in commands]
    assert parsed.count(name) >= len(parsed) - 1  # one may show what to do next
    assert name in parsed


def test_help_lists_every_command(capsys):
    assert main("--help") == 0
    shown = capsys.readouterr().out
    assert all(f"    {name} " in shown for name in cli.COMMANDS)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "required: command"),
        ("paint", "invalid choice: 'paint'"),
        ("demo --size 15", "argument --size: must be a whole number of at least 16, got '15'"),
        ("demo --size big", "must be a whole number of at least 16, got 'big'"),
        ("demo --seed -1", "argument --seed: must be a whole number of at least 0, got '-1'"),
        ("demo --iterations 0", "must be a whole number of at least 1"),
        ("demo --iterations 9", "--iterations goes with --air"),
        ("demo --missing 1", "argument --missing: must be a number between 0 and 1, got '1'"),
        ("demo --missing half", "must be a number between 0 and 1, got 'half'"),
        ("demo --missing nan", "must be a number between 0 and 1, got 'nan'"),
        ("demo --mask moths", "argument --mask: invalid choice: 'moths'"),
        ("demo --mask patch --missing 0.5", "--missing goes with --mask random"),
        ("complete a.csv", "required: -o/--output"),
        ("complete a.csv -o b.csv --max-iter 0", "--max-iter: must be a whole number of at least 1, got '0'"),
        ("complete a.csv -o b.csv --bounds 1 x", "--bounds: must be a number, got 'x'"),
        ("complete a.csv -o b.csv --time-limit 0", "--time-limit: must be a number above 0, got '0'"),
        ("complete a.csv -o b.csv --delimiter ab", "--delimiter: must be one character, tab or space"),
        ("complete a.csv -o b.csv --device gpu", "--device: must be cpu, cuda or cuda:NUMBER, got 'gpu'"),
        ("complete a.csv -o b.csv --regularizers x", "argument --regularizers: invalid choice: 'x'"),
        ("inpaint a.png -o b.png", "one of the arguments --mask --missing is required"),
        ("inpaint a.png -o b.png --mask a.png --missing red", "not allowed with argument --mask"),
        (
            "inpaint a.png -o b.png --missing red --tolerance -1",
            "--tolerance: must be a whole number of at least 0",
        ),
    ],
)
def test_a_wrong_command_line_is_explained(line, message, capsys):
    Path("a.csv").write_text("1,2\n,3\n", encoding="utf-8")
    assert main(line) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert shown.out == ""


def test_a_missing_module_of_airnp_is_a_bug(monkeypatch):
    replace_run(monkeypatch, "info", failing(ModuleNotFoundError("No module named 'forgotten'")))
    with pytest.raises(ModuleNotFoundError, match="forgotten"):
        main("info")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [(KeyboardInterrupt(), 130, "interrupted"), (WorkError("the disk is full"), 1, "the disk is full")],
)
def test_interrupts_and_failures_have_exit_codes_of_their_own(error, code, message, monkeypatch, capsys):
    replace_run(monkeypatch, "info", failing(error))
    assert mistake(capsys, "info", code=code) == message


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_traceback_on_demand(how, monkeypatch, capsys):
    line = "complete none.csv -o out.csv"
    monkeypatch.delenv("AIRNP_TRACEBACK", raising=False)
    assert "none.csv" in mistake(capsys, line)
    monkeypatch.setenv("AIRNP_TRACEBACK", "1" if how == "variable" else "0")
    assert main(line + (" --traceback" if how == "option" else "")) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("Traceback (most recent call last):\n")
    assert "\nairnp complete: [Errno 2] No such file" in shown


@pytest.mark.parametrize(
    ("line", "expected"), [("demo", "airnp demo: warning: a row is empty\n"), ("demo --quiet", "")]
)
def test_warnings_are_plain_lines(line, expected, monkeypatch, capsys):
    def warn(options):
        warnings.warn("a row is empty", UserWarning, stacklevel=1)
        return 0

    replace_run(monkeypatch, "demo", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(line) == 0
    assert capsys.readouterr().err == expected


def test_a_reader_that_closes_the_pipe_causes_no_traceback():
    with start("-m", "airnp", "info", stderr=subprocess.PIPE) as started:
        started.stdout.close()
        errors = started.stderr.read()
    assert (started.returncode, errors) == (1, "")


# --- airnp demo ---


@pytest.mark.parametrize("mask", ["damage", "random", "patch", "text --picture scene", "scratches"])
def test_demo_writes_a_picture_and_a_report(mask, capsys):
    folder = Path("new", "folder")
    assert main(f"demo --output {folder} --mask {mask} {QUICK}") == 0
    assert sorted(path.name for path in folder.iterdir()) == ["before_after.png", "report.md"]
    with Image.open(folder / "before_after.png") as figure:
        side = 32 * 12
        assert figure.mode == "RGB"
        assert figure.width > 5 * side
        assert figure.height > side
    report = (folder / "report.md").read_text(encoding="utf-8")
    shown = capsys.readouterr().out
    for score in ("airnp.inpaint", "biharmonic", "linear interpolation"):
        assert score in report
        assert score in shown
    assert "airnp.fit" not in shown
    assert "method auto: patch " in shown
    assert f"--mask {mask.split()[0]}" in report
    assert f"wrote {folder / 'before_after.png'}" in shown


def test_demo_is_silent_with_quiet(capsys):
    assert main(f"demo --quiet {QUICK}") == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["before_after.png", "report.md"])
def test_demo_overwrites_only_with_force(name, folder, capsys, monkeypatch):
    Path(name).write_text("precious", encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr(airnp, "inpaint", lambda *given, **named: pytest.fail("work before the check"))
        assert mistake(capsys, f"demo --output . {QUICK}") == f"{name} is there already; --force overwrites"
    assert Path(name).read_text(encoding="utf-8") == "precious"
    assert [path.name for path in folder.iterdir()] == [name]
    assert main(f"demo --output . --force --quiet {QUICK}") == 0
    assert Path(name).read_bytes() != b"precious"


def test_demo_into_a_file_is_a_mistake(capsys):
    Path("file").touch()
    assert "file" in mistake(capsys, f"demo --output file {QUICK}")


def test_demo_without_pillow_names_the_extra(capsys, without):
    without("PIL")
    assert mistake(capsys, "demo") == 'the demo draws with Pillow: pip install "airnp[images]"'


def test_demo_without_scikit_image_names_the_extra_and_the_way_around(capsys, without):
    without("skimage")
    message = mistake(capsys, "demo")
    assert message.endswith('pip install "airnp[images]", or use --picture scene')


def test_demo_is_reproducible_and_hides_what_is_missing(monkeypatch, capsys):
    seen, inpaint = [], airnp.inpaint

    def spy(Y, mask, **options):
        seen.append((Y, mask))
        return inpaint(Y, mask, **options)

    monkeypatch.setattr(airnp, "inpaint", spy)
    line = f"demo --output . --mask random --missing 0.4 --seed 3 --force {QUICK}"
    first, second = (facts(capsys, line) for _ in range(2))
    assert (first["size"], first["method"], first["figure"]) == (32, "auto", "before_after.png")
    assert first["scores"][0]["method"] == "airnp.inpaint"
    assert first["scores"] == second["scores"]
    # The truth is known here: the error to expect is of its order.
    assert 0.3 < first["expected_nmae"] / first["scores"][0]["nmae"] < 3
    assert first["expected_error"] < first["expected_nmae"]
    assert first["missing"] == 1 - seen[0][1].mean()
    for Y, mask in seen:
        assert np.isnan(Y[~mask]).all()
        np.testing.assert_array_equal(mask, masks.random((32, 32), 0.4, seed=3))


def test_demo_shows_air_alone_on_request(capsys):
    found = facts(capsys, f"demo {QUICK} --air --iterations 30")
    assert [score["method"] for score in found["scores"]] == [
        "airnp.inpaint",
        "biharmonic",
        "linear interpolation",
        "AIR alone (airnp.fit)",
    ]
    assert found["command"].endswith("--air --iterations 30")


def test_demo_is_interrupted_without_a_trace(monkeypatch, capsys):
    inpaint = airnp.inpaint
    interrupted = {"stop_reason": "interrupted"}
    monkeypatch.setattr(
        airnp, "inpaint", lambda *g, **o: dataclasses.replace(inpaint(*g, **o), **interrupted)
    )
    assert mistake(capsys, f"demo {QUICK}", code=130) == "interrupted"
    assert list(Path("airnp-demo").iterdir()) == []


@pytest.mark.parametrize("size", [16, 33, 128])
def test_scene_is_a_picture(size):
    picture = demo.scene(size)
    assert picture.shape == (size, size)
    assert picture.min() >= 0
    assert picture.max() <= 1
    assert picture.std() > 0.15
    np.testing.assert_array_equal(picture, demo.scene(size))


# --- airnp info ---


def info(capsys):
    """Return what ``airnp info`` prints, by name."""
    assert main("info") == 0
    return dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())


def test_info_shows_versions_blas_and_threads_also_as_json(capsys, without, monkeypatch):
    without("cupy")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(info_command, "PACKAGES", (*info_command.PACKAGES, "no-such-package"))
    shown = info(capsys)
    assert shown["airnp"] == airnp.__version__
    assert shown["numpy"] == np.__version__
    assert shown["array-api-compat"][0].isdigit()
    assert shown["no-such-package"] == "not installed"
    assert shown["cupy"] == 'not installed: pip install "airnp[cuda12x]" or "airnp[cuda13x]"'
    assert shown["threads"] == "1"
    assert "unknown" not in shown["blas"]
    assert main("info --json") == 0
    assert json.loads(capsys.readouterr().out) == shown


def test_info_lists_devices_or_the_reason_why_there_are_none(capsys, cupy_double):
    assert info(capsys)["cupy"].count("sm_80") == cupy_double.settings.devices == 2
    cupy_double.settings.failure = 35
    shown = info(capsys)["cupy"]
    assert "no usable device" in shown
    assert "cudaErrorInsufficientDriver" in shown


def test_info_says_why_cupy_does_not_load(capsys, monkeypatch):
    importing = builtins.__import__

    def broken(name, *rest, **options):
        if name == "cupy":
            raise ImportError("libcuda.so.1: cannot open shared object file\nand advice")
        return importing(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", broken)
    expected = "installed, but does not load: libcuda.so.1: cannot open shared object file"
    assert info(capsys)["cupy"] == expected


# --- airnp bench ---


@pytest.fixture
def clone(folder, monkeypatch):
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
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder / "deep" / "down")
    return folder


def test_bench_lists_the_benchmarks(clone, capsys):
    assert main("bench") == 0
    assert capsys.readouterr().out == "echo   Which words? All of them.\ndrawn  A package.\n"


def test_bench_runs_one_in_the_current_folder(clone, capfd):
    assert main("bench echo --quick --help file") == 7
    assert capfd.readouterr().out == f"{clone / 'deep' / 'down'} --quick --help file\n"


def test_bench_runs_the_short_form_of_all_that_have_one(clone, capfd):
    (clone / "bench" / "drawn" / "__main__.py").write_text(
        'import sys\nif sys.argv[1:] == ["--quick"]:\n    print("drew", flush=True)\n', encoding="utf-8"
    )
    assert main("bench --quick") == 0
    assert capfd.readouterr().out == "\n=== drawn --quick: A package.\ndrew\n"
    with (clone / "bench" / "echo.py").open("a", encoding="utf-8") as echo:
        echo.write('# it knows "--quick"\n')
    assert main("bench --quick") == 7
    shown = capfd.readouterr().out
    assert "=== echo ended with exit code 7\n" in shown
    assert shown.endswith("drew\n")


def test_python_m_bench_is_airnp_bench():
    root = Path(airnp.__file__).resolve().parents[1]
    with start("-m", "bench", cwd=root) as started:
        listed = started.stdout.read()
    assert "\nspeed " in listed
    assert "__main__" not in listed


def test_bench_finds_the_clone_that_airnp_is_imported_from(capsys):
    assert main("bench") == 0
    assert "\nspeed " in capsys.readouterr().out


def test_bench_with_an_unknown_name_or_without_a_clone(clone, tmp_path_factory, monkeypatch, capsys):
    assert "runs this one" in mistake(capsys, "bench --quick echo")
    assert mistake(capsys, "bench spede") == "there is no benchmark 'spede'; there are echo, drawn"
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(bench, "__file__", str(elsewhere / "site" / "airnp" / "commands" / "bench.py"))
    assert f"there is no clone of airnp around {elsewhere}" in mistake(capsys, "bench speed")


def test_bench_waits_for_a_benchmark_that_tidies_up_after_ctrl_c(clone):
    (clone / "bench" / "echo.py").write_text(
        'if __name__ == "__main__":\n    import signal, sys\n    try:\n        print("ready", flush=True)\n'
        "        signal.pause()\n    except KeyboardInterrupt:\n        input()\n        sys.exit(5)\n",
        encoding="utf-8",
    )
    words = ["-m", "airnp", "bench", "echo"]
    with start(*words, stdin=subprocess.PIPE, start_new_session=True) as started:
        assert started.stdout.readline() == "ready\n"
        os.killpg(started.pid, signal.SIGINT)  # as a terminal does
        started.communicate("tidy up now\n", timeout=600)
    assert started.returncode == 5


def test_bench_ended_by_a_signal(clone):
    (clone / "bench" / "echo.py").write_text(
        'if __name__ == "__main__":\n    import os, signal\n    os.kill(os.getpid(), signal.SIGTERM)\n',
        encoding="utf-8",
    )
    assert main("bench echo") == 128 + 15


def test_a_closed_standard_output_is_no_crash():
    command = f"exec {sys.executable} -m airnp info >&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_control_characters_in_labels_make_valid_graphml():
    from xml.etree import ElementTree

    from scipy.sparse import csr_array

    from airnp.commands.graph import _write_graphml
    from airnp.results.graphs import Graph

    file = io.BytesIO()
    _write_graphml(file, Graph(csr_array(np.ones((2, 2)))), ["a\x00\x0b\x1b<b\r", "\ud800 c"])
    root = ElementTree.fromstring(file.getvalue())
    assert [data.text for data in root.iter() if data.get("key") == "label"] == ["a���<b\r", "� c"]
