"""
Filling a table of ratings
==========================

Sixty people have rated some of forty films, from 1 to 5. How would they rate the others? The table is
generated, so the answer can be checked.
"""

import matplotlib.pyplot as plt
import numpy as np

import airnp
import airnp.baselines

# %%
# A table with gaps
# -----------------
# Three tastes, three kinds of films, and noise, rounded to whole stars. Two thirds of the table are
# unknown; some people rate many films, others few.

rng = np.random.default_rng(3)
people, films = 60, 40
tastes = rng.dirichlet([0.4, 0.4, 0.4], people)
kinds = rng.dirichlet([0.4, 0.4, 0.4], films)
liking = 1 + 4 * tastes @ kinds.T + 0.3 * rng.standard_normal((people, films))
truth = np.clip(np.rint(liking), 1, 5)

diligence = rng.uniform(0.15, 0.55, size=(people, 1))
known = rng.random(truth.shape) < diligence
known[np.arange(people), rng.integers(films, size=people)] = True  # every person rates a film
known[rng.integers(people, size=films), np.arange(films)] = True  # every film is rated
ratings = np.where(known, truth, np.nan)
print(f"{known.mean():.0%} of the ratings are known")

# %%
# Completing it
# -------------
# NaN means missing, and ``bounds`` are the lowest and the highest rating. :func:`airnp.fit` is one model,
# AIR with its default weights. :func:`airnp.complete` compares it with others on held-out ratings and takes
# the one that predicts them best.

completion = airnp.complete(ratings, bounds=(1, 5), seed=0)
print(completion)
predicted = completion.X

# %%
# Is it better than an average?
# -----------------------------
# The root mean square error on the unknown ratings, in stars (:func:`airnp.metrics.rmse`). The other
# methods come from :mod:`airnp.baselines` and have the same signature.

answers = {
    "airnp.complete": predicted,
    "airnp.fit": airnp.fit(ratings, bounds=(1, 5), seed=0).X,
    "mean of person and film": airnp.baselines.mean(ratings, by="both"),
    "nearest neighbours": airnp.baselines.knn(ratings),
    "soft_impute": airnp.baselines.soft_impute(ratings, seed=0),
}
for name, answer in answers.items():
    print(f"{name:24} {airnp.metrics.rmse(np.clip(answer, 1, 5), truth, known):.3f}")

# %%
# The table, before and after. Grey is unknown.

figure, axes = plt.subplots(1, 3, figsize=(9, 4.6), layout="constrained", sharey=True)
colours = plt.get_cmap("viridis").with_extremes(bad="0.85")
for ax, table, title in zip(
    axes, [ratings, predicted, truth], ["known ratings", "completed", "truth"], strict=True
):
    image = ax.imshow(table, cmap=colours, vmin=1, vmax=5, interpolation="nearest")
    ax.set(title=title, xlabel="film")
axes[0].set_ylabel("person")
figure.colorbar(image, ax=axes, label="stars", shrink=0.7)

# %%
# What to recommend
# -----------------
# For one person: the films not yet rated, the most promising first.

person = 0
unseen = np.flatnonzero(~known[person])
for film in unseen[np.argsort(-predicted[person, unseen])][:3]:
    print(f"film {film:2}: {predicted[person, film]:.1f} stars expected, {truth[person, film]:.0f} in truth")

# %%
# For thousands of people and films use a sparse matrix and :func:`airnp.fit_ratings`, which is made for large
# tables that are mostly empty.
