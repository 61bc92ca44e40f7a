"""Time and memory of the sparse form up to a million rows, beside the dense form and PyTorch.

    python -m bench.scale                   # everything: about half an hour on two cores, 16 GB
    python -m bench.scale --quick           # up to 10 000 rows: two minutes
    python -m bench.scale --sections growth dense error peers large

The data are synthetic: rows and columns in communities, a planted rank, noise; 20 entries a row, five times
as many rows as columns. Each size is measured in its own process, pinned to ``--threads`` processors; its
peak memory is that of the process. "Iteration" is the median after two that are not counted; the search for
neighbours comes before the first and is timed separately. Peers take the same steps from the same start in
the same process, interleaved; every program must reach the same loss before it is timed. Results are in
``bench/results/scale``, one file for each measurement; the next start measures only the missing ones.
"""
