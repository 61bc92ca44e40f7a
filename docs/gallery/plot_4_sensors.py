"""
Gaps in the records of sensors
==============================

Twelve thermometers, one value an hour for five days, in a pandas DataFrame with the times as its index.
Radio links fail now and then, and one thermometer was removed for a day.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import airnp
from airnp.sklearn import AIRImputer

# %%
# The table
# ---------
# All places have the same weather; each has its own difference between day and night.

rng = np.random.default_rng(5)
times = pd.date_range("2024-03-01", periods=5 * 24, freq="h", name="time")
names = [f"site {letter}" for letter in "ABCDEFGHIJKL"]
hours = np.arange(len(times))
weather = np.cumsum(rng.normal(0, 0.25, len(times)))
swing = np.sin(2 * np.pi * (hours - 9) / 24)
truth = pd.DataFrame(
    8
    + np.outer(weather, rng.uniform(0.7, 1.2, 12))
    + np.outer(swing, rng.uniform(2, 6, 12))
    + rng.uniform(-3, 3, 12)
    + rng.normal(0, 0.15, (len(times), 12)),
    index=times,
    columns=names,
)

observed = rng.random(truth.shape) < 0.85
for start, site in [(20, 1), (66, 4), (66, 5), (90, 9)]:
    observed[start : start + 10, site] = False
observed[48:72, 7] = False
table = truth.where(observed)
print(f"{1 - observed.mean():.0%} of the values are missing, at {names[7]} those of a whole day")

# %%
# Completing the table
# --------------------
# :func:`airnp.fit` takes a DataFrame, and ``completed()`` returns one with the same labels: measured values
# unchanged, missing ones filled.

result = airnp.fit(table, seed=0, max_iter=6000)
filled = result.completed()
print(filled.iloc[:3, :4].round(2))

answers = {
    "airnp.fit": filled,
    "linear in time": table.interpolate(limit_direction="both"),
    "mean of each sensor": table.fillna(table.mean()),
}
for name, answer in answers.items():
    error = np.abs(answer - truth).to_numpy()[~observed].mean()
    print(f"{name:20} mean absolute error {error:.2f} °C")

# %%
# The missing day is reconstructed from the other sensors. Interpolation in time draws a straight line.

site = names[7]
figure, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
ax.plot(truth.index, truth[site], color="0.75", linewidth=4, label="truth")
ax.plot(table.index, table[site], color="black", linewidth=1.2, label="measured")
gap = filled[site].where(table[site].isna())
ax.plot(filled.index, gap, color="#d55e00", linewidth=1.5, marker=".", label="filled by airnp.fit")
ax.plot(times, table[site].interpolate(), color="#0072b2", linewidth=1, linestyle=":", label="linear")
ax.set(ylabel="°C", title=f"{site}: a day without a record")
ax.tick_params(axis="x", labelrotation=20)
ax.legend(frameon=False, fontsize=9, ncols=2)

# %%
# New rows as they arrive
# -----------------------
# :class:`airnp.sklearn.AIRImputer` is fitted to a table once and then completes new rows in closed form.
# Here it is fitted to the first four days and completes the fifth, hour by hour.

imputer = AIRImputer(random_state=0).set_output(transform="pandas")
imputer.fit(table.iloc[:96])
last_day = imputer.transform(table.iloc[96:])
gaps = ~observed[96:]
error = np.abs(last_day - truth.iloc[96:]).to_numpy()[gaps].mean()
print(f"{gaps.sum()} gaps of the last day, filled from what was learned before: {error:.2f} °C")
