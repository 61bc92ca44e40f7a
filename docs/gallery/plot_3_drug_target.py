"""
Which drug acts on which target?
================================

A table of zeros and ones: rows are drugs, columns are proteins, and 1 means that the drug is known to act on
the protein. A fifth of the table is hidden. The task is to rank the hidden pairs: which should be tested
first?
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score

import airnp
import airnp.baselines
from airnp import datasets

# %%
# The table
# ---------
# :func:`airnp.datasets.dti_gpcr` and others load the tables of the paper on AIR (:doc:`../datasets`). This
# page must not depend on a download, so it generates a table of the same kind: groups of related drugs that
# act on families of related proteins, with exceptions.

rng = np.random.default_rng(0)
drugs, proteins = np.sort(rng.integers(12, size=100)), np.sort(rng.integers(9, size=60))
acts = rng.random((12, 9)) < 0.12
table = np.where(acts[drugs[:, None], proteins], rng.random((100, 60)) < 0.8, rng.random((100, 60)) < 0.004)
table = table.astype(float)
print(f"{table.shape[0]} drugs, {table.shape[1]} proteins, {table.mean():.1%} of the pairs are known to act")
print("the paper's tables:", ", ".join(name for name in datasets.names() if name.startswith("dti")))

# %%
# Hidden pairs, ranked
# --------------------
# :func:`airnp.fit` learns one graph over the drugs and one over the proteins while it completes the table.

mask = airnp.masks.random(table.shape, missing=0.2, seed=0)
result = airnp.fit(table, mask, max_iter=8000, seed=0)
scores = {
    "airnp.fit": result.X,
    "soft_impute": airnp.baselines.soft_impute(table, mask, seed=0),
    "mean of drug and protein": airnp.baselines.mean(table, mask, by="both"),
}
for name, X in scores.items():
    area = roc_auc_score(table[~mask], X[~mask])
    precision = airnp.metrics.average_precision(X, table, mask)
    error = airnp.metrics.nmae(X, table, mask)
    print(f"{name:25} area under the ROC curve {area:.3f}   precision {precision:.3f}   NMAE {error:.4f}")

# %%
# The precision is the average over recalls, the area under that curve. Ones are rare, so the two areas say
# more than NMAE, which is low for an answer of 0 everywhere. The last
# two digits of the areas mean little. The table with its hidden fifth, and the prediction:

figure, axes = plt.subplots(1, 3, figsize=(9, 4.6), layout="constrained", sharey=True)
hidden = plt.get_cmap("Blues").with_extremes(bad="#f0b37e")
axes[0].imshow(np.where(mask, table, np.nan), cmap=hidden, vmin=0, vmax=1, interpolation="nearest")
axes[1].imshow(result.X, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
axes[2].imshow(table, cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
for ax, title in zip(axes, ["known (orange: hidden)", "completed", "truth"], strict=True):
    ax.set(title=title, xlabel="protein")
axes[0].set_ylabel("drug")

# %%
# Pairs to test first
# -------------------

unknown = np.argwhere(~mask)
best = unknown[np.argsort(-result.X[~mask])][:8]
for drug, protein in best:
    verdict = "acts" if table[drug, protein] else "is not known to act"
    print(
        f"drug {drug:2} on protein {protein:2}: expected {result.X[drug, protein]:.2f}, in truth it {verdict}"
    )

# %%
# A 0 in such tables means that no action is known, not that there is none. A pair that is ranked high and is
# 0 in the table may be an error, or a discovery.
