"""
Filling a table of measurements
===============================

Thirteen chemical measurements of 178 Italian wines, in units that differ by a factor of a thousand. A fifth
of them is hidden, filled by :class:`airnp.sklearn.AIRImputer`, and compared with what scikit-learn offers.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from airnp.sklearn import AIRImputer

# %%
# A table with gaps
# -----------------

wine = load_wine(as_frame=True).data
known = np.random.default_rng(0).random(wine.shape) < 0.8
table = wine.where(known)
print(table.iloc[:4, :6])

# %%
# Filling it
# ----------
# The imputer needs no scaler: it standardises columns by itself. What comes out has the columns, the index
# and the units of what went in. It also says what error to expect, in standard deviations of a column.

imputer = AIRImputer(random_state=0).set_output(transform="pandas")
filled = imputer.fit_transform(table)
print(f"expected error: {imputer.result_.expected_error:.3f}")

# %%
# Compared with others
# --------------------
# The others get a scaler; their answers are compared in standard deviations, too. The error is the root mean
# square over the hidden entries of a column, averaged over columns.

others = {
    "column means": SimpleImputer(),
    "KNNImputer": KNNImputer(),
    "IterativeImputer": IterativeImputer(random_state=0, max_iter=30),
}
scale = wine.std().to_numpy()
answers = {"AIRImputer": filled.to_numpy()}
for name, other in others.items():
    pipeline = make_pipeline(StandardScaler(), other).fit(table)
    answers[name] = pipeline[0].inverse_transform(pipeline.transform(table))


def error(answer):
    """Return the error of each column."""
    squares = np.where(known, 0, (answer - wine.to_numpy()) / scale) ** 2
    return np.sqrt(squares.sum(axis=0) / (~known).sum(axis=0))


for name, answer in answers.items():
    print(f"{name:18} {error(answer).mean():.3f}")

figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
places = np.arange(wine.shape[1])
for shift, (name, answer) in enumerate(answers.items()):
    ax.barh(places + 0.2 * shift, error(answer), 0.2, label=name)
ax.set(yticks=places + 0.3, yticklabels=wine.columns, xlabel="error on hidden entries (standard deviations)")
ax.invert_yaxis()
ax.legend()

# %%
# How sure is it?
# ---------------
# Every filled cell has an interval; about nine in ten of them hold the true value.

low, high = imputer.interval(table, 0.9)
inside = (np.asarray(low) <= wine.to_numpy()) & (wine.to_numpy() <= np.asarray(high))
print(f"{inside[~known].mean():.0%} of the hidden values are inside of their intervals")
