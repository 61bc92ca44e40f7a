"""Every instance of every CUDA kernel on small shapes under ASan and UBSan, and under the race detector.

The values are checked as well. That the sanitizers do fire is shown by ``test_simt.py``, defect by defect.
"""

import numpy as np
import pytest

from tests.kernel_checks import (
    check_dense_laplacian,
    check_graph,
    check_record,
    check_residual,
    check_sparse_laplacian,
    check_tensors,
    check_variation,
)
from tests.kernel_launches import KINDS, Machine

pytestmark = [
    pytest.mark.parametrize("mode", ["asan", "tsan"]),
    pytest.mark.parametrize("dtype", [np.float32, np.float64]),
]
# Edges of tiles and warps, several blocks, fewer blocks than work; blocks and threads in several orders.
GRAPHS = [(1, 1, 1, 2048), (2, 5, 0, 2048), (1, 33, 1, 2048), (2, 65, 2, 2048), (3, 97, 7, 2)]
SHAPES = [((2, 1, 1), 0, 2048), ((1, 31, 33), 1, 2048), ((3, 1, 300), 2, 2048), ((2, 300, 1), 7, 1)]


def machine_of(mode, order, most_blocks):
    return Machine(mode=mode, order=order, most_blocks=most_blocks)


@pytest.mark.parametrize("adam", [False, True])
@pytest.mark.parametrize("kind", range(3), ids=KINDS)
@pytest.mark.parametrize(("batch", "nodes", "order", "most_blocks"), GRAPHS)
def test_graph(mode, dtype, kind, adam, batch, nodes, order, most_blocks):
    machine = machine_of(mode, order, most_blocks)
    check_graph(
        kind=kind, adam=adam, dtype=dtype, nodes=nodes, batch=batch, spread=1.0, seed=1, machine=machine
    )


@pytest.mark.parametrize(("shape", "order", "most_blocks"), SHAPES)
def test_passes_over_a_matrix(mode, dtype, shape, order, most_blocks):
    case = {"dtype": dtype, "shape": shape, "seed": 1, "machine": machine_of(mode, order, most_blocks)}
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
                dtype=dtype, sizes=[33, 0, 700, 1], adam=adam, machine=machine_of(mode, order, most_blocks)
            )
    check_record(dtype=dtype, count=5, batch=70, capacity=2, machine=machine_of(mode, order, 1))
