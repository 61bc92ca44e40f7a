"""Real ratings and other tables: what each part of the model is worth, beside other programs.

    python -m bench.ratings                 # everything: half an hour on two cores; stop and start at will
    python -m bench.ratings --quick         # a tenth of the ratings and Syn-Netflix, one seed, few models
    python -m bench.ratings --tune          # choose all settings anew, on held-out training entries: longer
    python -m bench.ratings --data movielens --models l2 mask --seeds 2
    python -m bench.ratings --report-only   # only write the page again

In a clone, with ``pip install -e ".[data,neighbors]"`` and, for the peers, ``pip install cmfrec
scikit-surprise scikit-learn lenskit``; a peer that is not installed is reported as such.

MovieLens 100K comes with a split, 80 000 ratings for training and 20 000 for testing; of Syn-Netflix and of
the tables of drugs and targets a random share is given, and all else is asked for. Settings, the number of
iterations included, were chosen once on *training* entries that were held out: 5 %, and 20 % where there
are few (``--tune`` does it again and writes ``bench/ratings/chosen.json``, where every setting that was
tried stands with its validation error). Then each model is fitted to all training entries, from five seeds,
and looks at the test entries once. Predictions are clipped to the range of the data. Intervals are paired
bootstraps of the difference of two models on the same test entries, resampled one by one, and row by row
(users, drugs).

Each finished fit is one file in ``bench/results/ratings/cells``: a second start computes what is missing.
The models of a table are fitted in turn, seed by seed.
"""
