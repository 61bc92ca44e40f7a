"""``airnp.fit(form="sparse")`` and ``airnp.fit_ratings`` from outside."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
from airnp.training.sparse_watch import held_out_entries
from scipy.sparse import coo_array, csr_array, lil_array

import airnp
from airnp import (
    Adam,
    AdaptiveLaplacian,
    EnergyChange,
    FixedLaplacian,
    Gaussian,
    HeldOut,
    WeightDecay,
    datasets,
)
from airnp import sparse_choice as choice
from airnp.data.entries import read_entries
from airnp.regularizers.candidates import Exchange, edges_to, exact, nearest


def table(
    m: int = 40, n: int = 30, rank: int = 2, share: float = 0.5, seed: int = 0
) -> tuple[np.ndarray, csr_array]:
    """Return a matrix of low rank with entries around 3, and a sparse matrix of some of them."""
    rng = np.random.default_rng(seed)
    truth = 3 + rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
    rows, columns = np.nonzero(rng.random((m, n)) < share)
    return truth, csr_array(coo_array((truth[rows, columns], (rows, columns)), shape=(m, n)))


QUICK = {"rank": 3, "depth": 2, "form": "sparse", "max_iter": 60, "stop": None, "seed": 0}


def test_both_forms_agree_over_200_iterations_where_all_candidates_are_kept():
    _, S = table(12, 9)
    common = {"depth": 3, "rank": 4, "max_iter": 200, "stop": None, "seed": 5, "init": Gaussian(0.1, 0.3)}
    graphs = [AdaptiveLaplacian("rows", 0.02, neighbors=11), AdaptiveLaplacian("columns", 0.03, neighbors=8)]
    dense = airnp.fit(
        S, regularizers=[AdaptiveLaplacian("rows", 0.02), AdaptiveLaplacian("columns", 0.03)], **common
    )
    sparse = airnp.fit(S, regularizers=graphs, form="sparse", **common)
    np.testing.assert_allclose(sparse.X, dense.X, rtol=0, atol=1e-9)
    np.testing.assert_allclose(sparse.history["loss"], dense.history["loss"], rtol=1e-9)
    ours, theirs = sparse.row_graph(3).adjacency.toarray(), dense.row_graph(3).adjacency.toarray()
    np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_completes_a_matrix_of_low_rank():
    truth, S = table(80, 60)
    result = airnp.fit(
        S,
        rank=4,
        depth=2,
        form="sparse",
        offsets=True,
        regularizers=[],
        optimizer=Adam(0.01),
        max_iter=3000,
        seed=0,
    )
    missing = S.toarray() == 0
    rows, columns = np.nonzero(missing)
    error = np.abs(result.predict(rows, columns) - truth[missing]).mean()
    assert error < 0.05
    assert result.stop_reason in ("held-out error stopped falling", "max_iter (3000) reached")
    assert 0 < result.best_iter <= 3000 < result.n_iter + 3000


def test_every_option_at_once_and_the_result_tells_everything(tmp_path):
    _, S = table()
    graph = csr_array(np.eye(30, k=1) + np.eye(30, k=-1))
    terms = [
        AdaptiveLaplacian("rows", 1e-3, neighbors=5, refresh=7),
        FixedLaplacian(graph, "columns", 1e-3),
        WeightDecay(1e-3, "sqrt"),
        WeightDecay(1e-3, on="mask"),
    ]
    seen = []
    result = airnp.fit(
        S, regularizers=terms, offsets=2.0, mask_factor="both", bounds=(-9.0, 12.0), batch_size=100,
        callback=lambda iteration, state: seen.append((iteration, state.loss)), **QUICK,
    )  # fmt: skip
    assert result.shape == (40, 30)
    assert list(result.history) == [
        *("iteration", "loss", "fidelity", "energy_rows", "energy_columns"),
        *("energy_decay", "energy_mask_decay", "energy_offsets"),
    ]
    assert [iteration for iteration, _ in seen] == [1, 10, 20, 30, 40, 50, 60]
    assert result.X.min() >= -9.0
    assert result.predict(3, [4, 5]).shape == (2,)
    np.testing.assert_allclose(result.predict([[1], [2]], [3, 4]), result.X[1:3, 3:5], rtol=1e-12)
    assert result.row_graph().n_nodes == 40
    with pytest.raises(ValueError, match="column_graph: this fit learned no graph over columns"):
        result.column_graph()
    file = tmp_path / "result.npz"
    result.save(file)
    again = airnp.load(file)
    np.testing.assert_array_equal(again.X, result.X)
    np.testing.assert_array_equal(again.history["loss"], result.history["loss"])
    assert (again.seed, again.n_iter, again.best_iter, again.stop_reason) == (0, 60, 60, result.stop_reason)
    assert abs(again.graphs[0].adjacency - result.graphs[0].adjacency).max() == 0
    assert again.graphs[1].description == result.graphs[1].description


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch_size", [None, 150])
def test_the_same_seed_gives_the_same_bits(threads, batch_size):
    _, S = table(60, 50)
    settings = {**QUICK, "rank": 16, "threads": threads, "batch_size": batch_size, "dtype": "float32"}
    settings |= {"regularizers": [AdaptiveLaplacian("rows", 1e-3, neighbors=4, refresh=20)], "offsets": True}
    first, second = airnp.fit(S, **settings), airnp.fit(S, **settings)
    np.testing.assert_array_equal(first.X, second.X)
    assert not np.array_equal(first.X, airnp.fit(S, **{**settings, "seed": 1}).X)


def test_both_engines_agree():
    _, S = table()
    settings = {**QUICK, "offsets": True, "mask_factor": "rows"}
    settings["regularizers"] = [AdaptiveLaplacian("columns", 1e-2, neighbors=6)]
    fast, plain = airnp.fit(S, **settings), airnp.fit(S, engine="reference", **settings)
    np.testing.assert_allclose(fast.X, plain.X, rtol=1e-9)


def test_input_is_not_changed_and_explicit_zeros_count():
    S = lil_array((3, 3))
    S[0, 0], S[1, 1], S[2, 2] = 1.0, 2.0, 3.0
    C = coo_array(([0.0, 1.0, 2.0, 3.0], ([0, 0, 1, 2], [1, 0, 1, 2])), shape=(3, 3))
    assert read_entries(C).nnz == 4
    assert read_entries(S).nnz == 3
    before = C.data.copy()
    airnp.fit(C, rank=1, depth=2, form="sparse", regularizers=[], max_iter=5, stop=None, seed=0)
    np.testing.assert_array_equal(C.data, before)


def test_empty_lines_are_warned_of_and_still_predicted():
    S = coo_array(([1.0, 2.0], ([0, 2], [0, 1])), shape=(3, 2))
    with pytest.warns(airnp.EmptyLineWarning, match="1 rows and 0 columns"):
        result = airnp.fit(
            S, rank=1, depth=2, form="sparse", offsets=True, regularizers=[], max_iter=5, seed=0
        )
    assert np.isfinite(result.X).all()


def test_the_form_follows_memory(monkeypatch):
    _, S = table()
    settings = {name: value for name, value in QUICK.items() if name != "form"} | {"regularizers": []}
    assert isinstance(airnp.fit(S, **settings), airnp.FitResult)
    monkeypatch.setattr(choice, "available_memory", lambda: 1000)
    assert isinstance(airnp.fit(S, **settings), airnp.SparseFitResult)
    assert isinstance(airnp.fit(S, form="dense", **settings), airnp.FitResult)
    assert isinstance(airnp.fit(S.toarray(), **settings), airnp.FitResult)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": None}, "rank: form='sparse' needs one"),
        ({"rank": 31}, "rank: expected at most"),
        ({"depth": 1}, "depth: one factor is the whole matrix"),
        (
            {"mask": np.ones((40, 30)), "truth": np.ones((40, 30))},
            "mask, truth: not with form='sparse'",
        ),
        ({"loss": "huber"}, "loss: form='sparse' has 'squared'"),
        ({"regularizers": [airnp.TotalVariation(1.0)]}, "regularizers: form='sparse' has"),
        (
            {"regularizers": [AdaptiveLaplacian("rows", adjacency="global")]},
            "adjacency: form='sparse' has 'row'",
        ),
        ({"regularizers": [WeightDecay(1.0, on="mask")]}, "needs a mask_factor"),
        ({"regularizers": [FixedLaplacian(np.ones((3, 3)))]}, "graph: expected 40 nodes"),
        (
            {"regularizers": [AdaptiveLaplacian(candidates=csr_array(np.eye(3)))]},
            "candidates: expected shape",
        ),
        ({"offsets": -1.0}, "offsets: expected True, False or a shrinkage"),
        ({"mask_factor": "all"}, "mask_factor: expected one of"),
        ({"init": "balanced"}, "init: 'balanced' forms the whole matrix"),
        ({"init": [np.ones((2, 2))]}, "init: expected factors of shapes"),
        ({"form": "thin"}, "form: expected one of"),
        ({"engine": "cuda"}, "engine: form='sparse' has"),
        ({"bounds": (0, 1)}, "bounds: "),
    ],
)
def test_what_cannot_be_meant_is_refused(options, message):
    _, S = table()
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        airnp.fit(S, **{**QUICK, **options})


def test_options_of_one_form_are_refused_by_the_other():
    truth, S = table()
    with pytest.raises(ValueError, match="offsets, batch_size: only with a scipy"):
        airnp.fit(truth, offsets=True, batch_size=3)
    with pytest.raises(TypeError, match="Y: form='sparse' expects a sparse matrix"):
        airnp.fit(truth, **QUICK)
    with pytest.raises(ValueError, match="WeightDecay is for a sparse Y"):
        airnp.fit(truth, regularizers=[WeightDecay(1.0)])
    with pytest.raises(ValueError, match="neighbors, candidates: are for a sparse Y"):
        airnp.fit(truth, regularizers=[AdaptiveLaplacian(neighbors=3)])
    result = airnp.fit(S, **QUICK, regularizers=[])
    with pytest.raises(IndexError, match="rows: expected 0 to 39"):
        result.predict([40], [0])


def test_a_large_matrix_is_not_formed():
    S = coo_array(([1.0, 2.0], ([0, 70_000], [0, 70_000])), shape=(70_001, 70_001))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", airnp.EmptyLineWarning)
        result = airnp.fit(S, rank=1, depth=2, form="sparse", regularizers=[], max_iter=1, stop=None, seed=0)
    with pytest.raises(ValueError, match=r"predict\(rows, columns\)"):
        _ = result.X


def test_divergence_carries_the_last_finite_state():
    _, S = table()
    with pytest.raises(airnp.DivergenceError, match="the loss became infinite") as caught:
        airnp.fit(S, optimizer=airnp.GradientDescent(1e6), fidelity="sum", regularizers=[], **QUICK)
    assert np.isfinite(caught.value.result.X).all()


def test_an_interrupt_returns_the_result_so_far():
    program = """
        import signal, airnp, numpy as np
        from scipy.sparse import csr_array
        signal.signal(signal.SIGINT, signal.default_int_handler)
        rng = np.random.default_rng(0)
        S = csr_array(rng.random((50, 40)) * (rng.random((50, 40)) < 0.3))
        def stop(iteration, state):
            if iteration == 30:
                signal.raise_signal(signal.SIGINT)
        result = airnp.fit(S, rank=3, depth=2, form="sparse", regularizers=[], max_iter=100, stop=None,
                           seed=0, callback=stop)
        print(result.stop_reason, result.n_iter)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["interrupted", "30"]
    assert signal.SIGINT


def test_a_callback_and_energies_can_stop_a_fit():
    _, S = table()
    result = airnp.fit(S, regularizers=[], callback=lambda iteration, state: iteration >= 20, **QUICK)
    assert (result.n_iter, result.stop_reason) == (20, "stopped by callback")
    settings = {**QUICK, "stop": EnergyChange(1e9), "regularizers": [WeightDecay(1e-3)]}
    assert airnp.fit(S, **settings).n_iter == 2
    with pytest.raises(ValueError, match="EnergyChange needs"):
        airnp.fit(S, **{**settings, "regularizers": []})


def test_a_refit_makes_as_many_iterations_with_all_entries():
    _, S = table()
    rule = HeldOut(0.1, patience=20, every=5)
    result = airnp.fit(
        S, **{**QUICK, "stop": rule, "max_iter": 200, "regularizers": [], "optimizer": Adam(0.02)}
    )
    alone = airnp.fit(
        S, **{**QUICK, "max_iter": result.best_iter, "regularizers": [], "optimizer": Adam(0.02)}
    )
    np.testing.assert_array_equal(result.X, alone.X)
    assert result.n_iter > result.best_iter


def test_held_out_entries_leave_no_line_empty():
    _, S = table(50, 40, share=0.15)
    entries = read_entries(S)
    held = held_out_entries(entries, 0.5, seed=3)
    kept, out = entries.split(held)
    assert out.nnz == held.sum() > 0
    np.testing.assert_array_equal(kept.pattern.counts > 0, entries.pattern.counts > 0)
    np.testing.assert_array_equal(kept.column_counts > 0, entries.column_counts > 0)


def test_batches_estimate_the_whole_loss_without_bias():
    truth, S = table()
    settings = {**QUICK, "regularizers": [], "max_iter": 400, "optimizer": Adam(0.01), "offsets": True}
    whole, parts = airnp.fit(S, **settings), airnp.fit(S, batch_size=200, **settings)
    errors = [np.abs(result.X - truth).mean() for result in (whole, parts)]
    assert errors[1] < 1.5 * errors[0]


def test_edges_that_stay_keep_their_weight_and_new_ones_get_the_mean_of_their_row():
    old, new = (
        edges_to(np.array([[1, 2], [0, 2], [0, 1], [0, 1]])),
        edges_to(np.array([[1, 3], [0, 2], [0, 1], [1, 2]])),
    )
    values = np.arange(12.0)
    carried = Exchange(old, new).logits(values)
    np.testing.assert_allclose(carried, [0, 1, 0.5, 3, 4, 5, 6, 7, 8, 10, 10.5, 11])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_approximate_index_finds_most_of_the_nearest(dtype, monkeypatch):
    pytest.importorskip("faiss", reason="faiss is not installed: pip install airnp[neighbors]")
    rng = np.random.default_rng(0)
    points = (
        rng.standard_normal((40, 8))[rng.integers(40, size=3000)] + 0.3 * rng.standard_normal((3000, 8))
    ).astype(dtype)
    right = exact(points, np.arange(3000), 10)
    monkeypatch.setattr("airnp.regularizers.candidates._EXACT_ROWS", 100)
    found, again = nearest(points, 10), nearest(points, 10, threads=2)
    np.testing.assert_array_equal(found, again)
    assert not (found == np.arange(3000)[:, None]).any()
    shared = np.mean([len(np.intersect1d(a, b)) for a, b in zip(found, right, strict=True)])
    assert shared > 9


def test_ratings_in_one_call():
    truth, _ = table(60, 50, seed=1)
    stars = np.clip(np.rint(truth), 1, 5)
    rows, columns = np.nonzero(np.random.default_rng(2).random(stars.shape) < 0.4)
    R = coo_array((stars[rows, columns], (rows, columns)), shape=stars.shape)
    result = airnp.fit_ratings(R, seed=0)
    rest = np.ones(stars.shape, bool)
    rest[rows, columns] = False
    error = np.sqrt(np.mean((result.X - stars)[rest] ** 2))
    assert error < 0.8 * stars[rest].std()
    assert 1 <= result.X.min() <= result.X.max() <= 5
    with pytest.raises(TypeError, match="R: expected a sparse matrix"):
        airnp.fit_ratings(stars)
    twice = coo_array(([1.0, 5.0, 4.0], ([0, 0, 1], [0, 0, 1])), shape=(3, 3))
    with pytest.raises(ValueError, match=r"R: expected at most one rating .* got 3 ratings of 2 pairs"):
        airnp.fit_ratings(twice)


@pytest.mark.slow
def test_movielens_100k(data_directory):
    data = datasets.movielens_100k()
    rows, columns = np.nonzero(data.mask)
    R = coo_array((data.matrix[data.mask], (rows, columns)), shape=data.mask.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", airnp.EmptyLineWarning)
        result = airnp.fit_ratings(R, seed=0)
    error = result.predict(*np.nonzero(data.test_mask)) - data.matrix[data.test_mask]
    assert np.sqrt(np.mean(error**2)) <= 0.888
