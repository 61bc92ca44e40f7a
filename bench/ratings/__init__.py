"""Real ratings: what each part of the model is worth on MovieLens 100K, beside other programs.

    python -m bench.ratings                 # everything: half an hour on two cores; stop and start at will
    python -m bench.ratings --quick         # a tenth of the ratings, one seed, few models
    python -m bench.ratings --tune          # choose all settings anew, on 5 % of the training ratings
    python -m bench.ratings --data movielens --models l2 mask --seeds 2
    python -m bench.ratings --report-only   # only write the page again

In a clone, with ``pip install -e ".[data,neighbors]"`` and, for the peers, ``pip install cmfrec
scikit-surprise scikit-learn``; a peer that is not installed is reported as such.

MovieLens 100K comes with a split, 80 000 ratings for training and 20 000 for testing. Settings, the number of
iterations included, were chosen once on 5 % of the *training* ratings (``--tune`` does it again and writes
``bench/ratings/chosen.json``, where every setting that was tried stands with its validation error); then each
model is fitted to all training ratings, from five seeds, and looks at the test ratings once. Predictions are
clipped to 1–5. Intervals are paired bootstraps of the difference of two models on the same test ratings,
resampled one by one, and user by user.

Each finished fit is one file in ``bench/results/ratings/cells``: a second start computes what is missing.
"""
