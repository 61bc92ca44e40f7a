"""Real ratings and other tables: the value of each part of the model, beside other programs.

    python -m bench.ratings                 # everything: half an hour on two cores; can be resumed
    python -m bench.ratings --quick         # a tenth of the ratings and Syn-Netflix, one seed, few models
    python -m bench.ratings --tune          # choose all settings anew, on held-out training entries: longer
    python -m bench.ratings --data movielens --models l2 mask --seeds 2
    python -m bench.ratings --report-only   # only write the page again

In a clone, with ``pip install -e ".[data,neighbors]"`` and, for the peers, ``pip install cmfrec
scikit-surprise scikit-learn lenskit implicit``; a peer that is not installed is reported as such.

MovieLens 100K comes with a split, 80 000 ratings for training and 20 000 for testing; Syn-Netflix and the
tables of drugs and targets are split at random. Settings, including the number of iterations, were chosen
once on held-out *training* entries: 5 %, or 20 % where there are few. ``--tune`` repeats this and writes
``bench/ratings/chosen.json``, which has the validation error of every trial. Then each model is fitted to all
training entries from five seeds, and evaluated once on the test entries. Predictions are clipped to the range
of the data. Intervals are paired bootstraps of the difference of two models on the same test entries,
resampled one by one, and row by row (users, drugs).

``--data used`` compares recommendations instead: who liked what, 4 stars and more, without the ratings.

Each finished fit is one file in ``bench/results/ratings/cells``; the next start computes the missing ones.
The models of a table are fitted in turn, seed by seed.
"""
