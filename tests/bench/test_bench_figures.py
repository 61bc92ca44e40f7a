from __future__ import annotations

import base64
import dataclasses
import io
import json
import re

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from PIL import Image

import airnp
from bench import report
from bench.figures import (
    __main__ as command,
)
from bench.figures import (
    compute,
    depth,
    depth_width,
    frozen,
    graphs,
    pictures,
    produce,
    store,
    training,
    trajectories,
)
from bench.figures.captions import CAPTIONS
from bench.figures.catalogue import FIGURES
from bench.figures.problems import Problem, _low_rank
from bench.figures.runs import AUTHORS_WEIGHT, DEFAULTS, FROZEN_AT, TRUTH, Run, baboon_air, deep, syn_netflix
from bench.figures.scale import FULL, QUICK
from bench.figures.store import Store

SIZE = 12


def small_problem(name: str = "", scale: object = None, seed: int = 0) -> Problem:
    rng = np.random.default_rng(3)
    truth = (rng.random((SIZE, 2)) @ rng.random((2, SIZE))).astype(np.float32)
    graph = np.kron(np.eye(SIZE // 4), np.ones((4, 4)))
    return Problem(truth, rng.random(truth.shape) < 0.7, graph, graph)


def made_up(run: Run) -> dict[str, np.ndarray]:
    """Return an outcome whose numbers all tell which run they belong to."""
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


def curves(panel) -> list[np.ndarray]:
    """Return what the lines of a panel show, without single points."""
    return [line.get_xydata() for line in panel.get_lines() if len(line.get_xdata()) > 1]


# --- what is run ---


@pytest.mark.parametrize("scale", [FULL, QUICK])
def test_a_file_name_stands_for_one_run_only(scale):
    runs = {run for drawing in FIGURES.values() for run in drawing.runs(scale)}
    names = [run.name for run in runs]
    assert len(names) == len(set(names))


def test_figures_share_runs():
    assert baboon_air("30%", FULL) in set(FIGURES["frozen"].runs(FULL)) & set(
        FIGURES["trajectories"].runs(FULL)
    )
    assert syn_netflix("AIR", FULL) in set(FIGURES["training"].runs(FULL)) & set(
        FIGURES["graphs_syn_netflix"].runs(FULL)
    )


def test_every_figure_has_a_caption_that_is_written():
    assert list(CAPTIONS) == list(FIGURES)
    for caption in CAPTIONS.values():
        words = dataclasses.astuple(caption)
        assert all(words)
        assert not any("TODO" in text for text in words)
        assert caption.command.endswith(caption.name)


def test_graphs_can_only_be_kept_when_something_is_recorded():
    with pytest.raises(ValueError, match="nothing is recorded"):
        Run("Baboon 30%", "AIR", 1000, every=100, graphs_at=(250,))


def test_the_low_rank_matrix_has_the_rank_that_it_says():
    assert np.linalg.matrix_rank(_low_rank(40, rank=5)) == 5


# --- computing ---


@pytest.fixture
def small_data(monkeypatch):
    monkeypatch.setattr(compute, "load", small_problem)


def never(run: Run):
    raise AssertionError("it builds on nothing")


def test_records_are_the_errors_of_the_fit(small_data):
    problem = small_problem()
    outcome = compute.compute(Run("Baboon 30%", "DMF", 300, every=100), never)
    result = airnp.fit(
        problem.truth, problem.mask, regularizers=[], max_iter=300, stop=None, seed=0, threads=1
    )
    assert list(outcome["iteration"]) == [1, 100, 200, 300]
    np.testing.assert_array_equal(outcome["X"], result.X)
    squares = (result.X - problem.truth) ** 2
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


def test_frozen_graphs_are_those_that_air_had_at_that_moment(small_data, monkeypatch):
    source = Run("Baboon 30%", "AIR", 400, every=100, weight=0.01, graphs_at=(200, 400))
    learned = compute.compute(source, never)
    frozen_run = Run("Baboon 30%", "AIR frozen", 100, every=100, frozen_at=200)
    asked = []

    def outcome_of(run: Run):
        asked.append(run)
        return learned

    seen = {}
    original = airnp.fit

    def spy(*args, **options):
        seen.update(options)
        return original(*args, **options)

    monkeypatch.setattr(airnp, "fit", spy)
    compute.compute(frozen_run, outcome_of)
    assert asked == [baboon_air("30%", FULL)]
    rows, columns = seen["regularizers"]
    np.testing.assert_array_equal(rows.graph, learned["row_graphs"][0])
    np.testing.assert_array_equal(columns.graph, learned["column_graphs"][0])
    assert (rows.axis, columns.axis) == ("rows", "columns")
    assert rows.weight == columns.weight == pytest.approx(0.01)
    assert not np.allclose(learned["row_graphs"][0], learned["row_graphs"][1])


def test_air_is_run_with_the_authors_weight_unless_it_stops_by_itself(small_data):
    assert baboon_air("30%", FULL).weight == AUTHORS_WEIGHT
    outcome = compute.compute(
        dataclasses.replace(baboon_air("30%", FULL), iterations=100, graphs_at=()), never
    )
    np.testing.assert_allclose(outcome["weights"], AUTHORS_WEIGHT)
    (own,) = [run for run in pictures.panel_runs("30%", FULL) if run.method == "AIR"]
    assert (own.stop, own.weight) == ("auto", None)


def test_the_defaults_are_those_of_fit(small_data):
    problem = small_problem()
    outcome = compute.compute(Run("Barbara 30%", DEFAULTS, 300, stop="auto", every=100), never)
    told_nothing = airnp.fit(problem.truth, problem.mask, max_iter=300, seed=0, threads=1)
    np.testing.assert_array_equal(outcome["X"], told_nothing.X)


# --- keeping and resuming ---


@pytest.fixture
def computed(monkeypatch):
    """Replace the computation by one that only notes what it was asked for."""
    done: list[Run] = []

    def note(run: Run, outcome_of, threads):
        if run.source is not None:
            outcome_of(run.source)  # fails unless it is there already
        done.append(run)
        return made_up(run)

    monkeypatch.setattr(produce, "compute", note)
    return done


def test_what_is_computed_is_not_computed_again(tmp_path, computed):
    kept, chosen = Store(tmp_path / "runs"), [FIGURES["frozen"], FIGURES["trajectories"]]
    produce.compute_all(chosen, QUICK, kept, jobs=1, threads=1)
    needed = {run for drawing in chosen for run in drawing.runs(QUICK)}
    assert len(computed) == len(needed)
    assert set(computed) == needed
    produce.compute_all(chosen, QUICK, kept, jobs=1, threads=1)
    assert len(computed) == len(needed)


def test_only_what_is_lost_or_broken_is_computed_again(tmp_path, computed):
    kept, chosen = Store(tmp_path), [FIGURES["trajectories"]]
    produce.compute_all(chosen, QUICK, kept, jobs=1, threads=1)
    lost, broken, *_ = runs = FIGURES["trajectories"].runs(QUICK)
    kept.path(lost).unlink()
    kept.path(broken).write_bytes(kept.path(runs[2]).read_bytes()[:100])
    computed.clear()
    produce.compute_all(chosen, QUICK, kept, jobs=1, threads=1)
    assert computed == [lost, broken]


def test_graphs_to_be_frozen_are_learned_first_even_for_one_figure_alone(tmp_path, computed):
    only_frozen = dataclasses.replace(
        FIGURES["frozen"], runs=lambda scale: [run for run in frozen.runs(scale) if run.source is not None]
    )
    produce.compute_all([only_frozen], QUICK, Store(tmp_path), jobs=1, threads=1)
    assert {run.method for run in computed[:3]} == {"AIR"}
    assert len(computed) == 3 + 9


def test_several_processes_keep_what_one_would(tmp_path):
    runs = [deep("Rank-5 80%", "DMF", QUICK, 1000, depth=depth) for depth in (2, 3)]  # needs no data
    drawing = dataclasses.replace(FIGURES["depth"], runs=lambda scale: runs)
    for jobs in (1, 2):
        produce.compute_all([drawing], QUICK, Store(tmp_path / str(jobs)), jobs=jobs, threads=1)
    for run in runs:
        alone, among = (Store(tmp_path / str(jobs)).load(run) for jobs in (1, 2))
        np.testing.assert_array_equal(alone["X"], among["X"])


def test_runs_of_other_code_are_told_and_can_be_made_again(tmp_path, computed, monkeypatch, capsys):
    kept, chosen = Store(tmp_path / "runs"), [FIGURES["trajectories"]]
    produce.compute_all(chosen, QUICK, kept, jobs=1, threads=1)
    computed.clear()
    monkeypatch.setattr(store, "source_hash", lambda fits: "other")
    capsys.readouterr()
    produce.compute_all(chosen, QUICK, kept, jobs=1, threads=1)
    assert computed == []
    assert "9 of them were made by other code" in capsys.readouterr().err
    produce.draw_all(chosen, QUICK, kept, tmp_path, threads=1)
    about = json.loads((tmp_path / "trajectories.json").read_text())
    assert len(about["runs_of_other_code"]) == 9
    page, _ = report.report(tmp_path, tmp_path)
    assert "9 of its 9 runs were made by other code" in page
    produce.compute_all(chosen, QUICK, kept, jobs=1, threads=1, redo=True)
    assert len(computed) == 9
    assert all(kept.is_of_this_code(run) for run in computed)


def test_other_settings_are_another_run(tmp_path):
    kept, run = Store(tmp_path), Run("Baboon 30%", "DMF", 100)
    kept.save(run, made_up(run))
    assert kept.has(run)
    longer = dataclasses.replace(run, iterations=200)
    assert kept.path(longer) == kept.path(run)
    assert not kept.has(longer)
    np.testing.assert_array_equal(kept.load(run)["X"], made_up(run)["X"])
    assert [path.suffix for path in tmp_path.iterdir()] == [".npz"]


def test_the_command_draws_and_redraws_without_computing(tmp_path, small_data, monkeypatch):
    options = ["--quick", "--jobs", "1", "--only", "trajectories", "--out", str(tmp_path)]
    with pytest.raises(SystemExit, match=r"not drawn.*trajectories"):
        command.main([*options, "--redraw"])
    command.main(options)
    picture = (tmp_path / "trajectories.png").read_bytes()
    about = json.loads((tmp_path / "trajectories.json").read_text())
    assert about["quick"] is True
    assert len(about["runs"]) == 9
    assert all((tmp_path / file).is_file() for file in about["runs"])
    (tmp_path / "trajectories.png").unlink()
    monkeypatch.setattr(produce, "compute", never)
    command.main([*options, "--redraw"])
    assert (tmp_path / "trajectories.png").read_bytes() == picture


# --- drawing ---


def test_depth_draws_one_curve_per_depth_and_marks_its_end():
    figure = depth.draw(made_up, FULL)
    for (problem, method), panel in zip(depth.PANELS, figure.axes, strict=True):
        assert method in panel.get_title()
        for run, curve in zip(depth.panel_runs(problem, method, FULL), curves(panel), strict=True):
            outcome = made_up(run)
            np.testing.assert_array_equal(curve[:, 0], outcome["observed_mse"])
            np.testing.assert_array_equal(curve[:, 1], outcome["unobserved_mse"])
        ends = [line.get_xydata()[0] for line in panel.get_lines() if line.get_marker() == "D"]
        np.testing.assert_array_equal(ends, [curve[-1] for curve in curves(panel)])


def test_singular_values_are_drawn_for_every_depth():
    figure = FIGURES["singular_values"].draw(made_up, FULL)
    lines = np.reshape(figure.axes, (3, 4))
    for panels in lines:
        assert [len(curves(panel)) for panel in panels] == [3, 3, 3, 3]
        np.testing.assert_array_equal(curves(panels[0])[0][:, 1], [3, 300, 600, 900])


def test_frozen_puts_adaptive_first_and_names_the_moments():
    figure = frozen.draw(made_up, FULL)
    for gaps, panel in zip(frozen.GAPS, figure.axes, strict=True):
        runs = frozen.panel_runs(gaps, FULL)
        assert [run.frozen_at for run in runs] == [None, *FROZEN_AT]
        for run, curve in zip(runs, curves(panel), strict=True):
            np.testing.assert_array_equal(curve[:, 1], made_up(run)["training_nmae"])
        words = [text.get_text() for text in panel.get_legend().get_texts()]
        assert words[0] == f"adaptive: {made_up(runs[0])['training_nmae'][-1]:.4f}"
        assert [f"t = {moment}" in text for moment, text in zip(FROZEN_AT, words[1:], strict=True)] == [
            True
        ] * 3


def test_trajectories_start_at_a_dot_and_end_at_a_diamond():
    figure = trajectories.draw(made_up, FULL)
    for gaps, panel in zip(trajectories.GAPS, figure.axes, strict=True):
        outcomes = [made_up(run) for run in trajectories.panel_runs(gaps, FULL)]
        for marker, position in (("o", 0), ("D", -1)):
            points = [line.get_xydata()[0] for line in panel.get_lines() if line.get_marker() == marker]
            expected = [(o["observed_mse"][position], o["unobserved_mse"][position]) for o in outcomes]
            np.testing.assert_array_equal(points, expected)
        assert panel.xaxis_inverted()


def test_training_marks_the_least_error():
    figure = training.draw(made_up, FULL)
    for problem, panel in zip(training.PANELS, figure.axes, strict=True):
        outcomes = [made_up(run) for run in training.panel_runs(problem, FULL)]
        marks = [line.get_xydata()[0] for line in panel.get_lines() if line.get_marker() == "v"]
        np.testing.assert_array_equal(marks, [(200, outcome["training_nmae"][2]) for outcome in outcomes])


def test_depth_and_width_draws_last_and_least_against_the_setting():
    figure = depth_width.draw(made_up, FULL)
    for panel, runs_of, values in (
        (figure.axes[2], depth_width.depth_runs, depth_width.DEPTHS),
        (figure.axes[5], depth_width.rank_runs, depth_width.RANKS),
    ):
        expected = []
        for method in depth_width.METHODS:
            errors = [made_up(run)["training_nmae"] for run in runs_of(method, FULL)]
            expected += [[error[-1] for error in errors], [error.min() for error in errors]]
        for curve, errors in zip(curves(panel), expected, strict=True):
            np.testing.assert_array_equal(curve, np.transpose([values, errors]))


def test_distances_are_root_mean_squares_of_differences():
    lines = np.random.default_rng(0).random((4, 7))
    expected = [[np.sqrt(np.mean((a - b) ** 2)) for b in lines] for a in lines]
    np.testing.assert_allclose(graphs.distances(lines), expected, atol=1e-7)


@pytest.mark.parametrize("name", ["graphs_baboon", "graphs_syn_netflix"])
def test_heat_maps_show_the_graphs_of_their_moments_without_a_diagonal(name):
    drawing = FIGURES[name]
    moments = graphs.BABOON_AT if name == "graphs_baboon" else graphs.SYN_NETFLIX_AT
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
    figure = pictures.draw(made_up, FULL)
    lines = np.reshape(figure.axes, (3, 10))
    for gaps, (first, *panels, last) in zip(("30%", "patch", "texture"), lines, strict=True):
        given = made_up(Run(f"Barbara {gaps}", TRUTH))
        shown = first.images[0].get_array()
        is_red = (shown[..., 0] > 0.7) & (shown[..., 1] < 0.2) & (shown[..., 2] < 0.2)
        np.testing.assert_array_equal(is_red, ~given["mask"])
        np.testing.assert_allclose(shown[given["mask"]][:, 1], given["X"][given["mask"]])
        for run, panel in zip(pictures.panel_runs(gaps, FULL), panels, strict=True):
            outcome = made_up(run)
            assert panel.get_title() == f"{run.method}: {outcome['nmae']:.4f}"
            filled = np.where(given["mask"], given["X"], outcome["X"])
            np.testing.assert_array_equal(panel.images[0].get_array(), filled)
            assert panel.images[0].get_clim() == (0, 1)
        np.testing.assert_array_equal(last.images[0].get_array(), given["X"])


# --- the report ---


@pytest.fixture
def results(tmp_path):
    """A folder with one table, one full and one quick figure; the rest is missing."""
    figures = tmp_path / "figures"
    figures.mkdir()
    (tmp_path / "table2.md").write_text(
        "# Title\n\n## Seconds < 9\n\nWords.\n\n| m | AIR < |\n| --- | --- |\n| 100 | **7** a\\|b |\n"
    )
    for name, is_quick in (("frozen", False), ("training", True)):
        Image.new("RGB", (3000, 300), "navy").save(figures / f"{name}.png")
        about = {"quick": is_quick, "threads": 1, "versions": {"airnp": "0.0.7"}}
        (figures / f"{name}.json").write_text(json.dumps(about))
    return tmp_path


def test_the_report_embeds_what_is_there_and_names_what_is_not(results, capsys):
    report.main(["--results", str(results)])
    page = (results / "report.html").read_text()
    embedded = re.findall(r'src="data:image/png;base64,([^"]+)"', page)
    assert len(embedded) == 2
    for code in embedded:
        picture = Image.open(io.BytesIO(base64.b64decode(code)))
        assert picture.size == (report.WIDEST, 160)
        assert picture.convert("RGB").getpixel((5, 5)) == (0, 0, 128)
    absent = {"table1": "python -m bench.table1"} | {
        name: caption.command for name, caption in CAPTIONS.items() if name not in ("frozen", "training")
    }
    said = capsys.readouterr().out
    for name, making in absent.items():
        assert f"missing: {name}; {making} makes it" in said
        part = page.split(f'<section id="{name}">')[1].split("</section>")[0]
        assert f"<code>{making}</code> makes it" in part
    assert page.count('class="absent"') == len(absent)
    assert "airnp 0.0.7" in page


def test_the_report_has_tables_contents_and_captions(results):
    page, _ = report.report(results, results / "figures")
    assert "<h3>Seconds &lt; 9</h3>" in page
    assert "<p>Words.</p>" in page
    assert "Title" not in page
    assert "<th>AIR &lt;</th>" in page
    assert "<td><b>7</b> a|b</td>" in page
    targets = re.findall(r'href="#([^"]+)"', page)
    assert targets == re.findall(r'<section id="([^"]+)"', page) == ["table1", "table2", *CAPTIONS]
    assert report.inline(CAPTIONS["frozen"].ours) in page
    assert report.inline(CAPTIONS["training"].ours) not in page  # it was a quick one
    assert "cannot be compared with the paper" in page


def test_the_report_needs_nothing_from_elsewhere(results):
    page, _ = report.report(results, results / "figures")
    assert "http" not in page
    assert "<script" not in page
    assert "<link" not in page
    assert "@import" not in page
    assert "url(" not in page
    assert all(source.startswith("data:") for source in re.findall(r'src="([^"]*)"', page))
    assert all(target.startswith("#") for target in re.findall(r'href="([^"]*)"', page))
