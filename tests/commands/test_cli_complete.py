"""``airnp complete`` and ``airnp graph``: real files, through the command line."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse

import airnp
from airnp import tables
from tests.commands.commandline import cells, facts, main, mistake, start

NAN = np.nan
QUICK = "--max-iter 20 --quiet"
FIXED = "--max-iter 60 --regularizers air --threads 1"
CUT_SHORT = "--time-limit 1e-6"
SPARSE = "--form sparse --rank 2 --max-iter 30 --threads 1"


def write(name, text):
    Path(name).write_text(text, encoding="utf-8")


def values(name):
    return tables.read(Path(name)).values


@pytest.fixture
def ratings():
    """The table ``ratings.csv``."""
    write("ratings.csv", "user,a,b,c\nann,1,2,\nbob,2,,5\ncyd,3,4.5,5\ndan,,1,4\n")
    return tables.read(Path("ratings.csv"))


@pytest.fixture
def learned(ratings):
    """The result ``learned.npz`` of a fit, with labels."""
    assert main(f"complete ratings.csv -o filled.csv --result learned.npz {QUICK}") == 0
    return airnp.load("learned.npz")


@pytest.fixture
def sensors():
    """The table ``sensors.csv``, which is large enough for entries to be held out."""
    rng = np.random.default_rng(0)
    table = rng.random((30, 2)) @ rng.random((2, 12))
    table[rng.random(table.shape) < 0.2] = NAN
    labels = [f"t{row}" for row in range(30)], [f"s{column}" for column in range(12)]
    with open("sensors.csv", "wb") as file:
        tables.write(file, ".csv", tables.Table(table, *labels, "time"))
    return tables.read(Path("sensors.csv"))


@pytest.fixture
def links():
    """The sparse matrix ``links.mtx`` of whole numbers, in its last column of others."""
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((12, 8)) < 0.6, rng.integers(1, 6, (12, 8)), 0).astype(float)
    dense[dense[:, -1] > 0, -1] += 0.5
    scipy.io.mmwrite("links.mtx", scipy.sparse.coo_array(dense))
    return scipy.sparse.coo_array(scipy.io.mmread("links.mtx"))


def forbid_fits(monkeypatch):
    for name in ("fit", "complete"):
        monkeypatch.setattr(airnp, name, lambda *given, **named: pytest.fail("a fit before the checks"))


def fail_with(monkeypatch, error, target=airnp, name="fit"):
    def fail(*given, **named):
        raise error

    monkeypatch.setattr(target, name, fail)


def spy_on_devices(monkeypatch):
    """Return a list that gets the namespace and the device of every fit, which runs on the host."""
    seen = []

    def spy_on(fit):
        def spy(*data, xp, device, **options):
            seen.append((xp.__name__, device))
            return fit(*data, **options)

        return spy

    for name in ("fit", "fit_sparse"):
        monkeypatch.setattr(airnp, name, spy_on(getattr(airnp, name)))
    return seen


# --- formats ---


@pytest.mark.parametrize("suffix", tables.SUFFIXES)
def test_every_format_to_every_other(suffix, ratings):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="parquet files need pyarrow")
    assert main(f"complete ratings.csv -o there{suffix} {QUICK}") == 0
    filled = tables.read(Path(f"there{suffix}"))
    assert filled.observed.all()
    np.testing.assert_array_equal(filled.values[ratings.observed], ratings.values[ratings.observed])

    assert main(f"complete there{suffix} -o back.csv --fitted {QUICK}") == 0
    fitted = tables.read(Path("back.csv"))
    assert fitted.values.shape == (4, 3)
    assert not np.array_equal(fitted.values, filled.values)
    assert (fitted.rows is not None) == (".mtx" not in suffix and suffix != ".npy")


def test_the_answer_is_that_of_fit(ratings):
    line = "complete ratings.csv -o out.csv --fitted --quiet --max-iter 50"
    assert main(f"{line} --seed 3 --depth 2 --rank 2 --regularizers dmf") == 0
    expected = airnp.fit(ratings.values, max_iter=50, seed=3, depth=2, rank=2, regularizers=[]).X
    np.testing.assert_array_equal(values("out.csv"), expected)


def test_labels_and_observed_cells_are_kept(ratings):
    assert main(f"complete ratings.csv -o out.csv {QUICK}") == 0
    given, filled = cells("ratings.csv"), cells("out.csv")
    assert filled[0] == given[0]
    for before, after in zip(given[1:], filled[1:], strict=True):
        assert [new for old, new in zip(before, after, strict=True) if old] == [old for old in before if old]
        assert all(after)


def test_bounds_and_rounding(ratings):
    assert main(f"complete ratings.csv -o out.csv --bounds 1.5 4.5 {QUICK}") == 2
    assert main(f"complete ratings.csv -o out.csv --round --fitted --bounds 0.5 5.5 {QUICK}") == 0
    found = values("out.csv")
    whole = np.array([True, False, True])  # the second column has a 4.5
    np.testing.assert_array_equal(found[:, whole], np.rint(found[:, whole]))
    assert not np.array_equal(found[:, 1], np.rint(found[:, 1]))
    assert found.min() >= 0.5
    assert found[:, whole].min() >= 1


def test_auto_reports_the_error_to_expect(capsys):
    table = np.random.default_rng(0).random((12, 8))
    np.save("a.npy", np.where(table < 0.2, NAN, table))
    line = "complete a.npy -o out.csv --auto"
    done = facts(capsys, line)
    assert done["expected_error"] > 0
    assert done["standard_error"] > 0
    assert not np.isnan(values("out.csv")).any()
    assert main(f"{line} --force") == 0
    assert "; expected mae of the gaps 0." in capsys.readouterr().out
    for also in ("--regularizers dmf", "--max-iter 3"):
        assert "--auto" in mistake(capsys, f"{line} --force {also}")


def test_models_compete_for_a_matrix_unless_the_factor_model_is_asked_for(capsys):
    rng = np.random.default_rng(0)
    table = rng.random((30, 2)) @ rng.random((2, 20))
    np.save("a.npy", np.where(rng.random(table.shape) < 0.3, NAN, table))
    done = facts(capsys, "complete a.npy -o b.npy")
    assert done["choice"] == "low rank"
    assert np.abs(np.load("b.npy") - table).max() < 0.01
    assert main("complete a.npy -o b.npy --force") == 0
    assert " s: low rank predicts held-out entries best" in capsys.readouterr().out
    assert "choice" not in facts(capsys, f"complete a.npy -o b.npy --force {QUICK}")


def test_bounds_clip_the_gaps_only():
    np.save("a.npy", np.array([[0.0, 1.0, NAN], [NAN, 0.0, 1.0], [1.0, NAN, 0.0]]))
    assert main(f"complete a.npy -o free.npy {QUICK}") == 0
    assert main(f"complete a.npy -o clipped.npy --bounds 0 1 {QUICK}") == 0
    np.testing.assert_array_equal(np.load("clipped.npy"), np.clip(np.load("free.npy"), 0, 1))


def test_integers_come_back_as_integers():
    np.save("a.npy", np.array([[1, 2, -1], [3, -1, 5]], dtype=np.int16))
    assert main(f"complete a.npy -o b.npy --missing -1 --round --bounds 1 5 {QUICK}") == 0
    filled = np.load("b.npy")
    assert filled.dtype == np.int16
    assert filled[0, 0] == 1
    assert filled.min() >= 1


def test_a_mask_hides_and_a_truth_measures(capsys):
    truth = np.add.outer(np.arange(6.0), np.arange(5.0))
    mask = np.ones(truth.shape, dtype=bool)
    mask[2, 3] = mask[4, 1] = False
    np.save("truth.npy", truth)
    np.save("mask.npy", mask)
    line = "complete truth.npy -o out.npy --mask mask.npy --truth truth.npy --max-iter 20"
    done = facts(capsys, line)
    filled = np.load("out.npy")
    assert done["missing"] == 2
    assert done["nmae"] == pytest.approx(airnp.metrics.nmae(filled, truth, mask))
    np.testing.assert_array_equal(filled[mask], truth[mask])
    assert filled[2, 3] != truth[2, 3]


def test_stored_entries_are_the_observed_ones():
    stored = scipy.sparse.coo_array(([5.0, 0.0, 2.0], ([0, 1, 2], [1, 0, 2])), shape=(3, 3))
    scipy.io.mmwrite("a.mtx", stored)
    assert main(f"complete a.mtx -o b.npy {QUICK}") == 0
    filled = np.load("b.npy")
    assert (filled[0, 1], filled[1, 0], filled[2, 2]) == (5, 0, 2)
    assert np.isfinite(filled).all()


# --- messages ---


def test_json_says_what_was_done(ratings, capsys):
    done = facts(capsys, "complete ratings.csv -o out.csv --max-iter 20 --seed 5")
    assert done.pop("seconds") > 0
    assert done == {
        "command": "complete",
        "input": "ratings.csv",
        "output": "out.csv",
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


def test_text_says_what_was_done(ratings, capsys):
    assert main("complete ratings.csv -o out.csv --max-iter 20") == 0
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "ratings.csv: 4 rows, 3 columns (header, row labels from 'user'), 25.0% missing"
    assert re.fullmatch(r"20 iterations in \d+\.\d s: max_iter \(20\) reached", second)
    assert third == "wrote out.csv"


def test_a_pipe_gets_a_progress_bar_only_on_request(ratings, capsys):
    line = "complete ratings.csv -o out.csv --force --max-iter 20"
    assert main(line) == 0
    assert capsys.readouterr().err == ""
    assert main(f"{line} --progress") == 0
    shown = capsys.readouterr().err
    assert "20/20" in shown
    assert "loss=" in shown
    assert main(f"{line} --progress --quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_a_time_limit_ends_a_fit_and_keeps_its_result(capsys):
    table = np.random.default_rng(0).random((30, 30))
    table[0, 0] = NAN
    np.save("a.npy", table)
    done = facts(capsys, f"complete a.npy -o b.npy --regularizers air {CUT_SHORT}")
    assert done["stop_reason"] == "time limit of 1e-06 s reached"
    assert done["iterations"] == 1
    assert np.isfinite(np.load("b.npy")).all()


@pytest.mark.filterwarnings("default::airnp.EmptyLineWarning")
def test_an_empty_row_is_a_warning_in_one_line(capsys):
    write("a.csv", "1,2\n,\n3,5\n")
    assert main("complete a.csv -o b.csv --max-iter 5") == 0
    shown = capsys.readouterr().err
    assert shown.startswith("airnp complete: warning: 1 rows and 0 columns have no observed entry")
    assert shown.count("\n") == 1


# --- mistakes ---


def test_files_are_overwritten_only_with_force(ratings, capsys, monkeypatch):
    line = "complete ratings.csv -o out.csv --result learned.npz"
    for path in map(Path, ("out.csv", "learned.npz")):
        write(path, "precious")
        with monkeypatch.context() as patch:
            forbid_fits(patch)
            assert mistake(capsys, line) == f"{path} is there already; --force overwrites"
        assert path.read_text(encoding="utf-8") == "precious"
        path.unlink()
    write("out.csv", "precious")
    assert main(f"{line} --force {QUICK}") == 0
    assert cells("out.csv")[0] == ["user", "a", "b", "c"]


def test_a_pipe_and_a_closed_folder_are_no_outputs(ratings, folder, capsys, monkeypatch):
    os.mkfifo("pipe.csv")
    assert mistake(capsys, "complete ratings.csv -o pipe.csv --force") == "pipe.csv is no ordinary file"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    shown = mistake(capsys, "complete ratings.csv -o b.csv")
    assert shown == f"b.csv: no permission to write in {folder}"


def test_a_link_is_followed(ratings):
    Path("real.csv").touch()
    Path("link.csv").symlink_to("real.csv")
    assert main(f"complete ratings.csv -o link.csv --force {QUICK}") == 0
    assert Path("link.csv").is_symlink()
    assert cells("real.csv")[0] == ["user", "a", "b", "c"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("none.csv -o b.csv", "[Errno 2] No such file or directory: 'none.csv'"),
        ("a.csv -o b.xls", "b.xls: expected a name that ends in one of .csv, .csv.gz,"),
        ("a.xls -o b.csv", "a.xls: expected a name that ends in one of"),
        ("a.csv -o no/b.csv", "no/b.csv: the folder"),
        ("a.csv -o folder.csv", "folder.csv is a folder"),
        ("a.csv -o b.csv --result c.csv", "--result: expected a name that ends in .npz, got c.csv"),
        ("a.csv -o b.npz --result b.npz", "--result and --output are the same file"),
        ("a.csv -o b.csv --checkpoint c.csv", "--checkpoint: expected a name that ends in .npz, got c.csv"),
        ("a.csv -o b.csv --result c.npz --checkpoint ./c.npz", "--checkpoint and --result"),
        ("a.csv -o b.csv --checkpoint-every 3", "--checkpoint-every goes with --checkpoint"),
        ("a.png -o b.png", "a.png: expected a table; airnp inpaint fills pictures"),
        ("a.csv -o b.csv --checkpoint c.npz --auto", "--checkpoint: --auto compares models"),
        ("-o b.csv", "the following arguments are required: table, or --resume"),
        ("a.csv -o b.csv --form sparse", "--form sparse: a.csv holds no sparse matrix"),
        ("--resume none.npz -o b.csv", "[Errno 2] No such file or directory: 'none.npz'"),
        ("a.csv --resume c.npz -o b.csv", "a table cannot be given with --resume: c.npz says"),
        ("--resume c.npz -o b.csv --seed 0", "--seed cannot be given with --resume"),
        ("--resume c.npz -o b.csv --missing -1", "--missing cannot be given with --resume"),
        ("a.csv -o b.csv --bounds 5 1", "--bounds: expected LOW <= HIGH, got 5 1"),
        (
            "a.csv -o b.csv --bounds 1 4",
            "a.csv: 3 numbers are outside --bounds 1 4, the first is 5 in row 2, column 'c'",
        ),
        (
            "a.csv -o b.csv --max-iter 40000 --bounds 1 4",
            "a.csv: 3 numbers are outside --bounds 1 4, the first is 5 in row 'bob', column 'c'",
        ),
        ("whole.csv -o b.csv --bounds 1 1 --round", "whole.csv: 1 numbers are outside"),
        ("full.csv -o b.csv", "full.csv: nothing is missing; --missing says how"),
        ("full.csv -o b.csv --max-iter 40000", "full.csv: no number is missing; --missing says how"),
        ("empty.csv -o b.csv", "empty.csv: no entry is observed"),
        ("infinite.csv -o b.csv", "infinite.csv: 1 observed entries are NaN or infinite, first at (0, 1)"),
        ("a.csv -o b.csv --rank 9 --depth 1", "--rank: "),
        ("a.csv -o b.csv --mask full.csv", "full.csv: expected 4 rows and 3 columns as in the table"),
        ("full.csv -o b.csv --mask full.csv", "full.csv: expected 1 (observed) and 0 (missing)"),
        ("a.csv -o b.csv --truth a.csv", "a.csv: expected numbers wherever the table has gaps"),
        ("a.csv -o b.csv --index-col z", "a.csv: --index-col: there is no column 'z'"),
    ],
)
def test_a_mistake_is_explained_in_one_line(words, message, ratings, folder, capsys):
    Path("ratings.csv").rename("a.csv")
    Path("folder.csv").mkdir()
    write("full.csv", "1,2\n3,4\n")
    write("whole.csv", "1,2\n,1\n")
    write("empty.csv", "a,b\n,\n")
    write("infinite.csv", "1,inf\n,1\n")
    before = sorted(folder.iterdir())
    assert mistake(capsys, f"complete {words}").startswith(message)
    assert sorted(folder.iterdir()) == before


def test_options_for_reading(capsys):
    write("a.txt.csv", "1\t-9\tx\n2\t3\ty\n4\t5\t?\n")
    line = "complete a.txt.csv -o b.csv --no-header --delimiter tab --index-col 3 --missing -9 --max-iter 5"
    done = facts(capsys, line)
    assert (done["rows"], done["columns"], done["missing"], done["header"]) == (3, 2, 1, False)
    assert Path("b.csv").read_text(encoding="utf-8").splitlines()[2] == "?\t4\t5"


def test_a_device_that_cannot_be_used(ratings, capsys, cupy_double):
    cupy_double.settings.failure = 35
    shown = mistake(capsys, "complete ratings.csv -o b.csv --device cuda")
    assert shown.startswith("--device cuda: CuPy ")
    assert "cudaErrorInsufficientDriver" in shown
    cupy_double.settings.failure = None
    shown = mistake(capsys, "complete ratings.csv -o b.csv --device cuda:7")
    assert shown == "--device cuda:7: expected one of 0 to 1, got 7"


@pytest.mark.parametrize(("device", "number"), [("cuda", 0), ("cuda:1", 1)])
@pytest.mark.parametrize("source", ["ratings.csv --max-iter 20", f"links.mtx {SPARSE}"])
def test_a_device_reaches_the_fit(source, device, number, ratings, links, monkeypatch, cupy_double):
    seen = spy_on_devices(monkeypatch)
    assert main(f"complete {source} -o b.csv --device {device} --quiet") == 0
    assert seen == [("cupy", number)]


def test_a_device_without_its_package(ratings, capsys, without):
    without("cupy")
    shown = mistake(capsys, "complete ratings.csv -o b.csv --device cuda")
    assert shown == '--device cuda needs CuPy: pip install "airnp[cuda12x]" or "airnp[cuda13x]"'


@pytest.mark.parametrize(
    ("package", "words", "message"),
    [
        ("pandas", "-o b.parquet", "parquet files need pandas and pyarrow"),
        ("pyarrow", "-o b.parquet", "parquet files need pandas and pyarrow"),
        ("pandas", "-o b.csv --result b.npz", "labels are saved through pandas"),
    ],
)
def test_a_missing_package_names_the_extra(package, words, message, ratings, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    assert mistake(capsys, f"complete ratings.csv {words}") == f'{message}: pip install "airnp[tables]"'


# --- failures ---


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (MemoryError("3 GiB"), 1, "not enough memory: 3 GiB"),
        (airnp.DivergenceError("the loss became infinite", None), 1, "the loss became infinite"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_a_fit_that_fails_writes_nothing(error, code, message, ratings, capsys, monkeypatch):
    fail_with(monkeypatch, error)
    assert mistake(capsys, "complete ratings.csv -o b.csv --max-iter 40000", code=code) == message
    assert not Path("b.csv").exists()


@pytest.mark.parametrize("bug", [ValueError("shapes do not fit: (3,) and (4,)"), RuntimeError("no idea")])
def test_a_bug_is_not_taken_for_a_mistake(bug, ratings, monkeypatch):
    fail_with(monkeypatch, bug)
    with pytest.raises(type(bug), match=re.escape(str(bug))):
        main("complete ratings.csv -o b.csv --max-iter 40000")


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt(), RuntimeError("bug")]
)
def test_half_an_output_is_never_left(error, ratings, folder, capsys, monkeypatch):
    write("out.csv", "before")
    write_table, calls = tables.write, []

    def interrupted(file, kind, table):
        write_table(file, kind, table)
        calls.append(file)
        if len(calls) == 2:  # the first was the rehearsal
            raise error

    monkeypatch.setattr(tables, "write", interrupted)
    line = f"complete ratings.csv -o out.csv --force {QUICK}"
    if isinstance(error, RuntimeError):
        with pytest.raises(RuntimeError, match="bug"):
            main(line)
    elif isinstance(error, OSError):
        assert mistake(capsys, line, code=1) == "could not write out.csv: [Errno 28] No space left"
    else:
        assert mistake(capsys, line, code=130) == "interrupted"
    assert Path("out.csv").read_text(encoding="utf-8") == "before"
    assert sorted(path.name for path in folder.iterdir()) == ["out.csv", "ratings.csv"]


def test_a_result_that_cannot_be_saved(ratings, capsys, monkeypatch):
    fail_with(monkeypatch, OSError(errno.ENOSPC, "No space left"), airnp.FitResult, "save")
    line = f"complete ratings.csv -o b.csv --result b.npz {QUICK}"
    assert mistake(capsys, line, code=1) == "could not write b.npz: [Errno 28] No space left"


@pytest.mark.parametrize("json_wanted", [False, True])
def test_ctrl_c_writes_the_result_so_far(json_wanted):
    table = np.random.default_rng(0).random((150, 150))
    table[::7, ::5] = NAN
    np.save("a.npy", table)
    line = "-m airnp complete a.npy -o b.npy --progress --regularizers air --max-iter 1000000"
    with start(*line.split(), *["--json"] * json_wanted, stderr=subprocess.PIPE) as started:
        shown = ""
        while "loss=" not in shown:
            character = started.stderr.read(1)
            assert character, f"it ended before it was interrupted: {shown}"
            shown += character
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=600)
    assert started.returncode == 130
    assert "Traceback" not in err
    assert np.isfinite(np.load("b.npy")).all()
    if json_wanted:
        done = json.loads(out)
        assert done["stop_reason"] == "interrupted"
        assert 0 < done["iterations"] < 1_000_000
    else:
        assert "wrote the result so far to b.npy" in out


IDS = "name,a,b\nx,1234567890123456789,1.10\ny,,+2e3\nz,1234567890123456791,\nw,7,0.50\n"


@pytest.mark.parametrize("method", ["", "--method air", "--regularizers air"])
def test_cells_come_back_to_the_character(capsys, method):
    write("ids.csv", IDS)
    assert (
        main(
            f"complete ids.csv -o out.csv {method} --max-iter 20 --quiet"
            if method
            else "complete ids.csv -o out.csv --quiet"
        )
        == 0
    )
    for before, after in zip(cells("ids.csv"), cells("out.csv"), strict=True):
        assert all(new == old or not old for old, new in zip(before, after, strict=True))


def test_integers_of_arrays_stay_what_they_are(capsys):
    large = np.random.default_rng(0).integers(2**60, 2**62, (6, 5))
    mask = np.random.default_rng(1).random(large.shape) < 0.7
    np.save("a.npy", large)
    np.save("m.npy", mask)
    line = f"complete a.npy --mask m.npy -o b.npy --force {QUICK}"
    assert "--round fills in whole numbers" in mistake(capsys, line)
    assert "which --checkpoint stores" in mistake(capsys, f"{line} --checkpoint run.npz --round")
    assert main(f"{line} --round") == 0
    filled = np.load("b.npy")
    assert filled.dtype == large.dtype
    np.testing.assert_array_equal(filled[mask], large[mask])
    assert main(f"complete a.npy --mask m.npy -o b.csv {QUICK}") == 0
    assert [
        cell
        for line, row in zip(cells("b.csv"), mask, strict=True)
        for cell, there in zip(line, row, strict=True)
        if there
    ] == [str(v) for v in large[mask]]
    write("ids.csv", IDS)
    assert ".csv and .tsv keep the cells" in mistake(capsys, f"complete ids.csv -o c.npy {QUICK}")


@pytest.mark.parametrize("method", ["auto", "air"])
def test_integers_of_parquet_files_stay_what_they_are(method):
    large = np.random.default_rng(0).integers(2**60, 2**62, (8, 3))
    mask = np.random.default_rng(1).random(large.shape) < 0.7
    np.save("m.npy", mask)
    pd.DataFrame(large, columns=list("abc")).to_parquet("a.parquet")
    options = "--method auto --quiet" if method == "auto" else f"--round --regularizers air {QUICK}"
    assert main(f"complete a.parquet --mask m.npy -o b.parquet {options}") == 0
    filled = pd.read_parquet("b.parquet")
    assert all(dtype.kind == "i" for dtype in filled.dtypes)
    np.testing.assert_array_equal(filled.to_numpy(np.int64)[mask], large[mask])


@pytest.mark.parametrize("options", ["--regularizers air", "--method auto"])
def test_one_odd_cell_does_not_make_words_of_numbers(capsys, options):
    odd = "a,b,c\n1,2,3\nx1,3,4\n3,,5\n4,5,6\n5,6,\n"
    write("odd.csv", odd)
    said = mistake(capsys, f"complete odd.csv -o out.csv {options}")
    assert "'x1' is not a number" in said
    assert "--missing" in said
    assert main(f"complete odd.csv -o out.csv {options} --missing x1 --quiet") == 0
    assert float(cells("out.csv")[2][0])
    write("labels.csv", "a,b,c\nu,2,3\nv,,4\nw,4,5\n")
    done = facts(capsys, "complete labels.csv -o out2.csv --regularizers air --max-iter 5")
    assert done["index"] == "a"


@pytest.mark.parametrize("options", ["--regularizers air", "--method auto"])
def test_columns_of_parquet_that_are_no_numbers_are_refused_by_name(capsys, options):
    b = [1.0, np.nan, 3.0, 4.0]
    for column in ([Decimal("1.5"), None, Decimal("2.5"), Decimal("3")], [[1], [2], [3], [4]]):
        pd.DataFrame({"a": column, "b": b}).to_parquet("odd.parquet")
        assert "'a'" in mistake(capsys, f"complete odd.parquet -o out.parquet {options} --force")
    assert main("complete odd.parquet -o out.parquet --ignore a --quiet") == 0


def test_ctrl_c_before_the_first_iteration_writes_nothing(ratings, capsys, monkeypatch):
    from airnp.training.steps import Steps

    fail_with(monkeypatch, KeyboardInterrupt(), Steps, "attempt")
    for line in (f"ratings.csv -o out.csv {QUICK}", f"ratings.csv -o out.csv --method air {QUICK}"):
        assert mistake(capsys, f"complete {line}", code=130) == "interrupted"
        assert not Path("out.csv").exists()


# --- airnp graph ---


def expected_graph(result, axis, k):
    return (result.row_graph(k=k) if axis == "rows" else result.column_graph(k=k)).adjacency.toarray()


@pytest.mark.parametrize(
    ("axis", "names"), [("rows", ["ann", "bob", "cyd", "dan"]), ("columns", ["a", "b", "c"])]
)
def test_graph_as_a_list_of_edges(axis, names, learned, capsys):
    done = facts(capsys, f"graph learned.npz -o graph.csv --axis {axis} --neighbours 1")
    weights = expected_graph(learned, axis, 1)
    head, *edges = cells("graph.csv")
    assert head == ["source", "target", "weight"]
    assert (done["nodes"], done["edges"]) == (len(names), len(edges))
    assert len(edges) == np.count_nonzero(weights) / 2
    for source, target, weight in edges:
        assert float(weight) == weights[names.index(source), names.index(target)] > 0


@pytest.mark.parametrize(("suffix", "read"), [(".npz", scipy.sparse.load_npz), (".mtx", scipy.io.mmread)])
def test_graph_as_a_sparse_matrix(suffix, read, learned, capsys):
    assert main(f"graph learned.npz -o graph{suffix}") == 0
    np.testing.assert_array_equal(read(f"graph{suffix}").toarray(), expected_graph(learned, "rows", None))
    assert capsys.readouterr().out.endswith(f"edges\nwrote graph{suffix}\n")


def test_graph_as_graphml(learned):
    assert main("graph learned.npz -o graph.graphml -k 1 --quiet") == 0
    space = "{http://graphml.graphdrawing.org/xmlns}"
    root = ElementTree.parse("graph.graphml").getroot()
    labels = [node.findtext(f"{space}data") for node in root.iter(f"{space}node")]
    assert labels == ["ann", "bob", "cyd", "dan"]
    weights = expected_graph(learned, "rows", 1)
    edges = list(root.iter(f"{space}edge"))
    assert len(edges) == np.count_nonzero(weights) / 2
    for edge in edges:
        place = int(edge.get("source")), int(edge.get("target"))
        assert float(edge.findtext(f"{space}data")) == weights[place]


def test_graphml_is_read_by_networkx_with_odd_labels():
    networkx = pytest.importorskip("networkx", reason="reads GraphML")
    write("a.csv", 'who,x,y\n<a & "b">,1,2\nc,2,\n')
    assert main(f"graph a.csv -o g.graphml {QUICK}") == 0
    graph = networkx.read_graphml("g.graphml")
    assert [node["label"] for _, node in graph.nodes(data=True)] == ['<a & "b">', "c"]


def test_graph_of_a_table_is_that_of_its_fit(learned):
    assert main("graph learned.npz -o first.csv --quiet") == 0
    assert main(f"graph ratings.csv -o second.csv {QUICK}") == 0
    assert Path("first.csv").read_bytes() == Path("second.csv").read_bytes()


def test_a_table_without_labels():
    np.save("a.npy", np.array([[1.0, NAN], [2.0, 3.0]]))
    assert main(f"complete a.npy -o b.npy --result b.npz {QUICK}") == 0
    result = airnp.load("b.npz")
    assert result.labels is None
    np.testing.assert_array_equal(result.completed(), np.load("b.npy"))
    assert main(f"graph a.npy -o g.csv {QUICK}") == 0
    assert cells("g.csv")[1][:2] == ["0", "1"]


def test_graph_mistakes(learned, capsys):
    Path("there.csv").touch()
    airnp.fit(np.eye(3), regularizers=[], max_iter=1, stop=None, seed=0).save("plain.npz")
    airnp.fit(np.ones((2, 3, 3)), max_iter=1, stop=None, seed=0).save("stack.npz")
    content = bytearray(Path("learned.npz").read_bytes())
    content[200] ^= 1
    Path("damaged.npz").write_bytes(content)
    for words, message in {
        "learned.npz -o g.png": "g.png: expected a name that ends in one of .csv, .npz, .graphml, .mtx",
        "ratings.csv -o g.csv --regularizers tv": "--regularizers tv learns no graph; air does",
        "none.npz -o g.csv": "[Errno 2] No such file or directory: 'none.npz'",
        "plain.npz -o g.csv": "plain.npz: this fit learned no graph over rows",
        "stack.npz -o g.csv": "stack.npz: is a stack of matrices",
        "damaged.npz -o g.csv": "damaged.npz: ",
        "ratings.csv -o there.csv": "there.csv is there already; --force overwrites",
    }.items():
        assert mistake(capsys, f"graph {words}").startswith(message)


# --- intervals ---


@pytest.mark.parametrize("name", ["out.csv", "out.tsv.gz", "out.npz"])
def test_intervals_are_those_of_the_result(name, sensors, capsys):
    done = facts(capsys, f"complete sensors.csv -o {name} --interval 0.8 {FIXED}")["interval"]
    result = airnp.fit(sensors.values, max_iter=60, engine=airnp.CPU(threads=1), seed=0)
    if name == "out.npz":
        assert (done["lower"], done["upper"]) == (name, name)
        with np.load(name) as arrays:
            found = arrays["lower"], arrays["upper"]
            np.testing.assert_array_equal(arrays["X"], result.completed())
    else:
        ends = [name.replace("out.", f"out.{end}.") for end in ("lower", "upper")]
        assert [done["lower"], done["upper"]] == ends
        found = [values(end) for end in ends]
        assert tables.read(Path(ends[0])).columns == sensors.columns
    for ours, expected in zip(found, result.interval(0.8), strict=True):
        np.testing.assert_array_equal(ours, expected)
    widths = (found[1] - found[0])[~sensors.observed]
    assert done["level"] == 0.8
    assert done["median_width"] == pytest.approx(np.median(widths))


def test_ends_of_intervals_are_overwritten_only_with_force(sensors, capsys):
    line = f"complete sensors.csv -o out.csv --interval 0.8 {FIXED}"
    write("out.upper.csv", "precious")
    assert mistake(capsys, line) == "out.upper.csv is there already; --force overwrites"
    assert not Path("out.csv").exists()
    assert main(f"{line} --force") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-3:] == ["wrote out.csv", "wrote out.lower.csv", "wrote out.upper.csv"]
    assert np.isfinite(values("out.upper.csv")).all()


@pytest.mark.parametrize("words", ["--regularizers air --max-iter 40000", "--max-iter 40000", "--auto"])
def test_too_high_a_level_is_noticed_before_the_fit(words, sensors, capsys, monkeypatch):
    forbid_fits(monkeypatch)
    shown = mistake(capsys, f"complete sensors.csv -o out.csv --interval 0.999 {words}")
    assert shown.startswith("--interval: 0.999 needs at least 999 held-out entries, there are ")


def test_the_table_is_written_even_without_intervals(sensors, capsys, monkeypatch):
    # With --auto and holes, nothing is checked before the fit.
    monkeypatch.setattr("airnp.commands.complete.check_interval_level", lambda *_: None)
    shown = mistake(capsys, f"complete sensors.csv -o out.csv --interval 0.999 {FIXED}", code=1)
    assert shown.startswith("wrote out.csv, but no intervals: --interval: 0.999 needs at least 999 held-out")
    assert np.isfinite(values("out.csv")).all()
    assert not Path("out.lower.csv").exists()


# --- resumed runs ---


def test_a_run_out_of_time_goes_on(sensors, capsys):
    assert main(f"complete sensors.csv -o whole.csv --quiet {FIXED}") == 0
    whole = Path("whole.csv").read_bytes()
    words = f"--checkpoint run.npz --checkpoint-every 5 {CUT_SHORT} {FIXED}"
    done = facts(capsys, f"complete sensors.csv -o out.csv {words}")
    assert done["checkpoint"] == "run.npz"
    assert done["iterations"] < 60
    assert Path("out.csv").read_bytes() != whole

    line = "complete --resume run.npz -o"
    assert mistake(capsys, f"{line} out.csv").startswith("out.csv is there already")
    done = facts(capsys, f"{line} out.csv --force --interval 0.5")
    assert Path("out.csv").read_bytes() == whole
    assert (done["input"], done["checkpoint"]) == ("run.npz", "run.npz")
    assert (done["rows"], done["columns"], done["index"], done["header"]) == (30, 12, "time", True)
    assert (done["iterations"], done["stop_reason"]) == (60, "max_iter (60) reached")
    assert Path("out.lower.csv").exists()

    assert main(f"{line} again.csv") == 0
    shown = capsys.readouterr().out.splitlines()[1]
    assert re.match(r"60 iterations in all, after \d+\.\d s more: ", shown)
    assert Path("again.csv").read_bytes() == whole


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_run_of_integers_ends_with_integers(suffix):
    stars = np.random.default_rng(0).integers(1, 6, (12, 9))
    stars[::2, ::3] = -1
    np.save("stars.npy", stars)
    line = f"complete stars.npy --missing=-1 --round --bounds 1 5 --quiet {FIXED}"
    assert main(f"{line} -o whole{suffix}") == 0
    assert main(f"{line} -o again{suffix} --checkpoint run.npz {CUT_SHORT}") == 0
    assert main(f"complete --resume run.npz -o again{suffix} --force --quiet") == 0
    expected, found = (np.load(f"{name}{suffix}") for name in ("whole", "again"))
    if suffix == ".npz":
        expected, found = expected["X"], found["X"]
    assert found.dtype == expected.dtype == np.int64
    np.testing.assert_array_equal(found, expected)


def test_a_resumed_run_may_have_more_iterations_and_shows_progress(sensors, capsys):
    words = "--regularizers air --threads 1 --quiet"
    line = f"complete sensors.csv -o short.csv --checkpoint run.npz {CUT_SHORT} --max-iter 150 {words}"
    assert main(line) == 0
    line = "complete --resume run.npz -o b.csv --checkpoint other.npz"
    shown = mistake(capsys, f"{line} --max-iter 10")
    assert shown == "--max-iter: expected at least the 150 that the run was to have, got 10"
    assert main(f"{line} --max-iter 200 --progress") == 0
    assert "200/200" in capsys.readouterr().err
    assert main(f"complete sensors.csv -o c.csv --max-iter 200 {words}") == 0
    assert Path("b.csv").read_bytes() == Path("c.csv").read_bytes()
    assert airnp.resume("other.npz").n_iter == 200


@pytest.mark.parametrize(
    ("text", "first", "lines"),
    [("1,,2\n2,3,\n", "1", 2), ("a,b\n1,2\n,3\n", "a", 3)],  # the second has a header, but no row labels
)
def test_a_resumed_run_has_the_labels_of_its_table(text, first, lines):
    write("a.csv", text)
    assert main(f"complete a.csv -o b.csv --checkpoint run.npz {CUT_SHORT} {QUICK}") == 0
    assert main("complete --resume run.npz -o c.csv --quiet") == 0
    found = cells("c.csv")
    assert (found[0][0], len(found)) == (first, lines)


def test_files_that_cannot_be_resumed(learned, capsys):
    Path("junk.npz").write_bytes(b"PK\x03\x04 junk")
    airnp.fit(np.ones((2, 3, 3)), max_iter=1, stop=None, seed=0, checkpoint="stack.npz")
    airnp.fit_sparse(scipy.sparse.eye_array(4), 2, max_iter=2, stop=None, seed=0, checkpoint="sparse.npz")
    for name, message in {
        "learned": "holds a result, but no run to go on with; see checkpoint= of airnp.fit",
        "junk": "not a result saved by airnp, or damaged",
        "stack": "is a stack of matrices",
        "sparse": "holds a sparse fit; Python's airnp.resume",
    }.items():
        shown = mistake(capsys, f"complete --resume {name}.npz -o b.csv --quiet")
        assert shown.startswith(f"{name}.npz: {message}")


# --- the sparse form ---


def test_the_sparse_form_is_that_of_fit_sparse(links, capsys):
    words = f"{SPARSE} --bounds 1 6 --round --result learned.npz"
    done = facts(capsys, f"complete links.mtx -o out.csv {words}")
    assert (done["form"], done["rows"], done["columns"]) == ("sparse", 12, 8)
    assert done["missing"] == 96 - links.nnz
    filled = values("out.csv")
    np.testing.assert_array_equal(filled[links.row, links.col], links.data)
    whole = [True] * 7 + [False]
    bounds, engine = airnp.Integers(1, 6, whole), airnp.CPU(threads=1)
    expected = airnp.fit_sparse(links, 2, bounds=bounds, engine=engine, max_iter=30, seed=0).X
    gaps = ~(links.toarray() != 0)
    np.testing.assert_array_equal(filled[gaps], expected[gaps])
    assert main("graph learned.npz -o graph.csv") == 0
    assert cells("graph.csv")[0] == ["source", "target", "weight"]


def test_a_matrix_that_is_too_large_to_write_is_saved_as_factors(links, capsys, monkeypatch):
    monkeypatch.setattr("airnp.commands.complete._LARGEST_WRITTEN", 50)
    shown = mistake(capsys, f"complete links.mtx -o out.npy {SPARSE}")
    expected = "out.npy: a matrix of 12x8 is not written whole; --result FILE.npz saves its factors"
    assert shown.startswith(expected)
    assert main(f"complete links.mtx --result learned.npz {SPARSE}") == 0
    assert capsys.readouterr().out.endswith("wrote learned.npz\n")
    assert airnp.load("learned.npz").predict(0, 0).shape == ()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--interval 0.9", "--interval: not with the sparse form; --form dense has it"),
        ("--checkpoint c.npz", "--checkpoint: not with the sparse form; --form dense has it"),
        ("--bounds 1 4", "numbers are outside --bounds 1 4, the first is 5 in row "),
        ("--rank 9", "--rank: expected at most min(m, n) = 8"),
        ("--regularizers tv", "--regularizers: fit_sparse has "),
        ("--form dense --depth 1 --rank 99", "--rank: "),
    ],
)
def test_mistakes_with_the_sparse_form(words, message, links, capsys):
    assert message in mistake(capsys, f"complete links.mtx -o b.csv {SPARSE} {words}")


def test_only_the_form_that_is_asked_for_is_fitted(links, capsys):
    line = "complete links.mtx -o b.csv --max-iter 5 --threads 1"
    assert mistake(capsys, f"{line} --form sparse") == "--form sparse needs --rank, for example --rank 32"
    assert facts(capsys, f"{line} --rank 2")["form"] == "dense"


def test_a_table_that_does_not_fit_into_memory_names_the_sparse_form(ratings, capsys, monkeypatch):
    fail_with(monkeypatch, MemoryError("too large; see airnp.fit_sparse"))
    shown = mistake(capsys, "complete ratings.csv -o b.csv --max-iter 40000", code=1)
    assert shown.endswith("see airnp.fit_sparse; here: --form sparse --rank N")
