"""Pictures: :func:`airnp.inpaint` beside biharmonic and linear filling, OpenCV's methods and slower peers.

    python -m bench.pictures                  # all missing cells, then the report: many hours on two cores
    python -m bench.pictures --quick          # two pictures at 240×240, two masks: a minute
    python -m bench.pictures --only half=tuning size=240 mask=30%,text method=inpaint,biharmonic
    python -m bench.pictures --only method=bm3d,wavelets picture=camera size=240   # on request only
    python -m bench.pictures --redo inpaint   # delete the cells of a method first
    python -m bench.pictures --time           # seconds and memory, on an idle machine: an hour
    python -m bench.pictures --report         # compute nothing
    python -m bench.pictures --report --page  # and write docs/pictures_measured.md

In a clone, with ``pip install -e ".[data,baselines,bench]"``; the paper's pictures come from
:mod:`airnp.datasets`. ``bm3d``, ``wavelets`` and ``deep_prior``, which run on request and at 240×240 only,
need ``pip install bm3d deepinv ptwt``. AIR, ``air``, runs on request, too.

The problems are the paper's rows and those of Cameraman (the random mask from five seeds), and the pictures
that ship with scikit-image, each as grey 240×240 and in its own size and colours, with 30, 50, 70 and 90 % of
the pixels missing at random, under text, under scratches, and with five square holes. All channels of a pixel
are missing together, and no method sees a missing pixel. Settings were chosen on one half of these pictures;
the other half, the report half, influenced nothing, and only it supports claims.

A cell is a problem, a method and a seed, kept as one file in ``OUT/cells``; the next start computes only the
missing ones, and tries failed ones again. Cells do not expire when airnp changes; ``--redo stale`` computes
those of other code again. Cells run in ``--jobs`` processes of one thread each: their seconds are those of a
busy machine, and only ``--time`` measures time. ``--quick`` has a folder of its own.

``--time`` makes each measurement in a process of its own, pinned to ``--threads`` processors, and keeps it in
``OUT/times``; delete a file to measure again. Methods are timed in turn on the same input, after one call
that is not counted, and ratios are medians over rounds of the ratio to biharmonic's time. Peak memory is that
of the process, with Python and all libraries.
"""
