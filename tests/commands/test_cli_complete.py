"""``airnp complete`` and ``airnp graph``: real files, through the command line."""

import csv
import errno
import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import scipy.io
import scipy.sparse

import airnp
from airnp import tables
from tests.commands.commandline import environment, facts, main, mistake, process, without  # noqa: F401

NAN = np.nan
QUICK = ["--max-iter", "20", "--quiet"]
RATINGS = "user,a,b,c\nann,1,2,\nbob,2,,5\ncyd,3,4.5,5\ndan,,1,4\n"


@pytest.fixture
def ratings(tmp_path):
    path = tmp_path / "ratings.csv"
    path.write_text(RATINGS, encoding="utf-8")
    return path


def cells(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


# --- formats ---


@pytest.mark.parametrize("suffix", tables.SUFFIXES)
def test_every_format_to_every_other(suffix, ratings, tmp_path):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="parquet files need pyarrow")
    there, back = tmp_path / f"there{suffix}", tmp_path / "back.csv"
    assert main("complete", ratings, "-o", there, *QUICK) == 0
    given, filled = tables.read(ratings), tables.read(there)
    assert filled.observed.all()
    np.testing.assert_array_equal(filled.values[given.observed], given.values[given.observed])

    assert main("complete", there, "-o", back, "--fitted", *QUICK) == 0
    fitted = tables.read(back)
    assert fitted.values.shape == (4, 3)
    assert not np.array_equal(fitted.values, filled.values)
    assert (fitted.rows is not None) == (".mtx" not in suffix and suffix != ".npy")


def test_the_answer_is_that_of_fit(ratings, tmp_path):
    out = tmp_path / "out.csv"
    words = ["--max-iter", "50", "--seed", "3", "--depth", "2", "--rank", "2", "--regularizers", "dmf"]
    assert main("complete", ratings, "-o", out, "--fitted", "--quiet", *words) == 0
    given = tables.read(ratings)
    expected = airnp.fit(given.values, max_iter=50, seed=3, depth=2, rank=2, regularizers=[]).X
    np.testing.assert_array_equal(tables.read(out).values, expected)


def test_labels_and_observed_cells_are_kept(ratings, tmp_path):
    assert main("complete", ratings, "-o", tmp_path / "out.csv", *QUICK) == 0
    given, filled = cells(ratings), cells(tmp_path / "out.csv")
    assert filled[0] == given[0]
    for before, after in zip(given[1:], filled[1:], strict=True):
        assert [new for old, new in zip(before, after, strict=True) if old] == [old for old in before if old]
        assert all(after)


def test_bounds_and_rounding(ratings, tmp_path):
    out = tmp_path / "out.csv"
    assert main("complete", ratings, "-o", out, "--bounds", "1.5", "4.5", *QUICK) == 2
    words = ["--round", "--fitted", "--bounds", "0.5", "5.5"]
    assert main("complete", ratings, "-o", out, *words, *QUICK) == 0
    values = tables.read(out).values
    whole = np.array([True, False, True])  # the second column has a 4.5
    np.testing.assert_array_equal(values[:, whole], np.rint(values[:, whole]))
    assert not np.array_equal(values[:, 1], np.rint(values[:, 1]))
    assert values.min() >= 0.5
    assert values[:, whole].min() >= 1


def test_auto_reports_the_error_to_expect(tmp_path, capsys):
    ratings, out = tmp_path / "ratings.npy", tmp_path / "out.csv"
    values = np.random.default_rng(0).random((12, 8))
    np.save(ratings, np.where(values < 0.2, NAN, values))
    assert main("complete", ratings, "-o", out, "--auto", "--json", "--max-iter", "30") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["expected_nmae"] > 0
    assert facts["standard_error"] > 0
    assert not np.isnan(tables.read(out).values).any()
    words = ["--auto", "--force", "--max-iter", "30"]
    assert main("complete", ratings, "-o", out, *words) == 0
    assert "expected NMAE of the gaps 0." in capsys.readouterr().out
    for also in (["--regularizers", "dmf"], ["--time-limit", "3"]):
        assert main("complete", ratings, "-o", out, *words, *also) == 2
        assert "--auto" in capsys.readouterr().err


def test_clipping_changes_what_is_filled_only(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[0.0, 1.0, NAN], [NAN, 0.0, 1.0], [1.0, NAN, 0.0]]))
    for name, words in {"free": [], "bound": ["--bounds", "0", "1"]}.items():
        assert main("complete", tmp_path / "a.npy", "-o", tmp_path / f"{name}.npy", *words, *QUICK) == 0
    free, bound = (np.load(tmp_path / f"{name}.npy") for name in ("free", "bound"))
    np.testing.assert_array_equal(bound, np.clip(free, 0, 1))


def test_integers_come_back_as_integers(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1, 2, -1], [3, -1, 5]], dtype=np.int16))
    words = ["--missing", "-1", "--round", "--bounds", "1", "5"]
    assert main("complete", tmp_path / "a.npy", "-o", tmp_path / "b.npy", *words, *QUICK) == 0
    filled = np.load(tmp_path / "b.npy")
    assert filled.dtype == np.int16
    assert filled[0, 0] == 1
    assert filled.min() >= 1


def test_a_mask_hides_and_a_truth_measures(tmp_path, capsys):
    truth = np.add.outer(np.arange(6.0), np.arange(5.0))
    mask = np.ones(truth.shape, dtype=bool)
    mask[2, 3] = mask[4, 1] = False
    np.save(tmp_path / "truth.npy", truth)
    np.save(tmp_path / "mask.npy", mask)
    words = ["--mask", tmp_path / "mask.npy", "--truth", tmp_path / "truth.npy", "--max-iter", "20"]
    done = facts(capsys, "complete", tmp_path / "truth.npy", "-o", tmp_path / "out.npy", *words)
    filled = np.load(tmp_path / "out.npy")
    assert done["missing"] == 2
    assert done["nmae"] == pytest.approx(airnp.metrics.nmae(filled, truth, mask))
    np.testing.assert_array_equal(filled[mask], truth[mask])
    assert filled[2, 3] != truth[2, 3]


def test_sparse_entries_are_the_observed_ones(tmp_path):
    stored = scipy.sparse.coo_array(([5.0, 0.0, 2.0], ([0, 1, 2], [1, 0, 2])), shape=(3, 3))
    scipy.io.mmwrite(tmp_path / "a.mtx", stored)
    assert main("complete", tmp_path / "a.mtx", "-o", tmp_path / "b.npy", *QUICK) == 0
    filled = np.load(tmp_path / "b.npy")
    assert (filled[0, 1], filled[1, 0], filled[2, 2]) == (5, 0, 2)
    assert np.isfinite(filled).all()


# --- what is said ---


def test_json_says_what_was_done(ratings, tmp_path, capsys):
    out = tmp_path / "out.csv"
    done = facts(capsys, "complete", ratings, "-o", out, "--max-iter", "20", "--seed", "5")
    assert 0 < done.pop("seconds") < 60
    assert done == {
        "command": "complete",
        "input": str(ratings),
        "output": str(out),
        "result": None,
        "checkpoint": None,
        "interval": None,
        "form": "dense",
        "rows": 4,
        "columns": 3,
        "missing": 3,
        "header": True,
        "index": "user",
        "iterations": 20,
        "stop_reason": "max_iter (20) reached",
        "seed": 5,
        "nmae": None,
    }


def test_text_says_what_was_done(ratings, tmp_path, capsys):
    assert main("complete", ratings, "-o", tmp_path / "out.csv", "--max-iter", "20") == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == f"{ratings}: 4 rows, 3 columns (header, row labels from 'user'), 25.0% missing"
    assert re.fullmatch(r"20 iterations in \d+\.\d s: max_iter \(20\) reached", second)
    assert third == f"wrote {tmp_path / 'out.csv'}"


def test_a_pipe_sees_no_progress_bar_unless_asked_for(ratings, tmp_path):
    words = ["complete", ratings, "-o", tmp_path / "out.csv", "--force", "--max-iter", "20"]
    assert process(*words).stderr == ""
    done = process(*words, "--progress")
    assert "20/20" in done.stderr
    assert "loss=" in done.stderr
    quiet = process(*words, "--progress", "--quiet")
    assert (quiet.stdout, quiet.stderr) == ("", "")


def test_a_time_limit_ends_a_fit_and_keeps_its_result(tmp_path, capsys):
    values = np.random.default_rng(0).random((30, 30))
    values[0, 0] = NAN
    np.save(tmp_path / "a.npy", values)
    words = ["--time-limit", "0.001", "--regularizers", "air"]
    done = facts(capsys, "complete", tmp_path / "a.npy", "-o", tmp_path / "b.npy", *words)
    assert done["stop_reason"] == "time limit of 0.001 s reached"
    assert done["iterations"] == 1
    assert np.isfinite(np.load(tmp_path / "b.npy")).all()


@pytest.mark.filterwarnings("default::airnp.EmptyLineWarning")
def test_an_empty_row_is_a_warning_in_one_line(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("1,2\n,\n3,5\n", encoding="utf-8")
    assert main("complete", tmp_path / "a.csv", "-o", tmp_path / "b.csv", "--max-iter", "5") == 0
    shown = capsys.readouterr().err
    assert shown.startswith("airnp complete: warning: 1 rows and 0 columns have no observed entry")
    assert shown.count("\n") == 1


# --- mistakes ---


def test_nothing_is_overwritten_unless_told(ratings, tmp_path, capsys, monkeypatch):
    out, learned = tmp_path / "out.csv", tmp_path / "learned.npz"
    words = ["complete", ratings, "-o", out, "--result", learned]
    for path in (out, learned):
        path.write_text("precious", encoding="utf-8")
        with monkeypatch.context() as patch:
            patch.setattr(airnp, "fit", lambda *given, **named: pytest.fail("computed before looking"))
            assert mistake(capsys, *words) == f"{path} is there already; --force overwrites"
        assert path.read_text(encoding="utf-8") == "precious"
        path.unlink()
    out.write_text("precious", encoding="utf-8")
    assert main(*words, "--force", *QUICK) == 0
    assert cells(out)[0] == ["user", "a", "b", "c"]


def test_what_is_no_file_is_not_replaced(ratings, tmp_path, capsys, monkeypatch):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    assert mistake(capsys, "complete", ratings, "-o", pipe, "--force") == f"{pipe} is no ordinary file"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    shown = mistake(capsys, "complete", ratings, "-o", tmp_path / "b.csv")
    assert shown == f"{tmp_path / 'b.csv'}: no permission to write in {tmp_path}"


def test_a_link_is_followed(ratings, tmp_path):
    (tmp_path / "real.csv").touch()
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    assert main("complete", ratings, "-o", tmp_path / "link.csv", "--force", *QUICK) == 0
    assert (tmp_path / "link.csv").is_symlink()
    assert cells(tmp_path / "real.csv")[0] == ["user", "a", "b", "c"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none.csv", "-o", "b.csv"], "[Errno 2] No such file or directory: 'none.csv'"),
        (["a.csv", "-o", "b.xls"], "b.xls: expected a name that ends in one of .csv, .csv.gz,"),
        (["a.xls", "-o", "b.csv"], "a.xls: expected a name that ends in one of"),
        (["a.csv", "-o", "no/b.csv"], "no/b.csv: the folder"),
        (["a.csv", "-o", "folder.csv"], "folder.csv is a folder"),
        (
            ["a.csv", "-o", "b.csv", "--result", "c.csv"],
            "--result: expected a name that ends in .npz, got c.csv",
        ),
        (["a.csv", "-o", "b.npz", "--result", "b.npz"], "--result and --output are the same file"),
        (
            ["a.csv", "-o", "b.csv", "--interval", "0.9", "--checkpoint", "c.csv"],
            "--checkpoint: expected a name that ends in .npz, got c.csv",
        ),
        (
            ["a.csv", "-o", "b.csv", "--result", "c.npz", "--checkpoint", "./c.npz"],
            "--checkpoint and --result",
        ),
        (["a.csv", "-o", "b.csv", "--checkpoint-every", "3"], "--checkpoint-every goes with --checkpoint"),
        (["a.csv", "-o", "b.csv", "--checkpoint", "c.npz", "--auto"], "--checkpoint: several fits cannot"),
        (["-o", "b.csv"], "the following arguments are required: table, or --resume"),
        (["a.csv", "-o", "b.csv", "--form", "sparse"], "--form sparse: a.csv holds no sparse matrix"),
        (["--resume", "none.npz", "-o", "b.csv"], "[Errno 2] No such file or directory: 'none.npz'"),
        (["a.csv", "--resume", "c.npz", "-o", "b.csv"], "a table cannot be given with --resume: c.npz says"),
        (["--resume", "c.npz", "-o", "b.csv", "--seed", "0"], "--seed cannot be given with --resume"),
        (["--resume", "c.npz", "-o", "b.csv", "--missing", "-1"], "--missing cannot be given with --resume"),
        (["a.csv", "-o", "b.csv", "--bounds", "5", "1"], "--bounds: expected LOW <= HIGH, got 5 1"),
        (
            ["a.csv", "-o", "b.csv", "--bounds", "1", "4"],
            "a.csv: 3 numbers are outside --bounds 1 4, the first is 5 in row 'bob', column 'c'",
        ),
        (["whole.csv", "-o", "b.csv", "--bounds", "1", "1", "--round"], "whole.csv: 1 numbers are outside"),
        (["full.csv", "-o", "b.csv"], "full.csv: no number is missing; --missing says how"),
        (["empty.csv", "-o", "b.csv"], "empty.csv: no entry is observed"),
        (
            ["infinite.csv", "-o", "b.csv"],
            "infinite.csv: 1 observed entries are NaN or infinite, first at (0, 1)",
        ),
        (["a.csv", "-o", "b.csv", "--rank", "9", "--depth", "1"], "--rank: "),
        (
            ["a.csv", "-o", "b.csv", "--mask", "full.csv"],
            "full.csv: expected 4 rows and 3 columns as in the table",
        ),
        (
            ["full.csv", "-o", "b.csv", "--mask", "full.csv"],
            "full.csv: expected 1 (observed) and 0 (missing)",
        ),
        (["a.csv", "-o", "b.csv", "--truth", "a.csv"], "a.csv: expected numbers wherever the table has gaps"),
        (["a.csv", "-o", "b.csv", "--index-col", "z"], "a.csv: --index-col: there is no column 'z'"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(words, message, ratings, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ratings.rename("a.csv")
    (tmp_path / "folder.csv").mkdir()
    for name, text in {
        "full.csv": "1,2\n3,4\n",
        "whole.csv": "1,2\n,1\n",
        "empty.csv": "a,b\n,\n",
        "infinite.csv": "1,inf\n,1\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    assert mistake(capsys, "complete", *words).startswith(message)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.csv"], "required: -o/--output"),
        (
            ["a.csv", "-o", "b.csv", "--max-iter", "0"],
            "--max-iter: must be a whole number of at least 1, got '0'",
        ),
        (["a.csv", "-o", "b.csv", "--bounds", "1", "x"], "--bounds: must be a number, got 'x'"),
        (["a.csv", "-o", "b.csv", "--time-limit", "0"], "--time-limit: must be a number above 0, got '0'"),
        (["a.csv", "-o", "b.csv", "--delimiter", "ab"], "--delimiter: must be one character, tab or space"),
        (
            ["a.csv", "-o", "b.csv", "--device", "gpu"],
            "--device: must be cpu, cuda or cuda:NUMBER, got 'gpu'",
        ),
        (["a.csv", "-o", "b.csv", "--regularizers", "x"], "argument --regularizers: invalid choice: 'x'"),
    ],
)
def test_a_wrong_word_is_explained(words, message, capsys):
    assert main("complete", *words) == 2
    assert message in capsys.readouterr().err


def test_words_for_how_to_read(tmp_path, capsys):
    (tmp_path / "a.txt.csv").write_text("1\t-9\tx\n2\t3\ty\n4\t5\t?\n", encoding="utf-8")
    words = ["--no-header", "--delimiter", "tab", "--index-col", "3", "--missing", "-9", "--max-iter", "5"]
    done = facts(capsys, "complete", tmp_path / "a.txt.csv", "-o", tmp_path / "b.csv", *words)
    assert (done["rows"], done["columns"], done["missing"], done["header"]) == (3, 2, 1, False)
    assert (tmp_path / "b.csv").read_text(encoding="utf-8").splitlines()[2] == "?\t4\t5"


def test_a_device_that_is_not_there(ratings, tmp_path, capsys, cupy_double):
    cupy_double.settings.failure = 35
    shown = mistake(capsys, "complete", ratings, "-o", tmp_path / "b.csv", "--device", "cuda")
    assert shown.startswith("--device cuda: CuPy ")
    assert "cudaErrorInsufficientDriver" in shown
    cupy_double.settings.failure = None
    shown = mistake(capsys, "complete", ratings, "-o", tmp_path / "b.csv", "--device", "cuda:7")
    assert shown == "--device cuda:7: expected one of 0 to 1, got 7"


@pytest.mark.parametrize(("device", "number"), [("cuda", 0), ("cuda:1", 1)])
def test_a_device_reaches_the_fit(device, number, ratings, tmp_path, monkeypatch, cupy_double):
    seen, fit = [], airnp.fit

    def spy(Y, mask, *, xp, device, **options):
        seen.append((xp.__name__, device))
        return fit(Y, mask, **options)

    monkeypatch.setattr(airnp, "fit", spy)
    assert main("complete", ratings, "-o", tmp_path / "b.csv", "--device", device, *QUICK) == 0
    assert seen == [("cupy", number)]


def test_a_device_without_its_package(ratings, tmp_path, capsys, without):  # noqa: F811
    without("cupy")
    shown = mistake(capsys, "complete", ratings, "-o", tmp_path / "b.csv", "--device", "cuda")
    assert shown == '--device cuda needs CuPy: pip install "airnp[cuda12x]" or "airnp[cuda13x]"'


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_parquet_without_its_packages(package, ratings, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    shown = mistake(capsys, "complete", ratings, "-o", tmp_path / "b.parquet")
    assert shown == 'parquet files need pandas and pyarrow: pip install "airnp[tables]"'


def test_labels_of_a_result_without_pandas(ratings, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    words = ["complete", ratings, "-o", tmp_path / "b.csv", "--result", tmp_path / "b.npz"]
    assert mistake(capsys, *words) == 'labels are saved through pandas: pip install "airnp[tables]"'


# --- when the work fails ---


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError("3 GiB"), "not enough memory: 3 GiB"),
        (airnp.DivergenceError("the loss became infinite", None), "the loss became infinite"),
    ],
)
def test_a_fit_that_fails(error, message, ratings, tmp_path, capsys, monkeypatch):
    def failing(*given, **named):
        raise error

    monkeypatch.setattr(airnp, "fit", failing)
    assert mistake(capsys, "complete", ratings, "-o", tmp_path / "b.csv", code=1) == message
    assert not (tmp_path / "b.csv").exists()


@pytest.mark.parametrize("bug", [ValueError("shapes do not fit: (3,) and (4,)"), RuntimeError("no idea")])
def test_a_bug_is_not_taken_for_a_mistake(bug, ratings, tmp_path, monkeypatch):
    def broken(*given, **named):
        raise bug

    monkeypatch.setattr(airnp, "fit", broken)
    with pytest.raises(type(bug), match=re.escape(str(bug))):
        main("complete", ratings, "-o", tmp_path / "b.csv")


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt(), RuntimeError("bug")]
)
def test_half_an_output_is_never_left(error, ratings, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out.csv"
    out.write_text("before", encoding="utf-8")
    write, calls = tables.write, []

    def interrupted(file, kind, table):
        write(file, kind, table)
        calls.append(file)
        if len(calls) == 2:  # the first was the rehearsal
            raise error

    monkeypatch.setattr(tables, "write", interrupted)
    words = ["complete", ratings, "-o", out, "--force", *QUICK]
    if isinstance(error, RuntimeError):
        with pytest.raises(RuntimeError, match="bug"):
            main(*words)
    elif isinstance(error, OSError):
        assert mistake(capsys, *words, code=1) == f"could not write {out}: [Errno 28] No space left"
    else:
        assert mistake(capsys, *words, code=130) == "interrupted"
    assert out.read_text(encoding="utf-8") == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "ratings.csv"]


def test_a_result_that_cannot_be_saved(ratings, tmp_path, capsys, monkeypatch):
    def full(result, path):
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr(airnp.FitResult, "save", full)
    words = ["complete", ratings, "-o", tmp_path / "b.csv", "--result", tmp_path / "b.npz", *QUICK]
    assert (
        mistake(capsys, *words, code=1) == f"could not write {tmp_path / 'b.npz'}: [Errno 28] No space left"
    )


def interrupted_process(words, ready):
    """Start a command, send Ctrl-C once its progress bar says it is ready, and return how it ended."""
    command = [sys.executable, "-m", "airnp", *map(str, words)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()
    ) as started:
        shown = b""
        while ready not in shown:
            byte = started.stderr.read(1)
            assert byte, f"it ended before it was interrupted: {shown.decode()}"
            shown += byte
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=120)
    return started.returncode, out.decode(), (shown + err).decode()


@pytest.mark.parametrize("json_wanted", [False, True])
def test_ctrl_c_writes_the_result_so_far(json_wanted, tmp_path):
    values = np.random.default_rng(0).random((150, 150))
    values[::7, ::5] = NAN
    np.save(tmp_path / "a.npy", values)
    words = ["complete", tmp_path / "a.npy", "-o", tmp_path / "b.npy", "--progress", "--regularizers", "air"]
    code, out, err = interrupted_process([*words, *["--json"] * json_wanted], b"loss=")
    assert code == 130
    assert "Traceback" not in err
    filled = np.load(tmp_path / "b.npy")
    assert np.isfinite(filled).all()
    if json_wanted:
        done = json.loads(out)
        assert done["stop_reason"] == "interrupted"
        assert 0 < done["iterations"] < 40_000
    else:
        assert f"wrote the result so far to {tmp_path / 'b.npy'}" in out


def test_ctrl_c_before_there_is_a_result(ratings, tmp_path, capsys, monkeypatch):
    def interrupted(*given, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(airnp, "fit", interrupted)
    assert mistake(capsys, "complete", ratings, "-o", tmp_path / "b.csv", code=130) == "interrupted"
    assert not (tmp_path / "b.csv").exists()


# --- airnp graph ---


def test_a_result_without_labels(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1.0, NAN], [2.0, 3.0]]))
    words = ["complete", tmp_path / "a.npy", "-o", tmp_path / "b.npy", "--result", tmp_path / "b.npz"]
    assert main(*words, *QUICK) == 0
    result = airnp.load(tmp_path / "b.npz")
    assert result.labels is None
    np.testing.assert_array_equal(result.completed(), np.load(tmp_path / "b.npy"))


@pytest.fixture
def learned(ratings, tmp_path):
    """A saved result with labels."""
    path = tmp_path / "learned.npz"
    assert main("complete", ratings, "-o", tmp_path / "filled.csv", "--result", path, *QUICK) == 0
    return path


def expected_graph(path, axis, k):
    result = airnp.load(path)
    return (result.row_graph(k=k) if axis == "rows" else result.column_graph(k=k)).adjacency.toarray()


@pytest.mark.parametrize(
    ("axis", "names"), [("rows", ["ann", "bob", "cyd", "dan"]), ("columns", ["a", "b", "c"])]
)
def test_graph_as_a_list_of_edges(axis, names, learned, tmp_path, capsys):
    out = tmp_path / "graph.csv"
    done = facts(capsys, "graph", learned, "-o", out, "--axis", axis, "--neighbours", "1")
    weights = expected_graph(learned, axis, 1)
    head, *edges = cells(out)
    assert head == ["source", "target", "weight"]
    assert (done["nodes"], done["edges"]) == (len(names), len(edges))
    assert len(edges) == np.count_nonzero(weights) / 2
    for source, target, weight in edges:
        assert float(weight) == weights[names.index(source), names.index(target)] > 0


@pytest.mark.parametrize("suffix", [".npz", ".mtx"])
def test_graph_as_a_sparse_matrix(suffix, learned, tmp_path, capsys):
    out = tmp_path / f"graph{suffix}"
    assert main("graph", learned, "-o", out) == 0
    read = scipy.sparse.load_npz if suffix == ".npz" else scipy.io.mmread
    np.testing.assert_array_equal(read(out).toarray(), expected_graph(learned, "rows", None))
    assert capsys.readouterr().out.endswith(f"edges\nwrote {out}\n")


def test_graph_as_graphml(tmp_path, learned):
    out = tmp_path / "graph.graphml"
    assert main("graph", learned, "-o", out, "-k", "1", "--quiet") == 0
    space = "{http://graphml.graphdrawing.org/xmlns}"
    root = ElementTree.parse(out).getroot()
    assert [node.findtext(f"{space}data") for node in root.iter(f"{space}node")] == [
        "ann",
        "bob",
        "cyd",
        "dan",
    ]
    weights = expected_graph(learned, "rows", 1)
    edges = list(root.iter(f"{space}edge"))
    assert len(edges) == np.count_nonzero(weights) / 2
    for edge in edges:
        place = int(edge.get("source")), int(edge.get("target"))
        assert float(edge.findtext(f"{space}data")) == weights[place]


def test_graphml_is_read_by_networkx_with_odd_labels(tmp_path):
    networkx = pytest.importorskip("networkx", reason="reads GraphML")
    (tmp_path / "a.csv").write_text('who,x,y\n<a & "b">,1,2\nc,2,\n', encoding="utf-8")
    assert main("graph", tmp_path / "a.csv", "-o", tmp_path / "g.graphml", *QUICK) == 0
    graph = networkx.read_graphml(tmp_path / "g.graphml")
    assert [node["label"] for _, node in graph.nodes(data=True)] == ['<a & "b">', "c"]


def test_graph_of_a_table_is_that_of_its_fit(ratings, learned, tmp_path):
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    assert main("graph", learned, "-o", first, "--quiet") == 0
    assert main("graph", ratings, "-o", second, *QUICK) == 0
    assert first.read_bytes() == second.read_bytes()


def test_graph_of_a_table_without_labels_counts_from_zero(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1.0, NAN], [2.0, 3.0]]))
    assert main("graph", tmp_path / "a.npy", "-o", tmp_path / "g.csv", *QUICK) == 0
    assert cells(tmp_path / "g.csv")[1][:2] == ["0", "1"]


def test_graph_mistakes(ratings, learned, tmp_path, capsys):
    out = tmp_path / "g.csv"
    shown = mistake(capsys, "graph", learned, "-o", tmp_path / "g.png")
    assert shown == f"{tmp_path / 'g.png'}: expected a name that ends in one of .csv, .npz, .graphml, .mtx"
    shown = mistake(capsys, "graph", ratings, "-o", out, "--regularizers", "tv")
    assert shown == "--regularizers tv learns no graph; auto and air do"
    shown = mistake(capsys, "graph", tmp_path / "none.npz", "-o", out)
    assert shown == f"[Errno 2] No such file or directory: '{tmp_path / 'none.npz'}'"
    plain = tmp_path / "plain.npz"
    airnp.fit(np.eye(3), regularizers=[], max_iter=1, stop=None, seed=0).save(plain)
    assert mistake(capsys, "graph", plain, "-o", out).startswith(
        f"{plain}: this fit learned no graph over rows"
    )
    airnp.fit(np.ones((2, 3, 3)), max_iter=1, stop=None, seed=0).save(plain)
    assert mistake(capsys, "graph", plain, "-o", out).startswith(f"{plain}: is a stack of matrices")
    content = bytearray(learned.read_bytes())
    content[200] ^= 1
    learned.write_bytes(content)
    assert f"{learned}: " in mistake(capsys, "graph", learned, "-o", out)
    out.touch()
    assert mistake(capsys, "graph", ratings, "-o", out) == f"{out} is there already; --force overwrites"


# --- intervals ---


@pytest.fixture
def sensors(tmp_path):
    """A table that is large enough for entries to be held out."""
    rng = np.random.default_rng(0)
    values = rng.random((30, 2)) @ rng.random((2, 12))
    values[rng.random(values.shape) < 0.2] = NAN
    lines = [",".join(["time", *(f"s{column}" for column in range(12))])]
    lines += [
        ",".join([f"t{row}", *("" if np.isnan(cell) else repr(float(cell)) for cell in line)])
        for row, line in enumerate(values)
    ]
    path = tmp_path / "sensors.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


FIXED = ["--max-iter", "60", "--regularizers", "air", "--threads", "1"]


@pytest.mark.parametrize("name", ["out.csv", "out.tsv.gz", "out.npz"])
def test_intervals_are_those_of_the_result(name, sensors, tmp_path, capsys):
    out = tmp_path / name
    done = facts(capsys, "complete", sensors, "-o", out, "--interval", "0.8", *FIXED)
    given = tables.read(sensors)
    result = airnp.fit(given.values, max_iter=60, regularizers=None, threads=1, seed=0)
    if name == "out.npz":
        assert (done["interval"]["lower"], done["interval"]["upper"]) == (str(out), str(out))
        with np.load(out) as arrays:
            found = arrays["lower"], arrays["upper"]
            np.testing.assert_array_equal(arrays["X"], result.completed())
    else:
        ends = [tmp_path / name.replace("out.", f"out.{end}.") for end in ("lower", "upper")]
        assert [done["interval"]["lower"], done["interval"]["upper"]] == [str(path) for path in ends]
        found = [tables.read(path).values for path in ends]
        assert tables.read(ends[0]).columns == given.columns
    for ours, expected in zip(found, result.interval(0.8), strict=True):
        np.testing.assert_array_equal(ours, expected)
    widths = (found[1] - found[0])[~given.observed]
    assert done["interval"]["level"] == 0.8
    assert done["interval"]["median_width"] == pytest.approx(np.median(widths))


def test_ends_of_intervals_are_not_overwritten_unless_told(sensors, tmp_path, capsys):
    words = ["complete", sensors, "-o", tmp_path / "out.csv", "--interval", "0.8", *FIXED]
    upper = tmp_path / "out.upper.csv"
    upper.write_text("precious", encoding="utf-8")
    assert mistake(capsys, *words) == f"{upper} is there already; --force overwrites"
    assert not (tmp_path / "out.csv").exists()
    assert main(*words, "--force") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-3:] == [
        f"wrote {tmp_path / name}" for name in ("out.csv", "out.lower.csv", "out.upper.csv")
    ]
    assert tables.read(upper).observed.all()


@pytest.mark.parametrize("words", [["--regularizers", "air"], [], ["--auto"]])
def test_too_high_a_level_is_noticed_before_the_fit(words, sensors, tmp_path, capsys, monkeypatch):
    for name in ("fit", "complete"):
        monkeypatch.setattr(airnp, name, lambda *_, **__: pytest.fail("began a fit"))
    shown = mistake(capsys, "complete", sensors, "-o", tmp_path / "out.csv", "--interval", "0.999", *words)
    assert shown.startswith("--interval: 0.999 needs at least 999 held-out entries, there are ")


def test_intervals_that_cannot_be_had_do_not_cost_the_table(sensors, tmp_path, capsys, monkeypatch):
    # Before the fit it may look as if a matrix of low rank could have entries enough.
    monkeypatch.setattr("airnp.results.intervals.check_level", lambda *_: None)
    out = tmp_path / "out.csv"
    words = ["complete", sensors, "-o", out, "--interval", "0.999", *FIXED]
    shown = mistake(capsys, *words, code=1)
    assert shown.startswith(f"wrote {out}, but no intervals: --interval: 0.999 needs at least 999 held-out")
    assert tables.read(out).observed.all()
    assert not (tmp_path / "out.lower.csv").exists()


# --- runs that go on ---


def test_a_run_out_of_time_goes_on(sensors, tmp_path, capsys):
    run, out, whole = tmp_path / "run.npz", tmp_path / "out.csv", tmp_path / "whole.csv"
    assert main("complete", sensors, "-o", whole, "--quiet", *FIXED) == 0
    words = ["--checkpoint", run, "--checkpoint-every", "5", "--time-limit", "0.000001"]
    done = facts(capsys, "complete", sensors, "-o", out, *words, *FIXED)
    assert done["checkpoint"] == str(run)
    assert done["iterations"] < 60
    assert out.read_bytes() != whole.read_bytes()

    assert mistake(capsys, "complete", "--resume", run, "-o", out).startswith(f"{out} is there already")
    done = facts(capsys, "complete", "--resume", run, "-o", out, "--force", "--interval", "0.5")
    assert out.read_bytes() == whole.read_bytes()
    assert (done["input"], done["checkpoint"]) == (str(run), str(run))
    assert (done["rows"], done["columns"], done["index"], done["header"]) == (30, 12, "time", True)
    assert (done["iterations"], done["stop_reason"]) == (60, "max_iter (60) reached")
    assert (tmp_path / "out.lower.csv").exists()

    assert main("complete", "--resume", run, "-o", tmp_path / "again.csv") == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("60 iterations in all, after 0.0 s more: ")
    assert (tmp_path / "again.csv").read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_run_of_integers_ends_with_integers(suffix, tmp_path, capsys):
    stars = np.random.default_rng(0).integers(1, 6, (12, 9))
    stars[::2, ::3] = -1
    np.save(tmp_path / "stars.npy", stars)
    given = ["complete", tmp_path / "stars.npy", "--missing=-1", "--round", "--bounds", "1", "5", *FIXED]
    whole, again, run = tmp_path / f"whole{suffix}", tmp_path / f"again{suffix}", tmp_path / "run.npz"
    assert main(*given, "-o", whole, "--quiet") == 0
    cut_short = ["--checkpoint", run, "--time-limit", "0.000001", "--quiet"]
    assert main(*given, "-o", again, *cut_short) == 0
    assert main("complete", "--resume", run, "-o", again, "--force", "--quiet") == 0
    expected, found = (np.load(path) if suffix == ".npy" else np.load(path)["X"] for path in (whole, again))
    assert found.dtype == expected.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


def test_a_resumed_run_may_have_more_iterations_and_shows_progress(sensors, tmp_path, capsys):
    run, short = tmp_path / "run.npz", tmp_path / "short.csv"
    words = ["--max-iter", "150", "--regularizers", "air", "--threads", "1", "--quiet"]
    assert main("complete", sensors, "-o", short, "--checkpoint", run, "--time-limit", "1e-6", *words) == 0
    shown = mistake(capsys, "complete", "--resume", run, "-o", tmp_path / "b.csv", "--max-iter", "10")
    assert shown == "--max-iter: expected at least the 150 that the run was to have, got 10"
    more = ["complete", "--resume", run, "-o", tmp_path / "b.csv", "--max-iter", "200", "--progress"]
    assert main(*more, "--checkpoint", tmp_path / "other.npz") == 0
    assert "200/200" in capsys.readouterr().err
    words[1] = "200"
    assert main("complete", sensors, "-o", tmp_path / "c.csv", *words) == 0
    assert (tmp_path / "b.csv").read_bytes() == (tmp_path / "c.csv").read_bytes()
    assert airnp.resume(tmp_path / "other.npz").n_iter == 200


def test_a_run_without_labels_has_none_when_it_goes_on(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[1.0, NAN, 2.0], [2.0, 3.0, NAN]]))
    words = ["--checkpoint", tmp_path / "run.npz", "--time-limit", "1e-6", *QUICK]
    assert main("complete", tmp_path / "a.npy", "-o", tmp_path / "b.csv", *words) == 0
    assert main("complete", "--resume", tmp_path / "run.npz", "-o", tmp_path / "c.csv", "--quiet") == 0
    assert len(cells(tmp_path / "c.csv")) == 2
    (tmp_path / "d.csv").write_text("a,b\n1,2\n,3\n", encoding="utf-8")  # a header, and no labels of rows
    words[1] = tmp_path / "other.npz"
    assert main("complete", tmp_path / "d.csv", "-o", tmp_path / "e.csv", *words) == 0
    assert main("complete", "--resume", words[1], "-o", tmp_path / "f.csv", "--quiet") == 0
    assert cells(tmp_path / "f.csv")[0] == ["a", "b"]


def test_what_cannot_be_resumed(learned, tmp_path, capsys):
    words = ["-o", tmp_path / "b.csv", "--quiet"]
    shown = mistake(capsys, "complete", "--resume", learned, *words)
    assert shown == f"{learned}: holds a result, but no run to go on with; see checkpoint= of airnp.fit"
    (tmp_path / "junk.npz").write_bytes(b"PK\x03\x04 junk")
    shown = mistake(capsys, "complete", "--resume", tmp_path / "junk.npz", *words)
    assert shown.startswith(f"{tmp_path / 'junk.npz'}: not a result saved by airnp, or damaged")
    run = tmp_path / "run.npz"
    airnp.fit(np.ones((2, 3, 3)), max_iter=1, stop=None, seed=0, checkpoint=run)
    assert "is a stack of matrices" in mistake(capsys, "complete", "--resume", run, *words)
    matrix = scipy.sparse.eye_array(4)
    airnp.fit(matrix, form="sparse", rank=2, max_iter=2, stop=None, seed=0, checkpoint=run)
    assert "holds a sparse fit; Python's airnp.resume" in mistake(capsys, "complete", "--resume", run, *words)


# --- the sparse form ---


@pytest.fixture
def links(tmp_path):
    """A sparse matrix of whole numbers, in its last column of others."""
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((12, 8)) < 0.6, rng.integers(1, 6, (12, 8)), 0).astype(float)
    dense[dense[:, -1] > 0, -1] += 0.5
    path = tmp_path / "links.mtx"
    scipy.io.mmwrite(path, scipy.sparse.coo_array(dense))
    return path


SPARSE = ["--form", "sparse", "--rank", "2", "--max-iter", "30", "--threads", "1"]


def test_the_sparse_form_is_that_of_fit(links, tmp_path, capsys):
    out, learned = tmp_path / "out.csv", tmp_path / "learned.npz"
    words = [*SPARSE, "--bounds", "1", "6", "--round", "--result", learned]
    done = facts(capsys, "complete", links, "-o", out, *words)
    stored = scipy.sparse.coo_array(scipy.io.mmread(links))
    assert (done["form"], done["rows"], done["columns"]) == ("sparse", 12, 8)
    assert done["missing"] == 96 - stored.nnz
    filled = tables.read(out).values
    np.testing.assert_array_equal(filled[stored.row, stored.col], stored.data)
    whole = [True] * 7 + [False]
    options = {"bounds": (1, 6), "integers": whole, "max_iter": 30, "seed": 0, "threads": 1}
    expected = airnp.fit(stored, form="sparse", rank=2, **options).X
    gaps = ~(stored.toarray() != 0)
    np.testing.assert_array_equal(filled[gaps], expected[gaps])
    assert main("graph", learned, "-o", tmp_path / "graph.csv") == 0
    assert cells(tmp_path / "graph.csv")[0] == ["source", "target", "weight"]


def test_a_matrix_that_is_too_large_to_write_is_saved_as_factors(links, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("airnp.commands.complete._LARGEST_WRITTEN", 50)
    out, learned = tmp_path / "out.npy", tmp_path / "learned.npz"
    shown = mistake(capsys, "complete", links, "-o", out, *SPARSE)
    assert shown.startswith(
        f"{out}: a matrix of 12x8 is not written whole; --result FILE.npz saves its factors"
    )
    assert main("complete", links, "--result", learned, *SPARSE) == 0
    assert capsys.readouterr().out.endswith(f"wrote {learned}\n")
    assert airnp.load(learned).predict(0, 0).shape == ()


def test_the_sparse_form_computes_on_a_device(links, tmp_path, monkeypatch, cupy_double):
    seen, fit = [], airnp.fit

    def spy(Y, *, xp, device, **options):
        seen.append((xp.__name__, device))
        return fit(Y, **options)

    monkeypatch.setattr(airnp, "fit", spy)
    assert main("complete", links, "-o", tmp_path / "b.csv", "--device", "cuda", "--quiet", *SPARSE) == 0
    assert main("complete", links, "-o", tmp_path / "c.csv", "--device", "cuda:1", "--quiet", *SPARSE) == 0
    assert seen == [("cupy", 0), ("cupy", 1)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--interval", "0.9"], "--interval: not with the sparse form; --form dense has it"),
        (["--checkpoint", "c.npz"], "--checkpoint: not with the sparse form; --form dense has it"),
        (["--bounds", "1", "4"], "numbers are outside --bounds 1 4, the first is 5 in row "),
        (["--rank", "9"], "--rank: expected at most min(m, n) = 8"),
        (["--regularizers", "tv"], "--regularizers: form='sparse' has "),
        (["--form", "dense", "--depth", "1", "--rank", "99"], "--rank: "),
    ],
)
def test_mistakes_with_the_sparse_form(words, message, links, tmp_path, capsys):
    assert message in mistake(capsys, "complete", links, "-o", tmp_path / "b.csv", *SPARSE, *words)


def test_what_does_not_fit_into_memory_is_sparse(links, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("airnp.sparse_choice.available_memory", lambda: 0)
    words = ["complete", links, "-o", tmp_path / "b.csv", "--max-iter", "5", "--threads", "1"]
    assert "--rank: form='sparse' needs one" in mistake(capsys, *words)
    assert facts(capsys, *words, "--rank", "2")["form"] == "sparse"
    assert facts(capsys, *words, "--form", "dense", "--force")["form"] == "dense"
