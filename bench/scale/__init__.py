"""Growth: time and memory of the sparse form up to a million rows, beside the dense form and PyTorch.

    python -m bench.scale                   # everything: about half an hour on two cores, 16 GB
    python -m bench.scale --quick           # up to 10 000 rows: two minutes
    python -m bench.scale --sections growth dense peers large memory
    python -m bench.scale --report-only     # page and picture from what is there

Data are made up: rows and columns in communities, a planted rank, noise; 20 entries a row, five times as many
rows as columns. Each size is measured in a process of its own, pinned to ``--threads`` processors; its peak
memory is the process's. "Iteration" is the median after two that are not counted; neighbours are searched
before the first, and that time stands by itself. Peers take the same steps from the same start in the same
process, interleaved; every program must reach the same loss before it is timed. Results are in
``bench/results/scale``, one file for each measurement: what is there is not measured again.
"""
