"""``python -m bench.figures`` and ``python -m bench.report``: runs, how they are kept, and what is drawn."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
from unittest.mock import Mock

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from PIL import Image

import airnp
from bench import report
from bench.figures import __main__ as command
from bench.figures import compute, curves, images, produce
from bench.figures.__main__ import FIGURES
from bench.figures.captions import CAPTIONS
from bench.figures.compute import Problem, _low_rank
from bench.figures.produce import Store
from bench.figures.runs import AUTHORS_WEIGHT, FROZEN_AT, FULL, QUICK, Run, baboon_air, deep, syn_netflix

SIZE = 12


def small_problem(name: str = "", scale: object = None, seed: int = 0) -> Problem:
    rng = np.random.default_rng(3)
    truth = (rng.random((SIZE, 2)) @ rng.random((2, SIZE))).astype(np.float32)
    graph = np.kron(np.eye(SIZE // 4), np.ones((4, 4)))
    return Problem(truth, rng.random(truth.shape) < 0.7, graph, graph)


def made_up(run: Run) -> dict[str, np.ndarray]:
    """Return an outcome whose numbers are different for every run."""
    rng = np.random.default_rng(sum(map(ord, run.name)))
    iteration = np.array([1, 100, 200, 300])
    falling = np.array([0.4, 0.1, 0.02, 0.05]) * (1 + rng.random())
    problem = small_problem()
    return {
        "X": rng.random((SIZE, SIZE)),
        "nmae": np.asarray(falling[-1]),
        "iteration": iteration,
        "training_nmae": falling,
        "observed_mse": falling[0] / iteration,
        "unobserved_mse": falling**2,
        "singular_values": np.outer(iteration, [3.0, 2.0, 1.0]),
        "mask": problem.mask,
        "row_graph": problem.row_graph,
        "column_graph": problem.column_graph,
        "graphs_at": np.asarray(run.graphs_at),
        "row_graphs": rng.random((len(run.graphs_at), SIZE, SIZE)),
        "column_graphs": rng.random((len(run.graphs_at), SIZE, SIZE)),
    }


def lines_of(panel) -> list[np.ndarray]:
    """Return the data of the lines of a panel, without single points."""
    return [line.get_xydata() for line in panel.get_lines() if len(line.get_xdata()) > 1]


def points(panel, marker: str) -> list[np.ndarray]:
    """Return the single points of a panel with some marker."""
    lines = [line for line in panel.get_lines() if line.get_marker() == marker]
    return [line.get_xydata()[0] for line in lines if len(line.get_xdata()) == 1]


def panels_of(name: str):
    """Return the panels of a figure of made-up outcomes, each with its runs and their outcomes."""
    figure, runs = FIGURES[name].draw(made_up, FULL), FIGURES[name].panels(FULL)
    return [(panel, row, [made_up(run) for run in row]) for panel, row in zip(figure.axes, runs, strict=True)]


# --- what is run ---


@pytest.mark.parametrize("scale", [FULL, QUICK])
def test_every_run_has_a_file_name_of_its_own(scale):
    runs = {run for drawing in FIGURES.values() for run in drawing.runs(scale)}
    assert len({run.name for run in runs}) == len(runs)


def test_figures_share_runs():
    runs = {name: drawing.runs(FULL) for name, drawing in FIGURES.items()}
    assert baboon_air("30%", FULL) in {*runs["frozen"]} & {*runs["trajectories"]} & {*runs["graphs_baboon"]}
    assert syn_netflix("AIR", FULL) in {*runs["training"]} & {*runs["graphs_syn_netflix"]}


def test_every_figure_has_a_complete_caption():
    assert {drawing.name for drawing in (*curves.CURVES, *images.IMAGES)} == set(CAPTIONS) == set(FIGURES)
    for caption in CAPTIONS.values():
        assert all(dataclasses.astuple(caption))
        assert caption.command.endswith(caption.name)


def test_graphs_are_kept_only_at_recorded_iterations():
    with pytest.raises(ValueError, match="nothing is recorded"):
        Run("Baboon 30%", "AIR", 1000, every=100, graphs_at=(250,))


def test_the_low_rank_matrix_has_its_rank():
    assert np.linalg.matrix_rank(_low_rank(40, rank=5)) == 5


# --- computing ---


@pytest.fixture
def small_data(monkeypatch):
    monkeypatch.setattr(compute, "load", small_problem)


def never(run: Run):
    raise AssertionError("it needs no other run")


@pytest.mark.parametrize(("method", "stop", "regularizers"), [("DMF", None, []), ("AIR", "auto", None)])
def test_records_are_the_errors_of_the_fit(small_data, method, stop, regularizers):
    problem = small_problem()
    outcome = compute.compute(Run("Baboon 30%", method, 300, stop=stop, every=100), never)
    options = {"stop": stop, "max_iter": 300, "seed": 0, "engine": airnp.CPU(threads=1)}
    result = airnp.fit(problem.truth, problem.mask, regularizers=regularizers, **options)
    np.testing.assert_array_equal(outcome["X"], result.X)
    assert list(outcome["iteration"][:3]) == [1, 100, 200]
    if stop is None:  # the last record is of the result
        squares = (result.X - problem.truth) ** 2
        assert outcome["iteration"][-1] == 300
        assert outcome["observed_mse"][-1] == pytest.approx(squares[problem.mask].mean(), rel=1e-5)
        assert outcome["unobserved_mse"][-1] == pytest.approx(squares[~problem.mask].mean(), rel=1e-5)
        assert outcome["training_nmae"][-1] == pytest.approx(float(outcome["nmae"]))


def test_a_run_ends_when_the_observed_entries_are_fitted(small_data):
    run = Run("Baboon 30%", "DMF", 3000, every=50, observed_mse=0.02, singular_values=3)
    outcome = compute.compute(run, never)
    assert outcome["observed_mse"][-1] < 0.02 <= outcome["observed_mse"][-2]
    assert outcome["iteration"][-1] < 3000
    expected = np.linalg.svd(outcome["X"], compute_uv=False)[:3]
    np.testing.assert_allclose(outcome["singular_values"][-1], expected, rtol=1e-4)


def test_frozen_graphs_are_those_of_air_at_that_moment(small_data, monkeypatch):
    source = Run("Baboon 30%", "AIR", 400, every=100, weight=0.01, graphs_at=(200, 400))
    learned = compute.compute(source, never)
    frozen_run = Run("Baboon 30%", "AIR frozen", 100, every=100, frozen_at=200)
    requests, fit = [], Mock(wraps=airnp.fit)
    monkeypatch.setattr(airnp, "fit", fit)
    compute.compute(frozen_run, lambda run: requests.append(run) or learned)
    assert requests == [baboon_air("30%", FULL)]
    rows, columns = fit.call_args.kwargs["regularizers"]
    for found, graphs, axis in ((rows, "row_graphs", "rows"), (columns, "column_graphs", "columns")):
        np.testing.assert_array_equal(found.graph, learned[graphs][0])
        assert found.axis == axis
    assert rows.weight == columns.weight == pytest.approx(0.01)
    assert not np.allclose(learned["row_graphs"][0], learned["row_graphs"][1])


def test_air_has_the_authors_weight_unless_it_stops_by_itself(small_data):
    assert baboon_air("30%", FULL).weight == AUTHORS_WEIGHT
    short = dataclasses.replace(baboon_air("30%", FULL), iterations=100, graphs_at=())
    np.testing.assert_allclose(compute.compute(short, never)["weights"], AUTHORS_WEIGHT)
    (own,) = [run for run in FIGURES["pictures"].panels(FULL)[0] if run.method == "AIR"]
    assert (own.stop, own.weight) == ("auto", None)


# --- keeping and resuming ---


@pytest.fixture
def computed(monkeypatch):
    """Replace the computation by one that only notes the runs."""
    done: list[Run] = []

    def note(run: Run, outcome_of, threads):
        if run.source is not None:
            outcome_of(run.source)  # fails if it is missing
        done.append(run)
        return made_up(run)

    monkeypatch.setattr(produce, "compute", note)
    return done


def compute_all(store: Store, *names: str, **options) -> None:
    produce.compute_all([FIGURES[name] for name in names], QUICK, store, jobs=1, threads=1, **options)


def test_only_missing_and_broken_runs_are_computed_again(tmp_path, computed):
    kept, names = Store(tmp_path), ("frozen", "trajectories")
    compute_all(kept, *names)
    needed = {run for name in names for run in FIGURES[name].runs(QUICK)}
    assert sorted(map(str, computed)) == sorted(map(str, needed))
    lost, broken, *_ = runs = FIGURES["trajectories"].runs(QUICK)
    kept.path(lost).unlink()
    kept.path(broken).write_bytes(kept.path(runs[2]).read_bytes()[:100])
    computed.clear()
    compute_all(kept, *names)
    assert computed == [lost, broken]


def test_graphs_are_learned_before_they_are_frozen(tmp_path, computed):
    only_frozen = dataclasses.replace(
        FIGURES["frozen"], panels=lambda scale: [runs[1:] for runs in curves.frozen_panels(scale)]
    )
    produce.compute_all([only_frozen], QUICK, Store(tmp_path), jobs=1, threads=1)
    assert {run.method for run in computed[:3]} == {"AIR"}
    assert len(computed) == 3 + 9


def test_several_processes_give_the_same_outcomes_as_one(tmp_path):
    runs = [deep("Rank-5 80%", "DMF", QUICK, 1000, depth=depth) for depth in (2, 3)]  # needs no data
    drawing = dataclasses.replace(FIGURES["depth"], panels=lambda scale: [runs])
    for jobs in (1, 2):
        produce.compute_all([drawing], QUICK, Store(tmp_path / str(jobs)), jobs=jobs, threads=1)
    for run in runs:
        alone, among = (Store(tmp_path / str(jobs)).load(run) for jobs in (1, 2))
        np.testing.assert_array_equal(alone["X"], among["X"])


def test_other_settings_are_another_run(tmp_path):
    kept, run = Store(tmp_path), Run("Baboon 30%", "DMF", 100)
    kept.save(run, made_up(run))
    assert kept.has(run)
    longer = dataclasses.replace(run, iterations=200)
    assert kept.path(longer) == kept.path(run)
    assert not kept.has(longer)
    np.testing.assert_array_equal(kept.load(run)["X"], made_up(run)["X"])
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]


def test_the_command_computes_only_what_it_must(tmp_path, computed, monkeypatch, capsys):
    options = ["--quick", "--jobs", "1", "--only", "trajectories", "--out", str(tmp_path)]
    drawn, described = (tmp_path / f"trajectories.{kind}" for kind in ("png", "json"))
    with pytest.raises(SystemExit, match=r"not drawn.*trajectories"):
        command.main([*options, "--redraw"])
    command.main(options)
    assert len(computed) == 9
    picture, about = drawn.read_bytes(), json.loads(described.read_text())
    assert (about["quick"], len(about["runs"])) == (True, 9)
    assert all((tmp_path / file).is_file() for file in about["runs"])
    drawn.unlink()
    command.main([*options, "--redraw"])
    assert drawn.read_bytes() == picture
    # Runs of other code are named, and made again on request.
    monkeypatch.setattr(produce, "source_hash", lambda fits: "other")
    capsys.readouterr()
    command.main(options)
    assert len(computed) == 9
    assert "9 of them were made by other code" in capsys.readouterr().err
    assert len(json.loads(described.read_text())["runs_of_other_code"]) == 9
    assert "9 of its 9 runs were made by other code" in report.report(tmp_path, tmp_path)[0]
    command.main([*options, "--redo"])
    assert len(computed) == 18
    assert json.loads(described.read_text())["runs_of_other_code"] == []


# --- drawing ---


@pytest.mark.parametrize("name", ["depth", "trajectories"])
def test_mse_curves_end_at_a_diamond(name):
    for panel, runs, outcomes in panels_of(name):
        assert runs[0].problem.split()[0] in panel.get_title()
        assert panel.xaxis_inverted()
        curve = [np.stack([o["observed_mse"], o["unobserved_mse"]], axis=1) for o in outcomes]
        np.testing.assert_array_equal(lines_of(panel), curve)
        np.testing.assert_array_equal(points(panel, "D"), [line[-1] for line in curve])
        if name == "depth":
            assert runs[0].method in panel.get_title()
        else:
            np.testing.assert_array_equal(points(panel, "o"), [line[0] for line in curve])


def test_singular_values_are_drawn_for_every_depth():
    figure = FIGURES["singular_values"].draw(made_up, FULL)
    for panels in np.reshape(figure.axes, (3, 4)):
        assert [len(lines_of(panel)) for panel in panels] == [3, 3, 3, 3]
        np.testing.assert_array_equal(lines_of(panels[0])[0][:, 1], [3, 300, 600, 900])


def test_frozen_puts_adaptive_first_and_names_the_moments():
    for panel, runs, outcomes in panels_of("frozen"):
        assert [run.frozen_at for run in runs] == [None, *FROZEN_AT]
        errors = [outcome["training_nmae"] for outcome in outcomes]
        np.testing.assert_array_equal([line[:, 1] for line in lines_of(panel)], errors)
        first, *others = [text.get_text() for text in panel.get_legend().get_texts()]
        assert first == f"adaptive: {errors[0][-1]:.4f}"
        assert all(f"t = {moment}" in text for moment, text in zip(FROZEN_AT, others, strict=True))


def test_training_marks_the_least_error():
    for panel, _, outcomes in panels_of("training"):
        least = [(200, outcome["training_nmae"][2]) for outcome in outcomes]
        np.testing.assert_array_equal(points(panel, "v"), least)


def test_depth_and_width_draws_last_and_least_against_the_setting():
    figure = FIGURES["depth_width"].draw(made_up, FULL)
    for row, values in enumerate((curves.MORE_DEPTHS, curves.RANKS)):
        expected = []
        for runs in FIGURES["depth_width"].panels(FULL)[row::2]:
            errors = [made_up(run)["training_nmae"] for run in runs]
            expected += [[error[-1] for error in errors], [error.min() for error in errors]]
        for curve, errors in zip(lines_of(figure.axes[3 * row + 2]), expected, strict=True):
            np.testing.assert_array_equal(curve, np.transpose([values, errors]))


def test_distances_are_root_mean_squares_of_differences():
    lines = np.random.default_rng(0).random((4, 7))
    expected = [[np.sqrt(np.mean((a - b) ** 2)) for b in lines] for a in lines]
    np.testing.assert_allclose(images.distances(lines), expected, atol=1e-7)


@pytest.mark.parametrize("name", ["graphs_baboon", "graphs_syn_netflix"])
def test_heat_maps_show_the_graphs_of_their_moments_without_a_diagonal(name):
    drawing = FIGURES[name]
    moments = images.BABOON_AT if name == "graphs_baboon" else images.SYN_NETFLIX_AT
    learned = made_up(drawing.runs(FULL)[1])
    panels = [panel for panel in drawing.draw(made_up, FULL).axes if "at t =" in panel.get_title()]
    assert len(panels) == 2 * len(moments)
    for position, panel in enumerate(panels):
        line, moment = ("row", "column")[position // len(moments)], moments[position % len(moments)]
        assert f"t = {moment}\n" in panel.get_title()
        shown = np.ma.filled(panel.images[0].get_array(), np.nan)
        graph = learned[f"{line}_graphs"][list(learned["graphs_at"]).index(moment)]
        off = ~np.eye(SIZE, dtype=bool)
        np.testing.assert_allclose(shown[off], SIZE * graph[off])
        assert np.isnan(np.diagonal(shown)).all()


def test_pictures_come_in_order_with_the_gaps_in_red_and_the_error_in_the_title():
    rows = np.reshape(FIGURES["pictures"].draw(made_up, FULL).axes, (3, 9))
    for (truth, *runs), (first, *panels, last) in zip(FIGURES["pictures"].panels(FULL), rows, strict=True):
        given = made_up(truth)
        shown = first.images[0].get_array()
        is_red = (shown[..., 0] > 0.7) & (shown[..., 1] < 0.2) & (shown[..., 2] < 0.2)
        np.testing.assert_array_equal(is_red, ~given["mask"])
        np.testing.assert_allclose(shown[given["mask"]][:, 1], given["X"][given["mask"]])
        for run, panel in zip(runs, panels, strict=True):
            outcome = made_up(run)
            assert panel.get_title() == f"{run.method}: {outcome['nmae']:.4f}"
            filled = np.where(given["mask"], given["X"], outcome["X"])
            np.testing.assert_array_equal(panel.images[0].get_array(), filled)
            assert panel.images[0].get_clim() == (0, 1)
        np.testing.assert_array_equal(last.images[0].get_array(), given["X"])


# --- the report ---


def test_the_report_is_one_page_of_tables_and_figures_that_names_what_is_missing(tmp_path, capsys):
    """One table, one full figure and one quick one; the rest is missing."""
    (figures := tmp_path / "figures").mkdir()
    (tmp_path / "table2.md").write_text(
        "# Title\n\n## Seconds < 9\n\nWords.\n\n| m | AIR < |\n| --- | --- |\n| 100 | **7** a\\|b |\n"
    )
    for name, is_quick in (("frozen", False), ("training", True)):
        Image.new("RGB", (3000, 300), "navy").save(figures / f"{name}.png")
        about = {"quick": is_quick, "threads": 1, "versions": {"airnp": "0.0.7"}}
        (figures / f"{name}.json").write_text(json.dumps(about))
    report.main(["--results", str(tmp_path)])
    page = (tmp_path / "report.html").read_text()

    embedded = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(embedded) == 2
    for code in embedded:
        picture = Image.open(io.BytesIO(base64.b64decode(code)))
        assert picture.size == (report.WIDEST, 160)
        assert picture.convert("RGB").getpixel((5, 5)) == (0, 0, 128)
    absent = {name: caption.command for name, caption in CAPTIONS.items()}
    del absent["frozen"], absent["training"]
    absent["table1"] = "python -m bench.table1"
    said = capsys.readouterr().out
    for name, command_line in absent.items():
        assert f"missing: {name}; {command_line} makes it" in said
        part = page.split(f'<section id="{name}">')[1].split("</section>")[0]
        assert f"<code>{command_line}</code> makes it" in part
    assert page.count('class="absent"') == len(absent)

    table = ("<h3>Seconds &lt; 9</h3>", "<p>Words.</p>", "<th>AIR &lt;</th>", "<td><b>7</b> a|b</td>")
    assert all(text in page for text in ("airnp 0.0.7", *table))
    assert "Title" not in page
    targets = re.findall(r'href="#([^"]+)"', page)
    assert targets == re.findall(r'<section id="([^"]+)"', page) == ["table1", "table2", *CAPTIONS]
    assert report.inline(CAPTIONS["frozen"].ours) in page
    assert report.inline(CAPTIONS["training"].ours) not in page  # it was a quick one
    assert "cannot be compared with the paper" in page
    # One file, without links to others.
    assert not re.search(r"http|<script|<link|@import|url\(", page)
    assert len(re.findall("src=", page)) == len(embedded)
    assert len(re.findall("href=", page)) == len(targets)
