"""``python -m bench.scale``: its synthetic tables, measurements, peers and page."""

from __future__ import annotations

import numpy as np
import pytest

from bench import measurements
from bench.scale import __main__ as command
from bench.scale import problem
from bench.scale.measure import dense, peers, sparse
from bench.scale.page import page, picture
from bench.scale.problem import NOISE, engine, for_torch, planted, prepare

TINY = {"m": 120, "n": 40, "per_row": 12, "rank": 3, "neighbors": 5, "threads": 1, "seconds": 0.01}


def test_a_planted_table_has_its_shape_entries_and_variance():
    table = planted(500, 100, 20, rank=3, held_out=400)
    assert table.matrix.shape == (500, 100)
    assert len(table.values) == 400
    assert 15 * 500 < table.matrix.nnz + 400 <= 20 * 500  # places drawn twice count once
    held = set(zip(table.rows.tolist(), table.columns.tolist(), strict=True))
    assert not held & set(zip(*(a.tolist() for a in table.matrix.nonzero()), strict=True))
    assert 0.5 < float(table.matrix.data.std()) < 1.5
    np.testing.assert_array_equal(planted(500, 100, 20, rank=3, held_out=400).matrix.data, table.matrix.data)
    with pytest.raises(ValueError, match="per_row: expected at most n = 10"):
        planted(20, 10, 11)


def test_a_planted_table_has_the_planted_rank(monkeypatch):
    monkeypatch.setattr(problem, "_draw_places", lambda rng, m, n, per_row: np.arange(m * n))
    table = planted(80, 50, 50, rank=3, held_out=0)
    spectrum = np.linalg.svd(table.matrix.toarray(), compute_uv=False)
    largest_of_noise = NOISE * (np.sqrt(80) + np.sqrt(50))
    assert spectrum[3] < 1.3 * largest_of_noise < spectrum[2]


@pytest.fixture
def torch_sparse():
    """The module of the peers; the test is skipped without PyTorch."""
    reason = "PyTorch is not installed; .ci/run installs it"
    return pytest.importorskip("bench.peers.torch_sparse", reason=reason)


@pytest.mark.parametrize(("many", "portion"), [(10_000, 2_000_000), (1, 50)])
def test_pytorch_takes_the_same_steps(torch_sparse, many, portion, monkeypatch):
    """Whether neighbours are brought close to each other or not, and rows are gathered in portions or not."""
    monkeypatch.setattr("airnp.regularizers.candidates._MANY_NODES", many)
    monkeypatch.setattr(torch_sparse, "_PORTION", portion)
    prepared = prepare(planted(90, 40, 10).matrix, 3, 4, 1)
    assert all((edges.order is None) == (many > 90) for edges in prepared.objective.edges)
    start = for_torch(prepared)
    runs = [engine(prepared)[0], torch_sparse.gathered(start), torch_sparse.sparse_products(start)]
    for iterations in (1, 10, 20):
        ours, *theirs = (run(iterations) for run in runs)
        assert theirs == pytest.approx([ours, ours], rel=2e-4)


def test_both_forms_are_measured():
    found = sparse(TINY | {"target": 10.0})
    assert found["reached"]
    assert found["megabytes"] > 10
    assert min(found["seconds"], dense(TINY)["seconds"]) > 0
    assert not sparse(TINY | {"target": 0.0, "limit": 0.01})["reached"]


def test_peers_are_measured_beside_airnp(torch_sparse):
    found = peers(TINY | {"rounds": 2})
    assert found["ratios"]["airnp"] == 1
    assert len(found["seconds"]) == 3


def test_page_and_picture(tmp_path):
    common = {"search": 1.0, "megabytes": 100}
    growth = [
        ("growth", {"m": m, "n": m // 5, "nnz": 20 * m, "seconds": 1e-7 * m**1.25, **common})
        for m in (1000, 10_000, 100_000)
    ]
    fails = ("dense", {"m": 10_000, "failed": "needs 9 GiB and more"})
    reach = ("error", {"m": 1000, "nnz": 9, "reached": True, "error": 0.3, "to_error": 1.5, "iterations": 7})
    pair = {"airnp": 1.0, "other": 3.5}
    peer = {"m": 10, "n": 2, "nnz": 9, "rank": 3, "threads": 2, "seconds": pair, "ratios": pair}
    text = page([*growth, fails, reach, ("peers", peer), ("large", growth[2][1])])
    for part in ("1.25 over all sizes", "needs 9 GiB", "1.5 s, 7 iterations", "| other | 3.50 s | 3.50 |"):
        assert part in text
    picture([*growth, fails], tmp_path / "scale.png")
    assert (tmp_path / "scale.png").stat().st_size > 1000


def test_finished_measurements_are_not_made_again(tmp_path, monkeypatch):
    case, calls = {"m": 7, "threads": 1}, []

    class Done:
        returncode, stdout = 0, 'noise\n{"nnz": 3, "seconds": 0.5}\n'

    monkeypatch.setattr(measurements.subprocess, "run", lambda *a, **k: calls.append(a) or Done())
    first = command.measure(tmp_path, "sparse", case)
    assert first == case | {"nnz": 3, "seconds": 0.5}
    assert command.measure(tmp_path, "sparse", case) == first
    assert len(calls) == 1
    Done.returncode = 9
    assert "code 9" in command.measure(tmp_path, "sparse", case | {"m": 8})["failed"]


def test_cases_of_a_quick_run_are_small():
    every, whole = (command.cases(command.SECTIONS, 2, quick=quick) for quick in (True, False))
    assert {section for section, _, _ in every} == {"growth", "dense", "error", "peers"}
    assert [max(case["m"] for _, _, case in cases) for cases in (every, whole)] == [10_000, 1_000_000]
    (large,) = [case for section, _, case in whole if section == "large"]
    assert large["m"] * large["per_row"] == 138_000 * 146
    assert [kind for _, kind, _ in command.cases(["dense"], 2, quick=True)] == ["dense"] * 3
