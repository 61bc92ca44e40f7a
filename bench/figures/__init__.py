"""The paper's figures, drawn from runs of this library: ``python -m bench.figures``.

:mod:`~bench.figures.runs` says what can be run, :mod:`~bench.figures.compute` runs it,
:mod:`~bench.figures.store` keeps what came out. Each figure is a module that names the runs it needs and
draws them; :mod:`~bench.figures.catalogue` lists the figures, :mod:`~bench.figures.captions` explains them.
"""
