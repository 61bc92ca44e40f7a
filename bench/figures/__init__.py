"""The paper's figures, drawn from runs of this library: ``python -m bench.figures``.

:mod:`~bench.figures.runs` describes runs, :mod:`~bench.figures.compute` makes them, and
:mod:`~bench.figures.produce` keeps their outcomes and writes the figures. A figure names the runs of each of
its panels and draws them: curves in :mod:`~bench.figures.curves`, graphs and pictures in
:mod:`~bench.figures.images`. :mod:`~bench.figures.captions` explains them.
"""
