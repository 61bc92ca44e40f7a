"""``python -m bench.table1`` on problems of a few entries, with methods whose errors are known."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from bench import paper_rows, table1, table1_cells, table1_summary, table1_workers
from bench.paper_rows import Problem, Row
from bench.table1_cells import Cells
from bench.table1_methods import METHODS, PAPER, Experiment, Method, Task

ROOT = Path(__file__).resolve().parents[2]


# Everything below has a name that a worker process can import.


def load(seed):
    truth = np.linspace(0.0, 1.0, 12).reshape(3, 4)
    mask = np.ones(truth.shape, dtype=bool)
    mask[seed % 3, 1] = False
    return Problem(truth, mask)


def off_by(problem, seed, error=0.1, log=None):
    """A method whose NMAE is known: the truth is 1 wide, one entry is missing."""
    note(log, f"ran {seed}")
    assert np.isnan(problem.observed[~problem.mask]).all()
    return problem.truth + error * (1 + seed), {}


def fitted(problem, seed, error=0.1, log=None, **settings):
    note(log, f"ran {seed}")
    trajectory = [[1, 0.5], [100, error], [200, 2 * error]]
    kept = {"n_iter": 200, "best_iter": 100, "stop_reason": "because", "trajectory": trajectory}
    return problem.truth + error * (1 + seed / 100), kept


def broken_until_mended(problem, seed, mended):
    if not Path(mended).exists():
        raise ValueError("no | such <thing>")
    return problem.truth + 0.3, {}


def nan(problem, seed):
    return np.full(problem.truth.shape, np.nan), {}


def dies(problem, seed):
    os._exit(7)


def threads(problem, seed):
    return problem.truth + 0.1, {"threads": {name: os.environ.get(name) for name in table1_workers.POOLS}}


def sleeps(problem, seed, log):
    note(log, f"began {os.getpid()}")
    time.sleep(600)


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


@pytest.fixture
def at_once(monkeypatch):
    """Cells one after the other in this process, which spares the start of another."""

    def compute_all(tasks, experiment, folder, jobs):
        for task in tasks:
            yield task, Cells(folder).compute(task, experiment)

    monkeypatch.setattr(table1, "compute_all", compute_all)


def run(found, out, *words):
    return table1.main(["--out", str(out), "--seeds", "2", *words], found)


def table(out, name="table1.json"):
    text = (out / name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith("json") else text


# --- cells ---


@pytest.mark.usefixtures("at_once")
def test_a_finished_cell_is_not_computed_again(tmp_path, log):
    found = experiment(knn=Method("KNN", off_by, {"log": str(log)}))
    assert run(found, tmp_path, "--rows", DRAWN.name, "--seeds", "1") == 0
    assert notes(log) == ["ran 0"]
    assert run(found, tmp_path, "--rows", DRAWN.name) == 0
    assert notes(log) == ["ran 0", "ran 1"]
    assert run(found, tmp_path, "--rows", DRAWN.name) == 0
    assert len(notes(log)) == 2


@pytest.mark.usefixtures("at_once")
def test_redo_forgets_the_cells_that_are_named(tmp_path, log):
    found = experiment(
        knn=Method("KNN", off_by, {"log": str(log)}), svd=Method("SVD", off_by, {"log": str(log)})
    )
    run(found, tmp_path)
    before = len(notes(log))
    run(found, tmp_path, "--redo", "knn", "--rows", DRAWN.name)
    assert len(notes(log)) == before + 2
    with pytest.raises(SystemExit):
        run(found, tmp_path, "--redo", "nonsense")


@pytest.mark.usefixtures("at_once")
def test_cells_of_other_code_stay_are_named_and_can_be_redone(tmp_path, log, monkeypatch):
    found = experiment(knn=Method("KNN", off_by, {"log": str(log)}))
    run(found, tmp_path, "--rows", DRAWN.name)
    assert table(tmp_path)["stale"] == {}
    monkeypatch.setattr(table1_cells, "source_hash", lambda fits: "changed")
    monkeypatch.setattr(table1_summary, "source_hash", lambda fits: "changed")
    run(found, tmp_path, "--rows", DRAWN.name)
    assert len(notes(log)) == 2
    assert table(tmp_path)["stale"] == {"knn": 2}
    assert "knn 2. --redo stale" in table(tmp_path, "table1.md")
    run(found, tmp_path, "--rows", DRAWN.name, "--redo", "stale")
    assert len(notes(log)) == 4
    assert table(tmp_path)["stale"] == {}


def test_comments_and_docstrings_do_not_change_the_fingerprint(tmp_path, monkeypatch):
    monkeypatch.setattr(table1_cells, "_PACKAGE", tmp_path)

    def fingerprints(fit="def f():\n    return 1\n", baseline=""):
        (tmp_path / "baselines").mkdir(exist_ok=True)
        (tmp_path / "fitting.py").write_text(fit)
        (tmp_path / "baselines" / "knn.py").write_text(baseline)
        return [table1_cells.source_hash.__wrapped__(fits) for fits in (True, False)]

    of_fits, of_baselines = fingerprints()
    assert fingerprints('"""Module."""\n\ndef f():\n    """Say."""\n    return 1  # one\n')[0] == of_fits
    assert fingerprints("def f():\n    return 2\n") == [
        fingerprints("def f():\n    return 2\n")[0],
        of_baselines,
    ]
    assert fingerprints("def f():\n    return 2\n")[0] != of_fits
    changed = fingerprints(baseline="k = 3\n")
    assert changed[0] == of_fits
    assert changed[1] != of_baselines


def test_only_what_a_fit_imports_changes_the_fingerprint_of_fits(tmp_path, monkeypatch):
    monkeypatch.setattr(table1_cells, "_PACKAGE", tmp_path)
    for folder in ("engines", "running"):
        (tmp_path / folder).mkdir()

    def fingerprint(**files):
        imports = "from airnp.training.loop import run\n\n\ndef f():\n    from airnp.engines import cpu\n"
        empty = ("running/loop", "plot", "engines/__init__", "engines/cpu")
        sources = {"fitting": imports, **dict.fromkeys(empty, ""), **files}
        for name, text in sources.items():
            (tmp_path / f"{name}.py").write_text(text)
        return table1_cells.source_hash.__wrapped__(True)

    before = fingerprint()
    assert fingerprint(plot="x = 1\n") == before
    for name in ("running/loop", "engines/__init__", "engines/cpu"):
        assert fingerprint(**{name: "x = 1\n"}) != before, name


@pytest.mark.usefixtures("at_once")
def test_a_cell_of_other_settings_is_another_cell(tmp_path, log):
    fits = Method("full", fitted, {"log": str(log), "max_iter": 20}, is_fit=True)
    found = experiment(air_full=fits, air=fits)
    run(found, tmp_path, "--rows", DRAWN.name)
    assert len(notes(log)) == 4
    run(found, tmp_path, "--rows", DRAWN.name, "--full-iterations", "30")
    assert len(notes(log)) == 6
    used = {cell["settings"]["max_iter"] for cell in table(tmp_path)["cells"] if cell["method"] == "air_full"}
    assert used == {30}
    run(found, tmp_path, "--rows", DRAWN.name)  # those of before are still there
    assert len(notes(log)) == 6


@pytest.mark.usefixtures("at_once")
def test_quick_and_full_do_not_mix(tmp_path, log, monkeypatch):
    monkeypatch.setattr(table1, "QUICK_ROWS", (DRAWN.name,))
    found = experiment(air=Method("AIR", fitted, {"log": str(log)}, is_fit=True))
    run(found, tmp_path, "--quick")
    run(found, tmp_path)
    assert len(notes(log)) == 2 + 4
    quick, full = table(tmp_path / "quick"), table(tmp_path)
    assert [cell["settings"]["max_iter"] for cell in quick["cells"]] == [table1.QUICK_ITERATIONS] * 2
    assert len(full["cells"]) == 4
    assert not any("max_iter" in cell["settings"] for cell in full["cells"])
    # Not even if they lay in one folder.
    for path in (tmp_path / "quick" / "cells").iterdir():
        path.rename(tmp_path / "cells" / path.name)
    run(found, tmp_path, "--report-only")
    assert table(tmp_path) == full


@pytest.mark.usefixtures("at_once")
def test_what_is_not_a_record_is_computed_again(tmp_path, log, capsys):
    found = experiment(knn=Method("KNN", off_by, {"log": str(log)}))
    run(found, tmp_path, "--rows", DRAWN.name)
    first, second = sorted((tmp_path / "cells").iterdir())
    first.write_text('{"row": "Drawn')
    second.write_text("[1]")
    run(found, tmp_path, "--rows", DRAWN.name)
    assert len(notes(log)) == 4
    assert f"{first.name}: no record" in capsys.readouterr().err


def test_a_write_that_breaks_off_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "cells" / "a.json"
    table1_cells.write_whole(path, "before")

    def full(number):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="disk full"):
            table1_cells.write_whole(path, "after")
    assert path.read_text() == "before"
    assert list(Cells(tmp_path).folder.glob("*.json")) == [path]
    table1_cells.write_whole(path, "after")
    assert list(path.parent.iterdir()) == [path]
    assert path.read_text() == "after"


@pytest.mark.usefixtures("at_once")
def test_failed_cells_are_shown_and_tried_again(tmp_path, capsys):
    mended = tmp_path / "mended"
    found = experiment(
        svd=Method("SVD", broken_until_mended, {"mended": str(mended)}), pnmc=Method("PNMC", nan)
    )
    assert run(found, tmp_path, "--rows", DRAWN.name) == 1
    assert "4 cells failed" in capsys.readouterr().err
    assert [cell["error"] for cell in table(tmp_path)["failed"]] == [
        *["ValueError: no | such <thing>"] * 2,
        *["ArithmeticError: the error on missing entries is nan"] * 2,
    ]
    assert f"| {DRAWN.name} | failed 2 failed | failed 2 failed |" in table(tmp_path, "table1.md")
    assert r"ValueError: no \| such <thing>" in table(tmp_path, "table1.md")
    assert "ValueError: no | such &lt;thing&gt;" in table(tmp_path, "table1.html")
    mended.touch()
    assert run(found, tmp_path, "--rows", DRAWN.name, "--methods", "svd") == 0
    (line,) = table(tmp_path)["rows"]
    assert line["entries"]["svd"]["mean"] == pytest.approx(0.3)
    assert line["entries"]["svd"]["failed"] == 0
    assert line["entries"]["pnmc"]["failed"] == 2  # not asked for now, but still there


# --- processes ---


def test_a_process_that_dies_fails_its_cell_only(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    found = experiment(dmf=Method("DMF", dies), knn=Method("KNN", threads))
    assert run(found, tmp_path, "--rows", DRAWN.name, "--seeds", "1", "--jobs", "1") == 1
    (line,) = table(tmp_path)["rows"]
    assert line["entries"]["dmf"]["failed"] == 1
    assert "ended with code 7" in table(tmp_path)["failed"][0]["error"]
    assert line["entries"]["knn"]["n"] == 1
    # Each process has one thread, and this one its own environment back.
    (kept,) = (cell["threads"] for cell in table(tmp_path)["cells"] if cell["method"] == "knn")
    assert set(kept.values()) == {"1"}
    assert os.environ["OMP_NUM_THREADS"] == "3"
    assert "NUMBA_NUM_THREADS" not in os.environ


COMMAND = """
import sys
from bench import table1
from tests.bench.test_bench_table1 import DRAWN, Method, experiment, off_by, sleeps

if __name__ == "__main__":
    out, log = sys.argv[1:]
    found = experiment(knn=Method("KNN", off_by), dmf=Method("DMF", sleeps, {"log": log}))
    sys.exit(table1.main(["--out", out, "--rows", DRAWN.name, "--seeds", "1", "--jobs", "1"], found))
"""


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT], ids=lambda by: by.name)
def test_a_run_that_is_stopped_keeps_what_it_has_and_leaves_nobody_behind(tmp_path, log, by):
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    command = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), str(log)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for(lambda: notes(log))
        worker = int(notes(log)[0].removeprefix("began "))
        if (
            by == signal.SIGINT
        ):  # a terminal sends it to the worker as well, which must leave it to the command
            os.kill(worker, by)
            time.sleep(0.2)
        command.send_signal(by)
        error = command.communicate(timeout=120)[1]
        wait_for(lambda: not is_running(worker))
    finally:
        command.kill()
    assert [(cell["method"], cell["status"]) for cell in Cells(tmp_path).all()] == [("knn", "done")]
    if by == signal.SIGINT:
        assert command.returncode == 130
        assert "goes on from here" in error
        assert "Traceback" not in error
        assert table(tmp_path)["rows"][0]["entries"]["knn"]["n"] == 1


def wait_for(condition):
    limit = time.monotonic() + 120  # an interpreter has to start, on a machine that may be busy
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.02)


def is_running(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


# --- what the tables say ---


class Fields(HTMLParser):
    """The fields of all tables of a page, line by line."""

    def __init__(self):
        super().__init__()
        self.lines, self.styles, self.inside = [], [], False

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.lines.append([])
        elif tag in ("td", "th"):
            self.lines[-1].append("")
            self.inside = True
            self.styles.append(dict(attributes).get("class"))
        elif tag == "b":
            self.lines[-1][-1] += "**"

    def handle_endtag(self, tag):
        if tag == "b":
            self.lines[-1][-1] += "**"
        elif tag in ("td", "th"):
            self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.lines[-1][-1] += data


@pytest.fixture
def whole(tmp_path, at_once):
    """A folder with all kinds of cells: met and missed, drawn and fixed, seeded and not."""
    found = experiment(
        knn=Method("KNN", off_by, column="knn", is_seeded=False),
        rdmf=Method("RDMF", off_by, {"error": 0.004}, rows="images"),
        air=Method("AIR", fitted, {"error": 0.14}, column="air", is_fit=True),
        air_full=Method("AIR, never stopped", fitted, {"error": 0.13, "max_iter": 20}, is_fit=True),
    )
    assert run(found, tmp_path) == 0
    return tmp_path


def test_json_markdown_and_html_say_the_same(whole):
    report, text, page = (table(whole, f"table1.{kind}") for kind in ("json", "md", "html"))
    drawn, fixed = (line["entries"] for line in report["rows"])
    assert drawn["knn"]["mean"] == pytest.approx(0.15)
    assert drawn["knn"]["spread"] == pytest.approx(np.std([0.1, 0.2], ddof=1))
    assert drawn["knn"]["ratio"] == pytest.approx(0.15 / 0.2)
    assert (fixed["knn"]["n"], fixed["knn"]["wanted"], fixed["knn"]["spread"]) == (1, 1, None)
    assert "rdmf" not in drawn
    expected = [
        "| Drawn 30% | 0.1500 ± 0.0707 (paper 0.2000) | – "
        "| **0.1407 ± 0.0010** (paper 0.1500) ✓ | 0.1500 AIR |",
        "| Fixed patch | 0.1000 (paper 0.0500), n = 1 | **0.00600 ± 0.00283** "
        "| 0.1407 ± 0.0010 (paper 0.1500) ✗ | 0.0500 KNN |",
    ]
    for line in expected:
        assert line in text
    fields = Fields()
    fields.feed(page)
    in_markdown = [
        [re.sub(" [✓✗]$", "", field.strip()) for field in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|") and "---" not in line
    ]
    assert fields.lines == in_markdown
    # The same fields are marked in both.
    signs = {"met": "✓", "missed": "✗"}
    assert [signs[style] for style in fields.styles if style] == re.findall("[✓✗]", text)
    assert not re.search(r"(src|href|url|@import|<script)", page)


def test_the_verdict_is_over_seeds_and_by_how_much(whole):
    drawn, fixed = table(whole)["verdicts"]
    assert drawn["met"] is True
    assert drawn["below_percent"] == pytest.approx(100 * (1 - 0.1407 / 0.15))
    assert (drawn["seeds_met"], drawn["n"], drawn["wanted"]) == (2, 2, 2)
    assert fixed["met"] is False
    assert fixed["seeds_met"] == 0
    text = table(whole, "table1.md")
    assert "at least as good as the paper's best number on 1 of 2 rows." in text
    assert "| Drawn 30% | 0.1407 ✓ | 0.1500 AIR | 6.2 % below | 2 of 2 |" in text
    assert "| Fixed patch | 0.1407 ✗ | 0.0500 KNN | 181.4 % above | 0 of 2 |" in text


def test_the_mean_and_not_the_seeds_decides():
    cells = [{"row": DRAWN.name, "method": "air", "status": "done", "nmae": v} for v in (0.16, 0.139, 0.16)]
    verdict = table1_summary._verdict(DRAWN, cells, 5)
    assert (verdict["met"], verdict["seeds_met"], verdict["n"], verdict["wanted"]) == (False, 1, 3, 5)


def test_regret_is_against_the_lowest_of_both_trajectories(whole):
    own = {"row": "a", "seed": 3, "nmae": 0.11, "trajectory": [[1, 0.5], [100, 0.1], [200, 0.2]]}
    longer = {"trajectory": [[1, 0.5], [5000, 0.08]]}
    alone = table1_summary.regret(own, [])
    assert alone["regret"] == pytest.approx(0.1)
    assert alone["against"] == "own"
    both = table1_summary.regret(own, [longer])
    assert both["regret"] == pytest.approx((0.11 - 0.08) / 0.08)
    assert both["against"] == "own and never stopped"
    worse = {"trajectory": [[1, 0.5], [5000, 0.3]]}
    assert table1_summary.regret(own, [worse])["regret"] == pytest.approx(0.1)
    assert table1_summary.regret({**own, "nmae": 0.09}, [])["regret"] == pytest.approx(-0.1)
    # The lowest of the two is 0.13; 0.14 and 0.1414 are returned.
    found = table(whole)["regret"]
    assert found["median"] == pytest.approx(0.1407 / 0.13 - 1)
    assert found["worst"] == pytest.approx(0.1414 / 0.13 - 1)
    assert found["own_only"] == 0
    assert "median 8.2 % (goal: at most 2.0 %), worst 8.8 % (goal: at most 10.0 %)" in table(
        whole, "table1.md"
    )


@pytest.mark.usefixtures("at_once")
def test_regret_without_the_longer_run_says_so(tmp_path):
    found = experiment(air=Method("AIR", fitted, column="air", is_fit=True))
    run(found, tmp_path, "--rows", DRAWN.name)
    assert table(tmp_path)["regret"]["own_only"] == 2
    text = table(tmp_path, "table1.md")
    assert "For 2 of them there is no run without a stop: own trajectory only." in text


def test_time_to_a_number():
    cell = {
        "row": "a",
        "seed": 0,
        "nmae": 0.09,
        "seconds": 8.0,
        "n_iter": 400,
        "best_iter": 300,
        "stop_reason": "because",
        "trajectory": [[1, 0.5], [100, 0.2], [200, 0.1], [300, 0.12]],
    }
    assert table1_summary.time_to(0.2, cell)["iteration"] == 100
    assert table1_summary.time_to(0.2, cell)["seconds"] == pytest.approx(2.0)
    assert table1_summary.time_to(0.15, cell)["iteration"] == 200
    assert table1_summary.time_to(0.095, cell)["iteration"] == 400  # only the answer itself is so good
    assert table1_summary.time_to(0.05, cell)["seconds"] is None


@pytest.mark.usefixtures("at_once")
def test_a_report_covers_what_is_there_and_what_was_asked_for(tmp_path):
    found = experiment(knn=Method("KNN", off_by), svd=Method("SVD", off_by), dmf=Method("DMF", off_by))
    run(found, tmp_path, "--rows", DRAWN.name, "--methods", "knn")
    run(found, tmp_path, "--rows", DRAWN.name, "--methods", "svd", "--seeds", "1")
    report = table(tmp_path)
    assert list(report["methods"]) == ["knn", "svd"]
    assert [line["row"] for line in report["rows"]] == [DRAWN.name]
    assert report["seeds"] == 2
    assert report["rows"][0]["entries"]["svd"]["wanted"] == 2
    assert "**0.1000** n = 1 of 2" in table(tmp_path, "table1.md")
    before = sorted(path.name for path in (tmp_path / "cells").iterdir())
    assert run(found, tmp_path, "--report-only") == 0
    assert "not run" in table(tmp_path, "table1.md")
    assert sorted(path.name for path in (tmp_path / "cells").iterdir()) == before


# --- the paper's own rows and methods ---


def test_the_goals_are_the_papers_best_numbers():
    goals = [row.goal for row in paper_rows.ROWS.values()]
    assert goals == [0.0471, 0.1195, 0.0692, 0.0814, 0.1195, 0.1208, 0.0002, 0.0003, 0.0007, 0.0134, 0.0245]
    assert paper_rows.ROWS["Baboon patch"].best_printed == "knn"
    assert paper_rows.ROWS["GPCR 20%"].best_printed == "dmf_de"


def test_methods_run_where_they_make_sense():
    image, ratings = PAPER.rows["Barbara texture"], PAPER.rows["Syn-Netflix 70%"]
    assert {name for name in METHODS if not METHODS[name].suits(image)} == {"dmf_de"}
    assert {name for name in METHODS if not METHODS[name].suits(ratings)} == {"pnmc", "rdmf", "biharmonic"}
    once = {name for name in METHODS if len(METHODS[name].seeds(image, 5)) == 1}
    assert once == {"mean", "knn", "biharmonic"}
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
    settings = {**METHODS[name].settings, **({"max_iter": 120} if METHODS[name].is_fit else {})}
    method = METHODS[name]
    if name == "pnmc":
        settings |= {"trials": 1, "epochs": 1}
    if name == "air":
        assert not method.settings  # plain airnp.fit(Y, mask, seed=seed)
    found = Experiment({row.name: row}, {name: method}).solve(Task(row.name, name, 1, settings))
    assert 0 < found["nmae"] < 1
    again = Experiment({row.name: row}, {name: method}).solve(Task(row.name, name, 1, settings))
    assert again["nmae"] == found["nmae"]
    if name in ("air", "air_full"):
        iterations = [iteration for iteration, _ in found["trajectory"]]
        assert iterations[:2] == [1, 100]
        assert found["n_iter"] == iterations[-1] == 120


def test_the_seed_draws_the_mask_unless_it_is_fixed(monkeypatch):
    class Data:
        matrix = np.arange(60 * 60.0).reshape(60, 60)
        row_graph = column_graph = None

    monkeypatch.setitem(paper_rows.LOADERS, "Barbara", Data)
    drawn, fixed = (
        [paper_rows.load(name, seed).mask for seed in (0, 1)] for name in ("Barbara 30%", "Barbara patch")
    )
    assert (drawn[0] != drawn[1]).any()
    assert 0.6 < drawn[0].mean() < 0.8
    np.testing.assert_array_equal(*fixed)
    assert [PAPER.rows[name].has_fixed_mask for name in ("Barbara 30%", "Barbara patch")] == [False, True]
