"""Every instance of every CUDA kernel on small shapes under ASan and UBSan, and under the race detector.

The values are checked as well. ``test_simt.py`` shows that the sanitizers fire, defect by defect.
"""

import numpy as np
import pytest

from tests.engines import patch_kernel_checks as patches
from tests.engines import sparse_kernel_checks as sparse
from tests.engines.kernel_checks import (
    check_dense_laplacian,
    check_graph,
    check_mirror,
    check_record,
    check_residual,
    check_sparse_laplacian,
    check_split,
    check_tensors,
    check_variation,
)
from tests.engines.kernel_launches import KINDS, Machine

pytestmark = [
    pytest.mark.parametrize("mode", ["asan", "tsan"]),
    pytest.mark.parametrize("dtype", [np.float32, np.float64]),
]
# Edges of tiles and warps, several blocks, fewer blocks than work; blocks and threads in several orders.
GRAPHS = [(1, 1, 1, 2048), (2, 5, 0, 2048), (1, 33, 1, 2048), (2, 65, 2, 2048), (3, 97, 7, 2)]
# m, n, rank, longest piece, order, most blocks
SPARSE = [(1, 1, 1, 1024, 1, 2048), (7, 9, 33, 3, 1, 2048), (41, 33, 5, 4, 2, 2048), (33, 41, 130, 6, 7, 1)]
# shape, frame, rate of gaps, patch, order, most blocks
PICTURES = [
    ((1, 1, 7, 9), 0, 0.4, 3, 1, 2048),
    ((3, 1, 6, 7), 1, 0.6, 2, 2, 1),
    ((1, 3, 8, 7), 0, 0.5, 4, 7, 2),
]
SHAPES = [((2, 1, 1), 0, 2048), ((1, 31, 33), 1, 2048), ((3, 1, 300), 2, 2048), ((2, 300, 1), 7, 1)]


@pytest.mark.parametrize("adam", [False, True])
@pytest.mark.parametrize("kind", range(3), ids=KINDS)
@pytest.mark.parametrize(("batch", "nodes", "order", "most_blocks"), GRAPHS)
def test_graph(mode, dtype, kind, adam, batch, nodes, order, most_blocks):
    machine = Machine(mode, order, most_blocks)
    check_graph(
        kind=kind, adam=adam, dtype=dtype, nodes=nodes, batch=batch, spread=1.0, seed=1, machine=machine
    )
    if kind == 0 and not adam:
        check_mirror(dtype, nodes, machine)


@pytest.mark.parametrize(("shape", "order", "most_blocks"), SHAPES)
def test_passes_over_a_matrix(mode, dtype, shape, order, most_blocks):
    case = {"dtype": dtype, "shape": shape, "seed": 1, "machine": Machine(mode, order, most_blocks)}
    for delta, scales in ((None, (True, True)), (0.5, (False, False)), (0.5, (True, False))):
        check_residual(delta=delta, scales=scales, **case)
    for choice in (False, True):
        check_variation(quadratic=choice, **case)
        for shared in (False, True):
            check_dense_laplacian(columns=choice, shared=shared, **case)
        for index in (np.int32, np.int64):
            check_sparse_laplacian(columns=choice, index=index, density=0.3, **case)


@pytest.mark.parametrize("order", [0, 1, 7])
def test_updates_and_record(mode, dtype, order):
    for adam in (False, True):
        for most_blocks in (1, 2048):
            check_tensors(
                dtype=dtype, sizes=[33, 0, 700, 1], adam=adam, machine=Machine(mode, order, most_blocks)
            )
    check_split(dtype=dtype, size=700, machine=Machine(mode, order, 2))
    check_record(dtype=dtype, count=5, batch=70, capacity=2, machine=Machine(mode, order, 1))


@pytest.mark.parametrize(("m", "n", "rank", "longest", "order", "most_blocks"), SPARSE)
def test_sparse_form(mode, dtype, m, n, rank, longest, order, most_blocks):
    machine = Machine(mode, order, most_blocks)
    case = {"dtype": dtype, "rank": rank, "share": 0.3, "longest": longest, "seed": 1}
    for check in (sparse.check_residuals, sparse.check_values, sparse.check_plain_sums):
        check(machine, m=m, n=n, **case)
    sparse.check_gram(machine, dtype, min(rank, 40), min(rank, 30), seed=order)
    sparse.check_edges(machine, nodes=m, **case)
    sparse.check_laplacian(machine, nodes=n, **case)


@pytest.mark.parametrize(("shape", "frame", "rate", "patch", "order", "most_blocks"), PICTURES)
def test_patches(mode, dtype, shape, frame, rate, patch, order, most_blocks):
    machine = Machine(mode, order, most_blocks)
    how = patches.round_of(patch=patch, stride=2, search=2, neighbours=17, answers=11)
    for check in (patches.check_matching, patches.check_filling):
        check(machine, dtype=dtype, shape=shape, frame=frame, rate=rate, seed=1, how=how)
