"""A matrix that no machine could hold, completed in little memory."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import json, resource, warnings
    import numpy as np
    from scipy.sparse import coo_array
    import airnp

    # 80 GB for X and 320 GB for a graph over the rows, had they been formed.
    m, n, each = 200_000, 50_000, 10
    rng = np.random.default_rng(0)
    rows, columns = np.repeat(np.arange(m), each), rng.integers(0, n, m * each)
    S = coo_array((rng.random(m * each, dtype=np.float32), (rows, columns)), shape=(m, n))
    ring = [(np.arange(size) + step) % size for size in (m, n) for step in (1, 2, 3)]
    graphs = []
    for size, ends in ((m, ring[:3]), (n, ring[3:])):
        places = np.tile(np.arange(size), 3), np.concatenate(ends)
        graphs.append(coo_array((np.ones(3 * size, np.float32), places), (size, size)))
    resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
    result = airnp.fit(
        S, rank=8, depth=2, max_iter=3, stop=None, seed=0, offsets=True, mask_factor="both",
        batch_size=500_000, regularizers=[
            airnp.AdaptiveLaplacian("rows", candidates=graphs[0]),
            airnp.AdaptiveLaplacian("columns", candidates=graphs[1]),
            airnp.WeightDecay(1e-9),
        ],
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    some = result.predict(rows[:5], columns[:5])
    print(json.dumps([type(result).__name__, peak, bool(np.isfinite(some).all())]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
def test_200_000_rows_and_50_000_columns_in_6_gib():
    program = [sys.executable, "-W", "error", "-c", textwrap.dedent(PROGRAM)]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kind, peak, finite = json.loads(done.stdout)
    assert kind == "SparseFitResult"
    assert finite
    assert peak < 1.5 * 2**30
