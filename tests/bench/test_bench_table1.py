"""``python -m bench.table1`` on problems of a few entries, with methods whose errors are known."""

from __future__ import annotations

import html
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bench import cells, paper_rows, table1, table1_page
from bench.cells import Cells, Experiment, Method, Task
from bench.paper_rows import Problem, Row
from bench.table1 import METHODS, PAPER

ROOT = Path(__file__).resolve().parents[2]
COMPUTE_ALL = cells.compute_all


# Worker processes import the functions below by name.


def load(seed):
    truth = np.linspace(0.0, 1.0, 12).reshape(3, 4)
    mask = np.ones(truth.shape, dtype=bool)
    mask[seed % 3, 1] = False
    return Problem(truth, mask)


def off_by(problem, seed, error=0.1, log=None):
    """A method with a known NMAE: the range of the truth is 1, and one entry is missing."""
    note(log, f"ran {seed}")
    assert np.isnan(problem.observed[~problem.mask]).all()
    return problem.truth + error * (1 + seed), {}


def fit(problem, seed, error=0.1, log=None, **settings):
    note(log, f"ran {seed}")
    trajectory = [[1, 0.5], [100, error], [200, 2 * error]]
    kept = {"n_iter": 200, "best_iter": 100, "stop_reason": "because", "trajectory": trajectory}
    return problem.truth + error * (1 + seed / 100), kept


def fail_without(problem, seed, file):
    if not Path(file).exists():
        raise ValueError("no | such <thing>")
    return problem.truth + 0.3, {}


def die(problem, seed):
    os._exit(7)


def report_threads(problem, seed):
    return problem.truth + 0.1, {"threads": {name: os.environ.get(name) for name in cells.POOLS}}


def sleep(problem, seed):
    sys.stderr.write(f"began {os.getpid()}\n")
    time.sleep(3600)  # until the test ends it


def note(log, text):
    if log is not None:
        with open(log, "a", encoding="utf-8") as file:
            file.write(text + "\n")


def notes(log):
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


DRAWN = Row("Drawn 30%", load, {"knn": 0.2, "air": 0.15})
FIXED = Row("Fixed patch", load, {"knn": 0.05, "air": 0.15}, has_fixed_mask=True, is_image=True)


def experiment(**methods):
    return Experiment({row.name: row for row in (DRAWN, FIXED)}, methods)


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    """Compute cells in this process, to save the start of another."""

    def compute_all(tasks, experiment, folder, jobs):
        for task in tasks:
            yield task, Cells(folder).compute(task, experiment)

    monkeypatch.setattr(cells, "compute_all", compute_all)


def run(found, out, *words):
    return table1.main(["--out", str(out), "--seeds", "2", *words], found)


def run_drawn(found, out, *words):
    return run(found, out, "--rows", DRAWN.name, *words)


def table(out, name="table1.json"):
    text = (out / name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith("json") else text


# --- cells ---


def test_only_missing_and_requested_cells_are_computed(tmp_path, log, monkeypatch, capsys):
    method = Method("logging", off_by, {"log": str(log)})
    found = experiment(knn=method, svd=method)

    def runs_after(*words):
        assert run_drawn(found, tmp_path, *words) == 0
        return len(notes(log))

    assert runs_after("--seeds", "1", "--methods", "knn") == 1
    assert runs_after("--methods", "knn") == 2
    assert runs_after() == runs_after() == 4
    assert runs_after("--redo", "knn") == 6
    with pytest.raises(SystemExit):
        run(found, tmp_path, "--redo", "nonsense")
    assert table(tmp_path)["stale"] == {}
    monkeypatch.setattr(cells, "source_hash", lambda fits: "changed")
    assert runs_after() == 6
    assert table(tmp_path)["stale"] == {"knn": 2, "svd": 2}
    assert "knn 2, svd 2. --redo stale" in table(tmp_path, "table1.md")
    assert runs_after("--redo", "stale") == 10
    assert table(tmp_path)["stale"] == {}
    # A file without a record is as good as none.
    first, second, *_ = sorted((tmp_path / "cells").iterdir())
    first.write_text('{"row": "Drawn')
    second.write_text("[1]")
    assert runs_after() == 12
    assert f"{first.name}: no record" in capsys.readouterr().err


def test_the_source_hash_covers_the_code_of_fits_and_baselines(tmp_path, monkeypatch):
    assert all((cells._PACKAGE / name).exists() for name in (*cells._FITTING, *cells._PROBLEMS, "baselines"))
    monkeypatch.setattr(cells, "_PACKAGE", tmp_path)
    monkeypatch.setattr(cells, "_code_hash", cells._code_hash.__wrapped__)  # nothing is remembered
    imports = "from airnp.training.loop import run\n\n\ndef f():\n    from airnp.engines import cpu\n"
    files = ("training/loop", "plot", "engines/__init__", "engines/cpu", "baselines/knn")

    def hashes(**changes):
        for name, text in {"fitting": imports, **dict.fromkeys(files, ""), **changes}.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return [cells.source_hash(fits) for fits in (True, False)]

    before = hashes()
    documented = imports.replace("def f():", 'def f():\n    """Do it."""  # now')
    assert hashes(fitting=f'"""Module."""\n{documented}') == before
    of_fits, of_baselines = [True, False], [False, True]
    imported = dict.fromkeys(("training/loop", "engines/__init__", "engines/cpu"), of_fits)
    for name, expected in {**imported, "baselines/knn": of_baselines, "plot": [False, False]}.items():
        after = hashes(**{name: "x = 1\n"})
        assert [new != old for new, old in zip(after, before, strict=True)] == expected, name


def test_cells_of_other_settings_do_not_mix(tmp_path, log, monkeypatch):
    monkeypatch.setattr(table1, "QUICK_ROWS", (DRAWN.name,))
    fits = Method("AIR", fit, {"log": str(log)}, is_fit=True)
    found = experiment(air=fits, air_full=fits)

    def iterations(out):
        return [cell["settings"].get("max_iter") for cell in table(out)["cells"]]

    run(found, tmp_path, "--quick")
    assert iterations(tmp_path / "quick") == [table1.QUICK_ITERATIONS] * 4
    run_drawn(found, tmp_path)
    full = table(tmp_path)
    assert iterations(tmp_path) == [None] * 4
    run_drawn(found, tmp_path, "--full-iterations", "30")
    assert iterations(tmp_path) == [None, None, 30, 30]
    assert len(notes(log)) == 4 + 4 + 2
    # Not even if they were in one folder.
    for path in (tmp_path / "quick" / "cells").iterdir():
        path.rename(tmp_path / "cells" / path.name)
    run_drawn(found, tmp_path)  # the first ones are still there
    assert len(notes(log)) == 10
    assert table(tmp_path) == full


def test_failed_cells_are_shown_and_tried_again(tmp_path, capsys):
    file = tmp_path / "file"
    svd = Method("SVD", fail_without, {"file": str(file)})
    found = experiment(svd=svd, pnmc=Method("PNMC", off_by, {"error": np.inf}))
    assert run_drawn(found, tmp_path) == 1
    assert "4 cells failed" in capsys.readouterr().err
    assert [cell["error"] for cell in table(tmp_path)["failed"]] == [
        *["ValueError: no | such <thing>"] * 2,
        *["ArithmeticError: the error on missing entries is inf"] * 2,
    ]
    assert f"| {DRAWN.name} | failed 2 failed | failed 2 failed |" in table(tmp_path, "table1.md")
    assert r"ValueError: no \| such <thing>" in table(tmp_path, "table1.md")
    assert "ValueError: no | such &lt;thing&gt;" in table(tmp_path, "table1.html")
    file.touch()
    assert run_drawn(found, tmp_path, "--methods", "svd") == 0
    svd, pnmc = table(tmp_path)["rows"][0]["entries"].values()
    assert (svd["mean"], svd["failed"]) == (pytest.approx(0.3), 0)
    assert pnmc["failed"] == 2  # not requested, but still there


# --- processes ---


def test_a_process_that_dies_fails_its_cell_only(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "compute_all", COMPUTE_ALL)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    found = experiment(dmf=Method("DMF", die), knn=Method("KNN", report_threads))
    assert run_drawn(found, tmp_path, "--seeds", "1", "--jobs", "1") == 1
    died, lived = table(tmp_path)["cells"]
    assert "ended with code 7" in died["error"]
    assert (died["method"], lived["method"], lived["status"]) == ("dmf", "knn", "done")
    # Each process has one thread, and this one its environment back.
    assert set(lived["threads"].values()) == {"1"}
    assert os.environ["OMP_NUM_THREADS"] == "3"
    assert "NUMBA_NUM_THREADS" not in os.environ


COMMAND = """
import sys
from tests.bench.test_bench_table1 import Method, experiment, off_by, run_drawn, sleep

found = experiment(knn=Method("KNN", off_by), dmf=Method("DMF", sleep))
sys.exit(run_drawn(found, sys.argv[1], "--seeds", "1", "--jobs", "1"))
"""


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT], ids=lambda by: by.name)
def test_a_stopped_run_keeps_its_cells_and_leaves_no_process(tmp_path, by):
    words, path = [sys.executable, "-c", COMMAND, str(tmp_path)], {"PYTHONPATH": str(ROOT)}
    options = {"cwd": tmp_path, "env": os.environ | path, "start_new_session": True, "text": True}
    with subprocess.Popen(words, stderr=subprocess.PIPE, **options) as command:
        try:
            worker = next(line.split()[1] for line in command.stderr if line.startswith("began"))
            if by == signal.SIGINT:  # a terminal sends it to the whole group, and the worker ignores it
                status = Path(f"/proc/{worker}/status").read_text()
                assert int(re.search(r"SigIgn:\s*(\w+)", status)[1], 16) >> (by - 1) & 1
                os.killpg(command.pid, by)
            else:
                command.send_signal(by)
            error = command.stderr.read()  # it ends when the last process that could write has ended
        finally:
            command.kill()
    assert [(cell["method"], cell["status"]) for cell in Cells(tmp_path).all()] == [("knn", "done")]
    if by == signal.SIGINT:
        assert command.returncode == 130
        assert "goes on from here" in error
        assert "Traceback" not in error
        assert table(tmp_path)["rows"][0]["entries"]["knn"]["n"] == 1


# --- what the tables say ---


def html_fields(page):
    """Return the fields of all tables of a page, line by line, in the notation of Markdown."""
    lines = [line for line in page.splitlines() if line.startswith("<tr>")]
    plain = re.sub(r"</?b>", "**", re.sub(r"</?small>", "", "\n".join(lines)))
    return [
        [html.unescape(field) for field in re.findall(r"<t[dh].*?>(.*?)</t[dh]>", line)]
        for line in plain.splitlines()
    ]


@pytest.fixture
def whole(tmp_path):
    """A folder with all kinds of cells: goals met and missed, random and fixed masks, seeded and not."""
    found = experiment(
        knn=Method("KNN", off_by, column="knn", is_seeded=False),
        rdmf=Method("RDMF", off_by, {"error": 0.004}, rows="images"),
        air=Method("AIR", fit, {"error": 0.14}, column="air", is_fit=True),
        air_full=Method("AIR, never stopped", fit, {"error": 0.13, "max_iter": 20}, is_fit=True),
    )
    assert run(found, tmp_path) == 0
    return tmp_path


def test_json_markdown_and_html_say_the_same(whole):
    report, text, page = (table(whole, f"table1.{kind}") for kind in ("json", "md", "html"))
    of_knn = report["rows"][0]["entries"]["knn"]
    assert (of_knn["mean"], of_knn["ratio"]) == pytest.approx((0.15, 0.15 / 0.2))
    random = "0.1500 ± 0.0707 (paper 0.2000) | – | **0.1407 ± 0.0010** (paper 0.1500) ✓ | 0.1500 AIR |"
    assert f"| Drawn 30% | {random}" in text
    once = "0.1000 (paper 0.0500), n = 1 | **0.00600 ± 0.00283** | 0.1407 ± 0.0010 (paper 0.1500) ✗ |"
    assert f"| Fixed patch | {once} 0.0500 KNN |" in text
    in_markdown = [
        [re.sub(" [✓✗]$", "", field.strip()) for field in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and "---" not in line
    ]
    assert html_fields(page) == in_markdown
    # The same fields are marked in both.
    signs = {"met": "✓", "missed": "✗"}
    assert [signs[style] for style in re.findall(r'<td class="(\w+)"', page)] == re.findall("[✓✗]", text)
    assert not re.search(r"(src|href|url|@import|<script)", page)


def test_the_verdict_is_over_seeds_and_by_how_much(whole):
    assert [verdict["met"] for verdict in table(whole)["verdicts"]] == [True, False]
    cells = [{"row": DRAWN.name, "method": "air", "status": "done", "nmae": v} for v in (0.16, 0.139, 0.16)]
    verdict = table1_page._verdict(DRAWN, cells, 5)  # by the mean, whatever single seeds do
    assert (verdict["met"], verdict["seeds_met"], verdict["n"], verdict["wanted"]) == (False, 1, 3, 5)
    text = table(whole, "table1.md")
    assert "at least as good as the paper's best number on 1 of 2 rows." in text
    assert "| Drawn 30% | 0.1407 ✓ | 0.1500 AIR | 6.2 % below | 2 of 2 |" in text
    assert "| Fixed patch | 0.1407 ✗ | 0.0500 KNN | 181.4 % above | 0 of 2 |" in text


@pytest.mark.parametrize(
    ("nmae", "never_stopped", "expected"),
    [(0.11, [], 0.1), (0.09, [], -0.1), (0.11, [0.08], 0.03 / 0.08), (0.11, [0.3], 0.1)],
)
def test_regret_is_against_the_lowest_of_both_trajectories(nmae, never_stopped, expected):
    own = {"row": "a", "seed": 3, "nmae": nmae, "trajectory": [[1, 0.5], [100, 0.1], [200, 0.2]]}
    longer = [{"trajectory": [[1, 0.5], [5000, lowest]]} for lowest in never_stopped]
    found = table1_page.regret(own, longer)
    assert found["regret"] == pytest.approx(expected)
    assert found["against"] == ("own and never stopped" if longer else "own")


def test_regret_is_summarized_over_runs(whole, tmp_path):
    """The lowest of the two trajectories is 0.13; 0.14 and 0.1414 are returned."""
    text, own_only = table(whole, "table1.md"), "For 2 of them there is no run without a stop"
    assert "median 8.2 % (goal: at most 1.0 %), worst 8.8 % (goal: at most 8.0 %)" in text
    assert own_only not in text
    run_drawn(experiment(air=Method("AIR", fit, column="air", is_fit=True)), tmp_path / "alone")
    assert own_only in table(tmp_path / "alone", "table1.md")


@pytest.mark.parametrize(
    ("goal", "iteration", "seconds"),
    [(0.2, 100, 2.0), (0.15, 200, 4.0), (0.095, 400, 8.0), (0.05, None, None)],  # 0.095: the result only
)
def test_time_to_a_number(goal, iteration, seconds):
    cell = {"row": "a", "seed": 0, "nmae": 0.09, "seconds": 8.0, "stop_reason": "because"}
    cell |= {"n_iter": 400, "best_iter": 300, "trajectory": [[1, 0.5], [100, 0.2], [200, 0.1], [300, 0.12]]}
    found = table1_page.time_to(goal, cell)
    assert (found["iteration"], found["seconds"]) == (iteration, seconds)


def test_a_report_covers_existing_and_requested_cells(tmp_path):
    found = experiment(knn=Method("KNN", off_by), svd=Method("SVD", off_by), dmf=Method("DMF", off_by))
    run_drawn(found, tmp_path, "--methods", "knn")
    run_drawn(found, tmp_path, "--methods", "svd", "--seeds", "1")
    report = table(tmp_path)
    assert list(report["methods"]) == ["knn", "svd"]
    assert [line["row"] for line in report["rows"]] == [DRAWN.name]
    assert report["seeds"] == 2
    assert report["rows"][0]["entries"]["svd"]["wanted"] == 2
    assert "**0.1000** n = 1 of 2" in table(tmp_path, "table1.md")
    assert run(found, tmp_path, "--report-only") == 0
    assert "not run" in table(tmp_path, "table1.md")
    assert len(table(tmp_path)["cells"]) == len(report["cells"]) == 3


# --- the paper's own rows and methods ---


def test_the_goals_are_the_papers_best_numbers():
    goals = [row.goal for row in paper_rows.ROWS.values()]
    assert goals == [0.0471, 0.1195, 0.0692, 0.0814, 0.1195, 0.1208, 0.0002, 0.0003, 0.0007, 0.0134, 0.0245]
    assert paper_rows.ROWS["Baboon patch"].best_printed == "knn"
    assert paper_rows.ROWS["GPCR 20%"].best_printed == "dmf_de"


def test_methods_run_on_the_rows_they_are_meant_for():
    image, ratings = PAPER.rows["Barbara texture"], PAPER.rows["Syn-Netflix 70%"]
    assert {name for name in METHODS if not METHODS[name].suits(image)} == {"dmf_de"}
    inpainting = {"linear", "biharmonic", "navier_stokes", "telea", "fsr"}
    assert {name for name in METHODS if not METHODS[name].suits(ratings)} == {"pnmc", "rdmf", *inpainting}
    once = {name for name in METHODS if len(METHODS[name].seeds(image, 5)) == 1}
    assert once == {"mean", "knn", *inpainting}
    assert {len(method.seeds(ratings, 5)) for method in METHODS.values()} == {5}
    assert set(table1.QUICK_ROWS) <= set(PAPER.rows)
    assert set(table1.QUICK_METHODS) <= set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_completes_a_small_problem(name):
    rng = np.random.default_rng(0)
    truth = (rng.random((14, 2)) @ rng.random((2, 12))).astype(np.float32)
    path = np.eye(14, k=1) + np.eye(14, k=-1)
    problem = Problem(truth, rng.random(truth.shape) < 0.8, {"row_graph": path, "column_graph": None})
    row = Row("Small 20%", lambda seed: problem, {"air": 0.1})
    method = METHODS[name]
    settings = {**method.settings, **({"max_iter": 120} if method.is_fit else {})}
    if name == "pnmc":
        settings |= {"trials": 1, "epochs": 1}
    small, task = Experiment({row.name: row}, {name: method}), Task(row.name, name, 1, settings)
    found = small.solve(task)
    assert 0 < found["nmae"] < 1
    assert small.solve(task)["nmae"] == found["nmae"]
    assert not METHODS["air"].settings  # plain airnp.fit(Y, mask, seed=seed)
    if name in ("air", "air_full"):
        iterations = [iteration for iteration, _ in found["trajectory"]]
        assert iterations[:2] == [1, 100]
        assert found["n_iter"] == iterations[-1] == 120


def test_the_seed_draws_the_mask_unless_it_is_fixed(monkeypatch):
    class Data:
        matrix = np.arange(60 * 60.0).reshape(60, 60)
        row_graph = column_graph = None

    monkeypatch.setitem(paper_rows.LOADERS, "Barbara", Data)
    for name, is_fixed in (("Barbara 30%", False), ("Barbara patch", True)):
        first, second = (paper_rows.load(name, seed).mask for seed in (0, 1))
        assert np.array_equal(first, second) == PAPER.rows[name].has_fixed_mask == is_fixed
        assert is_fixed or 0.6 < first.mean() < 0.8


# --- binary tables ---


def load_binary(seed):
    truth = np.zeros((3, 4))
    truth[0, :2] = 1
    mask = np.zeros(truth.shape, dtype=bool)
    mask[0, 0] = True
    return Problem(truth, mask)


def all_zero(problem, seed):
    return np.zeros(problem.truth.shape), {}


def cautious(problem, seed):
    return 0.3 + 0.2 * problem.truth, {}


def test_binary_rows_have_rmse_and_aupr(tmp_path):
    """Zero everywhere has the lower NMAE and RMSE; only AUPR says that it finds nothing."""
    binary = Row("Binary", load_binary, {"knn": 0.1, "air": 0.1}, is_binary=True)
    found = Experiment(
        {DRAWN.name: DRAWN, binary.name: binary},
        {"mean": Method("zero", all_zero), "knn": Method("cautious", cautious)},
    )
    assert run(found, tmp_path) == 0
    drawn, line = table(tmp_path)["rows"]
    assert drawn["binary"] == {}
    assert line["binary"]["aupr"] == {"mean": pytest.approx(1 / 11), "knn": 1.0}
    assert line["binary"]["rmse"]["mean"] == pytest.approx(np.sqrt(1 / 11))
    text = table(tmp_path, "table1.md")
    section = text.partition("## RMSE and AUPR of binary tables")[2]
    assert "| Binary | AUPR | 0.0909 | **1.0000** |" in section
    assert "Drawn" not in section.partition("\n## ")[0]
