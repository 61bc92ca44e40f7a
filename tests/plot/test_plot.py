"""Plots of fits: their pixels, lines and labels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.transforms import Bbox

import airnp
import airnp.plot
from airnp import AdaptiveLaplacian
from airnp.plot.network import places_of
from airnp.plot.style import HOLE, LINES, UNKNOWN
from airnp.results.graphs import reduced

RNG = np.random.default_rng(3)
TRUTH = RNG.random((9, 3)) @ RNG.random((3, 12)) * 50 - 10
MASK = RNG.random(TRUTH.shape) < 0.7


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    plt.close("all")  # docstring examples leave theirs
    settings = dict(matplotlib.rcParams)
    yield
    assert dict(matplotlib.rcParams) == settings
    plt.close("all")


def fit(Y: Any = TRUTH, mask: Any = MASK, **options: Any) -> airnp.FitResult:
    return airnp.fit(Y, mask, **{"max_iter": 40, "stop": None, "seed": 1, **options})


def pixels(figure: Any) -> np.ndarray:
    """The whole figure as colours (height, width, 3), as they would be printed."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3] / 255


def entries(ax: Any) -> np.ndarray:
    """The colour at the middle of every entry of the one image of some axes, (m, n, 3)."""
    printed = pixels(ax.figure)
    (m, n) = ax.images[0].get_array().shape
    x, y = np.meshgrid(np.arange(n), np.arange(m))
    places = ax.transData.transform(np.stack([x.ravel(), y.ravel()], axis=1)).reshape(m, n, 2)
    assert (np.diff(places[..., 1], axis=0) < 0).all(), "the first row is on top"
    return printed[len(printed) - 1 - places[..., 1].astype(int), places[..., 0].astype(int)]


def is_colour(found: np.ndarray, colour: str) -> np.ndarray:
    return np.abs(found - to_rgb(colour)).max(axis=-1) < 0.02


def brightness(found: np.ndarray) -> np.ndarray:
    return found @ [0.299, 0.587, 0.114]


# ---------------------------------------------------------------------------------------------- before_after


def test_gaps_are_marked_before_and_gone_after_and_the_error_is_brighter_where_there_is_more():
    result = fit()
    before, after, wrong = airnp.plot.before_after(result, TRUTH).axes[:3]
    np.testing.assert_array_equal(is_colour(entries(before), HOLE), ~MASK)
    assert not is_colour(entries(after), HOLE).any()
    share = (np.clip(result.completed(), TRUTH.min(), TRUTH.max()) - TRUTH.min()) / np.ptp(TRUTH)
    np.testing.assert_allclose(brightness(entries(after)), share, atol=0.01)
    np.testing.assert_allclose(brightness(entries(before))[MASK], share[MASK], atol=0.01)
    found, error = brightness(entries(wrong)), np.abs(result.completed() - TRUTH)
    assert (error[MASK] == 0).all()
    assert found[MASK].max() < 0.01
    order = np.argsort(error[~MASK])
    assert (np.diff(found[~MASK][order]) >= -0.01).all()
    assert found.max() > 0.9
    nmae = airnp.metrics.nmae(result.X, TRUTH, MASK)
    assert f"{nmae:.4f}" in wrong.get_title()


def test_without_the_truth_the_misfit_is_shown_and_the_unknown_is_grey():
    result = fit()
    before, _, wrong = airnp.plot.before_after(result).axes[:3]
    found = entries(wrong)
    np.testing.assert_array_equal(is_colour(found, UNKNOWN), ~MASK)
    misfit = np.abs(result.X - TRUTH)[MASK]
    np.testing.assert_allclose(wrong.images[0].get_array()[MASK], misfit)
    assert (np.diff(brightness(found)[MASK][np.argsort(misfit)]) >= -0.01).all()
    low, high = before.images[0].get_clim()
    assert (low, high) == (TRUTH[MASK].min(), TRUTH[MASK].max())


def test_a_result_without_error_or_gaps_is_drawn():
    result = fit(mask=np.ones_like(MASK))
    wrong = airnp.plot.before_after(result, TRUTH).axes[2]
    assert brightness(entries(wrong)).max() < 0.01
    assert wrong.get_title().strip() == "absolute error"
    constant = fit(np.full((4, 5), 2.0), MASK[:4, :5])
    airnp.plot.before_after(constant, np.full((4, 5), 2.0))


def test_labels_of_a_table_stand_at_its_lines():
    table = pd.DataFrame(TRUTH, index=[f"r{i}" for i in range(9)], columns=list("abcdefghijkl"))
    figure = airnp.plot.before_after(fit(table))
    for ax in figure.axes[:3]:
        assert [text.get_text() for text in ax.get_yticklabels()] == list(table.index)
        assert [text.get_text() for text in ax.get_xticklabels()] == list(table.columns)
    assert not fit().index
    assert not airnp.plot.before_after(fit()).axes[0].get_yticks().size


def test_the_colour_bar_points_beyond_its_ends_where_the_values_do():
    result = fit()
    completed = result.completed()
    narrow = np.clip(TRUTH, completed.min() + 1, completed.max() - 1)
    bar = airnp.plot.before_after(result, narrow).axes[3]
    assert bar._colorbar.extend == "both"
    wide = np.where(MASK, TRUTH, -1e3)
    wide[0, 0] = 1e3
    assert airnp.plot.before_after(result, wide).axes[3]._colorbar.extend == "neither"


def test_one_problem_of_a_stack_is_drawn():
    stack, masks = np.stack([TRUTH, -TRUTH]), np.stack([MASK, MASK[::-1]])
    result = fit(stack, masks)
    for problem, mask in enumerate(masks):
        before, _, wrong = airnp.plot.before_after(result, stack, problem=problem).axes[:3]
        np.testing.assert_array_equal(is_colour(entries(before), HOLE), ~mask)
        error = np.abs(result.completed()[problem] - stack[problem])
        np.testing.assert_allclose(wrong.images[0].get_array(), error)
    with pytest.raises(ValueError, match="problem=0"):
        airnp.plot.before_after(result)


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match=r"truth: expected shape \(9, 12\), got \(12, 9\)"):
        airnp.plot.before_after(fit(), TRUTH.T)
    operator = airnp.Blocks(3, 4, shape=TRUTH.shape)
    measured = fit(operator.forward(TRUTH), None, operator=airnp.Operator(operator, TRUTH.shape))
    with pytest.raises(ValueError, match="operator"):
        airnp.plot.before_after(measured)


# ---------------------------------------------------------------------------------------------- trajectories


def test_the_lines_are_the_history():
    result = fit(record=airnp.Record(truth=TRUTH))
    figure = airnp.plot.trajectories(result)
    expected = [["loss", "fidelity"], ["energy_rows", "energy_columns"], ["nmae"]]
    assert len(figure.axes) == 3
    for ax, names in zip(figure.axes, expected, strict=True):
        for line, name in zip(ax.lines, names, strict=True):
            np.testing.assert_array_equal(line.get_xdata(), result.history["iteration"])
            np.testing.assert_array_equal(line.get_ydata(), result.history[name])
        assert ax.get_yscale() == "log"
        assert ax.get_xlabel() == "iteration"
    assert [text.get_text() for text in figure.axes[1].get_legend().get_texts()] == ["rows", "columns"]


def test_only_what_was_recorded_is_drawn():
    assert len(airnp.plot.trajectories(fit(regularizers=[])).axes) == 1
    assert (
        len(airnp.plot.trajectories(fit(regularizers=[], record=airnp.Record(truth=TRUTH)).history).axes) == 2
    )
    with pytest.raises(ValueError, match="history is empty"):
        airnp.plot.trajectories(airnp.History(["loss", "fidelity"]))


def test_one_record_is_a_dot_that_is_seen():
    ax = airnp.plot.trajectories(fit(max_iter=1)).axes[0]
    printed = pixels(ax.figure)
    x, y = ax.transData.transform((1, ax.lines[0].get_ydata()[0])).astype(int)
    dot = printed[len(printed) - 1 - y, x]
    assert any(is_colour(dot, style["color"]) for style in LINES[:2]), "one may hide the other"


def test_energies_of_zero_need_no_logarithm():
    result = fit(regularizers=[AdaptiveLaplacian("rows", weight=1e-3)], max_iter=20)
    columns = {name: result.history[name] for name in result.history}
    for zeros, scale in ((slice(None), "linear"), (slice(1), "log")):
        columns["energy_rows"] = np.ones(len(columns["loss"]))
        columns["energy_rows"][zeros] = 0
        energies = airnp.plot.trajectories(airnp.History.from_columns(columns)).axes[1]
        assert energies.get_yscale() == scale
        pixels(energies.figure)


def test_the_start_near_zero_does_not_flatten_the_energies():
    energies = airnp.plot.trajectories(fit(max_iter=400)).axes[1]
    values = np.concatenate([line.get_ydata() for line in energies.lines])
    low, high = energies.get_ylim()
    assert values.min() < 1e-5 * values.max(), "the case must have such a start"
    assert 1e-5 * values.max() < low < 1e-3 * values.max()
    assert high > values.max()


def test_the_returned_iterate_is_marked():
    result = fit(stop=airnp.HeldOut(patience=20, every=10, refit=False), max_iter=3000)
    assert 0 < result.best_iter < result.n_iter, "the case must exercise an early stop"
    marks = [ax.lines[-1] for ax in airnp.plot.trajectories(result).axes]
    for mark in marks:
        assert mark.get_label() == f"returned: {result.best_iter}"
        np.testing.assert_array_equal(mark.get_xdata(), [result.best_iter] * 2)
    assert len(airnp.plot.trajectories(fit()).axes[0].lines) == 2, "the last iterate needs no mark"


def test_curves_differ_in_colour_and_in_style():
    assert len({str(line["color"]) for line in LINES}) == len({str(line["linestyle"]) for line in LINES}) == 6
    names = ["loss", "fidelity", *(f"energy_{i}" for i in range(7))]
    history = airnp.History(names)
    history.append(1, {name: np.array(1.0 + i) for i, name in enumerate(names)})
    assert len(airnp.plot.trajectories(history).axes[1].lines) == 7


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.2, 0.4, {"0.2", "0.3", "0.4"}),
        (0.011, 0.9, {"0.02", "0.05", "0.1", "0.5"}),
        (0.001, 10, {"0.1", "1"}),
    ],
)
def test_a_logarithmic_axis_has_plain_numbers(low, high, expected):
    history = airnp.History(["loss", "fidelity"])
    history.append(1, {"loss": np.array(high), "fidelity": np.array(low)})
    ax = airnp.plot.trajectories(history).axes[0]
    ax.figure.canvas.draw()
    texts = [text for which in ("major", "minor") for text in ax.yaxis.get_ticklabels(which=which)]
    bottom, top = ax.get_ylim()
    labels = {text.get_text() for text in texts if bottom < text.get_position()[1] < top}
    assert expected <= labels
    assert not any("e" in label or "$" in label for label in labels)


# ------------------------------------------------------------------------------------------------ laplacians


@pytest.mark.parametrize("name", ["rows", "columns"])
def test_heat_maps_show_the_recorded_graphs(name):
    recorder = airnp.plot.GraphRecorder(at=[1, 20, 40])
    fit(callback=recorder, learning_rate=0.1)
    panels = airnp.plot.laplacians(recorder, name).axes[:3]
    assert [ax.get_title().splitlines()[0] for ax in panels] == [
        "iteration 1",
        "iteration 20",
        "iteration 40",
    ]
    assert len({ax.images[0].get_clim() for ax in panels}) == 1, "one scale for all"
    weights = recorder.adjacencies(name)
    outside = ~np.eye(weights.shape[-1], dtype=bool)
    found = np.stack([brightness(entries(ax)) for ax in panels])
    order = np.argsort(weights[:, outside].ravel())
    assert (np.diff(found[:, outside].ravel()[order]) <= 0.01).all(), "stronger is darker, in all panels"
    assert np.ptp(found[:, outside]) > 0.2
    np.testing.assert_allclose(found[:, ~outside], 1.0)
    degrees = (weights * outside).sum(axis=-1).mean(axis=-1)
    assert [ax.get_title().splitlines()[1] for ax in panels] == [f"mean degree {d:.3g}" for d in degrees]


def test_many_moments_stand_in_equal_rows():
    recorder = airnp.plot.GraphRecorder(at=range(1, 8))
    fit(callback=recorder, record=1)
    figure = airnp.plot.laplacians(recorder)
    assert len(figure.axes) == 7 + 1
    places = [ax.get_subplotspec().rowspan.start for ax in figure.axes[:7]]
    assert places == [0, 0, 0, 0, 1, 1, 1]


# ------------------------------------------------------------------------------------------- singular values


def test_singular_values_are_drawn():
    result = fit(max_iter=500)
    ax = airnp.plot.singular_values(result, TRUTH)
    for line, matrix in zip(ax.lines, (result.X, TRUTH), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(1, 10))
        expected = np.linalg.svd(matrix, compute_uv=False)
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-6, atol=1e-9)
    largest = np.linalg.svd(TRUTH, compute_uv=False)[0]
    assert ax.get_yscale() == "log"
    assert largest * 1e-16 < ax.get_ylim()[0] < largest * 1e-10, "rank 3: the rest is rounding"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["recovered", "truth"]


# ---------------------------------------------------------------------------------------------------- graphs


def two_rings(labels: Any = None) -> Any:
    ring = np.roll(np.eye(5), 1, axis=1) * np.linspace(0.2, 1, 5)
    ring = ring + ring.T
    weights = np.kron(np.eye(2), ring)
    return reduced(np.pad(weights, (0, 1)), labels=labels, name="rows")  # and a node alone


@pytest.mark.parametrize("layout", [None, "spring", "spectral"])
def test_nodes_and_edges_are_where_the_layout_says(layout):
    graph = two_rings()
    ax = airnp.plot.graph(graph, layout=layout)
    places = places_of(graph, layout)
    edges, nodes = ax.collections
    np.testing.assert_array_equal(nodes.get_offsets(), places)
    np.testing.assert_array_equal(nodes.get_array(), np.arange(11))
    upper = np.triu(graph.adjacency.toarray())
    drawn = {frozenset(map(tuple, segment)) for segment in edges.get_segments()}
    expected = {
        frozenset((tuple(places[i]), tuple(places[j]))) for i, j in zip(*upper.nonzero(), strict=True)
    }
    assert drawn == expected
    assert ax.get_title() == "11 rows, 10 edges"


@pytest.mark.parametrize("layout", ["spring", "spectral"])
def test_a_layout_keeps_connected_parts_together_and_nodes_apart(layout):
    places = places_of(two_rings(), layout)
    assert np.isfinite(places).all()
    apart = np.linalg.norm(places[:, None] - places, axis=-1) + 10 * np.eye(11)
    assert apart.min() > 0.3
    parts = [Bbox([part.min(axis=0), part.max(axis=0)]) for part in (places[:5], places[5:10], places[10:])]
    for one in range(3):
        assert not any(parts[one].overlaps(parts[other]) for other in range(one))
    ring = [0, 1, 2, 3, 4]
    assert all(apart[i, (i + 1) % 5] < apart[i, (i + 2) % 5] for i in ring), "neighbours are near"
    np.testing.assert_array_equal(places, places_of(two_rings(), layout))


def test_stronger_edges_are_thicker_and_darker():
    graph = two_rings()
    edges = airnp.plot.graph(graph, layout="spectral").collections[0]
    widths, alphas = edges.get_linewidths(), edges.get_colors()[:, 3]
    assert (np.diff(widths) >= 0).all()
    assert (np.diff(alphas) >= 0).all()
    assert widths[-1] > 1.5 * widths[0]
    places = places_of(graph, "spectral")
    strongest = np.unravel_index(np.argmax(np.triu(graph.adjacency.toarray()[:5, :5])), (5, 5))
    drawn = [{tuple(end) for end in segment} for segment in edges.get_segments()[-2:]]
    assert {tuple(places[node]) for node in strongest} in drawn


def test_the_matrix_layout_is_the_adjacency():
    graph = two_rings(pd.Index(list("abcdefghijk")))
    ax = airnp.plot.graph(graph, layout="matrix")
    weights = graph.adjacency.toarray()
    found = brightness(entries(ax))
    np.testing.assert_allclose(found[weights == 0], 1.0)
    assert found[weights > 0].max() < 0.93, "the weakest edge is seen"
    assert (np.diff(found[weights > 0][np.argsort(weights[weights > 0])]) <= 0.01).all()
    assert [text.get_text() for text in ax.get_yticklabels()] == list("abcdefghijk")


def test_labels_stand_at_the_nodes():
    graph = two_rings(pd.Index(list("abcdefghijk")))
    ax = airnp.plot.graph(graph, layout="spectral")
    assert [text.get_text() for text in ax.texts] == list("abcdefghijk")
    np.testing.assert_array_equal([text.xy for text in ax.texts], places_of(graph, "spectral"))
    assert not airnp.plot.graph(graph, layout="spectral", labels=False).texts
    assert not airnp.plot.graph(two_rings(), layout="spectral").texts
    named = airnp.plot.graph(two_rings(), layout="spectral", labels=True)
    assert [text.get_text() for text in named.texts] == list(map(str, range(11)))
    many = reduced(np.ones((61, 61)), 2, labels=pd.RangeIndex(61))
    assert not airnp.plot.graph(many, layout="spectral").texts


def test_without_networkx_the_layout_is_spectral(monkeypatch):
    monkeypatch.setitem(sys.modules, "networkx", None)
    graph = two_rings()
    found = airnp.plot.graph(graph).collections[1].get_offsets()
    np.testing.assert_array_equal(found, places_of(graph, "spectral"))
    with pytest.raises(ImportError, match=r'pip install "airnp\[graph\]"'):
        airnp.plot.graph(graph, layout="spring")


@pytest.mark.parametrize("layout", ["spring", "spectral", "matrix"])
def test_graphs_with_nothing_in_them_are_drawn(layout):
    for weights in (np.zeros((1, 1)), np.zeros((3, 3)), np.array([[0, 1.0], [1.0, 0]])):
        ax = airnp.plot.graph(reduced(weights), layout=layout)
        assert ax.get_title().startswith(f"{len(weights)} nodes")
        pixels(ax.figure)


def test_other_graphs_and_layouts_are_refused():
    with pytest.raises(ValueError, match="'spring', 'spectral', 'matrix', got 'circle'"):
        airnp.plot.graph(two_rings(), layout="circle")
    with pytest.raises(TypeError, match=r"result\.row_graph\(\), got ndarray"):
        airnp.plot.graph(np.ones((3, 3)))


# ------------------------------------------------------------------------------------------------ uncertainty


def test_wider_intervals_are_brighter_and_observed_entries_are_grey():
    result = fit(stop="auto")
    ax = airnp.plot.uncertainty(result, 0.8)
    lower, upper = result.interval(0.8)
    found = entries(ax)
    np.testing.assert_array_equal(is_colour(found, UNKNOWN), MASK)
    order = np.argsort((upper - lower)[~MASK])
    assert (np.diff(brightness(found[~MASK])[order]) >= -0.02).all()
    np.testing.assert_allclose(ax.images[0].get_clim(), (0, (upper - lower).max()))
    assert ax.get_title() == "width of 80 % intervals"


def test_uncertainty_of_what_is_complete_is_all_grey_and_without_held_out_entries_there_is_none():
    complete = fit(TRUTH, np.ones_like(MASK), stop="auto")
    assert is_colour(entries(airnp.plot.uncertainty(complete)), UNKNOWN).all()
    with pytest.raises(ValueError, match="held out no entries"):
        airnp.plot.uncertainty(fit())


# ------------------------------------------------------------------------------------- one problem of a stack


def test_one_problem_of_a_stack_is_chosen():
    recorder = airnp.plot.GraphRecorder(at=[20])
    stack, masks = np.stack([TRUTH, TRUTH**2]), np.stack([MASK, MASK])
    result = fit(stack, masks, stop="auto", callback=recorder, learning_rate=0.1)
    losses = airnp.plot.trajectories(result, problem=1).axes[0].lines[0].get_ydata()
    np.testing.assert_array_equal(losses, result.history["loss"][:, 1])
    weights = np.asarray(airnp.plot.laplacians(recorder, problem=1).axes[0].images[0].get_array())
    outside = ~np.eye(9, dtype=bool)
    np.testing.assert_allclose(weights[outside], recorder.adjacencies("rows")[0, 1][outside])
    sizes = airnp.plot.singular_values(result, problem=1).lines[0].get_ydata()
    np.testing.assert_allclose(sizes, np.linalg.svd(result.X[1], compute_uv=False), rtol=1e-6, atol=1e-9)
    widths = airnp.plot.uncertainty(result, problem=1).images[0].get_array()
    lower, upper = result.interval()
    np.testing.assert_allclose(widths[~MASK], (upper - lower)[1][~MASK])
    plots = (airnp.plot.trajectories, airnp.plot.singular_values, airnp.plot.uncertainty)
    for plot, drawn in (*((plot, result) for plot in plots), (airnp.plot.laplacians, recorder)):
        with pytest.raises(ValueError, match="problem=0"):
            plot(drawn)


# ------------------------------------------------------------------------------------------- axes and figures


def recorded() -> airnp.plot.GraphRecorder:
    recorder = airnp.plot.GraphRecorder(at=[1, 10, 20, 30, 40])
    fit(callback=recorder)
    return recorder


SEVERAL = {
    "before_after": (3, lambda axes: airnp.plot.before_after(fit(), axes=axes)),
    "trajectories": (2, lambda axes: airnp.plot.trajectories(fit(), axes=axes)),
    "laplacians": (5, lambda axes: airnp.plot.laplacians(recorded(), axes=axes)),
}
SINGLE = {
    "singular_values": lambda ax: airnp.plot.singular_values(fit(), ax=ax),
    "spring": lambda ax: airnp.plot.graph(fit().row_graph(2), layout="spring", ax=ax),
    "matrix": lambda ax: airnp.plot.graph(fit().row_graph(2), layout="matrix", ax=ax),
    "uncertainty": lambda ax: airnp.plot.uncertainty(fit(stop="auto"), ax=ax),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_panels_go_into_given_axes(name):
    count, draw = SEVERAL[name]
    figure, axes = plt.subplots(1, count)
    assert draw(axes) is figure
    assert plt.get_fignums() == [figure.number]
    assert all(ax.has_data() for ax in axes)
    with pytest.raises(ValueError, match=f"axes: expected {count}, got {count + 1}"):
        draw([*axes, axes[0]])


@pytest.mark.parametrize("name", SINGLE)
def test_one_panel_goes_into_given_axes(name):
    figure, (left, right) = plt.subplots(1, 2)
    assert SINGLE[name](right) is right
    assert plt.get_fignums() == [figure.number]
    assert right.has_data()
    assert not left.has_data()


@pytest.mark.parametrize("name", [*SEVERAL, *SINGLE])
def test_without_axes_one_new_figure_is_made_and_nothing_is_shown(name, monkeypatch):
    monkeypatch.setattr(plt, "show", lambda *_, **__: pytest.fail("shown"))
    drawn = SEVERAL[name][1](None) if name in SEVERAL else SINGLE[name](None)
    assert len(plt.get_fignums()) == 1
    figure = drawn if name in SEVERAL else drawn.figure
    printed = pixels(figure)
    edges = [printed[0], printed[-1], printed[:, 0], printed[:, -1]]
    assert all(is_colour(edge, "white").all() for edge in edges), "nothing is cut off"


@pytest.mark.parametrize("name", [*SEVERAL, *SINGLE])
def test_without_matplotlib_the_error_says_what_to_install(name, monkeypatch):
    for module in [module for module in sys.modules if module.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, module, None)
    draw = SEVERAL[name][1] if name in SEVERAL else SINGLE[name]
    with pytest.raises(ImportError, match=r'pip install "airnp\[plot\]"'):
        draw(None)


def test_importing_the_module_does_not_bring_matplotlib():
    code = (
        "import sys, airnp; assert 'airnp.plot' not in sys.modules\n"
        "import airnp.plot; assert not {'matplotlib', 'networkx'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_any_namespace(backend):
    result = fit(backend.array(TRUTH), backend.array(MASK))
    before = airnp.plot.before_after(result, backend.array(TRUTH)).axes[0]
    np.testing.assert_array_equal(is_colour(entries(before), HOLE), ~MASK)
    airnp.plot.singular_values(result)
    airnp.plot.uncertainty(fit(backend.array(TRUTH), backend.array(MASK), stop="auto"))
