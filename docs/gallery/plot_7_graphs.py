"""
Learned graphs as results
=========================

While it completes a matrix, a fit learns which rows resemble each other and which columns do. These graphs
can be drawn and analysed.
"""

import matplotlib.pyplot as plt
import networkx
import numpy as np
import pandas as pd

import airnp
import airnp.plot

# %%
# Rows of three kinds
# -------------------
# Electricity use of thirty households over twenty-four hours. There are three habits; the rows are in random
# order, and a third of the entries is missing.

rng = np.random.default_rng(2)
hours = np.arange(24)
habits = np.stack(
    [
        np.exp(-((hours - 7) ** 2) / 8) + np.exp(-((hours - 19) ** 2) / 10),
        np.exp(-((hours - 13) ** 2) / 30),
        0.4 + 0.5 * (hours > 20) + 0.5 * (hours < 5),
    ]
)
kind = rng.integers(3, size=30)
use = habits[kind] * rng.uniform(0.9, 1.1, (30, 1)) + rng.normal(0, 0.04, (30, 24))
table = pd.DataFrame(use, index=[f"{'ABC'[k]}{i}" for i, k in enumerate(kind)], columns=hours)
table = table.where(rng.random(use.shape) > 0.33)

# %%
# The fit, and its graphs over time
# ---------------------------------
# :func:`airnp.fit` learns one graph over the rows and one over the columns, and returns the last ones. A
# :class:`~airnp.GraphRecorder` also keeps them at given iterations.

# sphinx_gallery_thumbnail_number = 2
recorder = airnp.GraphRecorder(at=[1, 500, 1500, 3000])
result = airnp.fit(table, max_iter=3000, stop=None, seed=0, callback=recorder)
order = np.argsort(kind, kind="stable")
figure = airnp.plot.laplacians(recorder, "rows")

# %%
# The strongest neighbours
# ------------------------
# ``row_graph(k)`` keeps the k strongest neighbours of each row. The weights are those that the fit used;
# the labels are those of the DataFrame. Letters are the true habits, which the fit has never seen.

graph = result.row_graph(k=3)
print(graph)
figure, ax = plt.subplots(figsize=(7, 5.4), layout="constrained")
airnp.plot.graph(graph, ax=ax)

# %%
# In other libraries
# ------------------
# ``graph.adjacency`` is a sparse array of SciPy, ``to_networkx()`` returns a graph of networkx.

network = graph.to_networkx()
communities = networkx.community.louvain_communities(network, seed=0)
for number, members in enumerate(sorted(communities, key=len, reverse=True)):
    letters = sorted(member[0] for member in members)
    print(f"community {number}: {len(members)} households, habits {''.join(letters)}")

# %%
# With the rows sorted by habit, blocks appear. The graph over the hours connects times of day at which all
# households behave alike.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
rows = result.regularizers[0].adjacency[np.ix_(order, order)].copy()
np.fill_diagonal(rows, 0)
left.imshow(rows, cmap="Blues", interpolation="nearest")
left.set(title="households, by habit", xlabel="household", ylabel="household")
columns = result.column_graph().adjacency.toarray()
right.imshow(columns, cmap="Blues", interpolation="nearest")
right.set(title="hours", xlabel="hour", ylabel="hour")
