"""Checks of the kernels of patches against NumPy in float64, for any picture, type and order."""

from __future__ import annotations

import numpy as np

from airnp.resemblance.gaussian import condition
from airnp.resemblance.patches import VALUE_ONE, WEIGHT_ONE, Round, group_moments, touching
from tests.engines.kernel_launches import fenced, fill_launch, match_launch

TOLERANCE = {np.float32: 2e-5, np.float64: 1e-8}


class Picture:
    """A picture (frames, channels, height, width) with gaps, its variances, and reference patches."""

    def __init__(self, dtype, shape, rate, seed, how, frame=0):
        self.rng = rng = np.random.default_rng(seed)
        self.dtype, self.shape, self.how, self.frame = dtype, shape, how, frame
        f, c, y, x = np.indices(shape)
        waves = np.sin(x / 3 + c + f / 5) * np.cos(y / 4 - c)
        self.x = fenced(0.5 + 0.3 * waves + 0.02 * rng.standard_normal(shape), dtype)
        observed = rng.random(shape) >= rate
        self.observed = observed[frame]
        self.known = fenced(self.observed, np.int32)
        self.u = fenced(np.where(observed, 0, 2e-3 * rng.random(shape)), dtype)
        places = (np.arange(0, length - how.patch + 1, how.stride) for length in shape[2:])
        self.rows, self.columns = (fenced(np.append(p, p[-1] // 2), np.int32) for p in places)

    @property
    def crossings(self):
        return [(int(y), int(x)) for y in self.rows for x in self.columns]

    def window(self, y, x):
        """Return the candidates (frame, row, column) for the patch at (y, x), in order."""
        how, (frames, _, height, width) = self.how, self.shape
        return [
            (f, b, a)
            for f in range(frames)
            for b in range(max(0, y - how.search), min(height - how.patch, y + how.search) + 1)
            for a in range(max(0, x - how.search), min(width - how.patch, x + how.search) + 1)
        ]

    def cut(self, array, y, x):
        return array[:, y : y + self.how.patch, x : x + self.how.patch]

    def corner(self, f, y, x):
        return int(np.ravel_multi_index((f, 0, y, x), self.shape))

    def random_groups(self):
        """Return places of K random patches around each reference patch, and their number, sometimes 0."""
        K, rng = self.how.neighbours, self.rng
        places, found = np.full((len(self.crossings), K), -1), np.zeros(len(self.crossings), np.int32)
        for g, (y, x) in enumerate(self.crossings):
            near = self.window(y, x)
            found[g] = min(K, len(near)) if g % 5 != 3 else 0
            chosen = rng.permutation(len(near))[: found[g]]
            places[g, : found[g]] = [self.corner(*near[k]) for k in chosen]
        return fenced(places), fenced(found)


def check_matching(machine, first=0, levels=8, **case):
    """Check match_patches on few levels of grey, where distances are exact and many are equal."""
    of = Picture(**case)
    how = of.how
    of.x[...] = np.round(of.x * levels) / levels
    launch = match_launch(of.x, of.known, of.rows, of.columns, of.frame, how, machine, first=first)
    launch.run(machine)
    wanted = touching(~of.observed.all(axis=0), of.rows, of.columns, how.patch).ravel()[first:]
    trust = np.where(of.observed, 1.0, how.trust)
    for g, (y, x) in enumerate(of.crossings[first:]):
        places, found = launch["places"][g], launch["found"][g]
        if not wanted[g]:
            assert found == 0
            continue
        near = of.window(y, x)
        own, weight = of.cut(of.x[of.frame], y, x), of.cut(trust, y, x)
        distances = [float((weight * (own - of.cut(of.x[f], b, a)) ** 2).sum()) for f, b, a in near]
        nearest = np.argsort(distances, kind="stable")[: how.neighbours]
        assert found == len(nearest)
        assert places[:found].tolist() == [of.corner(*near[k]) for k in nearest]
        assert (places[found:] == -1).all()
    return launch["places"], launch["found"]


def check_filling(machine, **case):
    """Check fill_groups on groups of random patches."""
    of = Picture(**case)
    how, tolerance = of.how, TOLERANCE[of.dtype]
    places, found = of.random_groups()
    launch = fill_launch(of.x, of.u, of.known, places, found, of.frame, how, machine)
    launch.run(machine)
    values, weights, counts = (launch[name] for name in ("values", "weights", "counts"))
    means, shares, numbers, sides = expected_sums(of, places, found)
    np.testing.assert_array_equal(counts, numbers)
    np.testing.assert_allclose(weights / WEIGHT_ONE, shares, rtol=tolerance, atol=tolerance * numbers.max())
    told = numbers > 0
    got = values[told] / VALUE_ONE / WEIGHT_ONE
    np.testing.assert_allclose(got, means[told], rtol=tolerance, atol=tolerance * numbers.max())
    assert not values[~told].any()
    assert not weights[~told].any()
    return values, weights, counts, sides


def expected_sums(of, places, found):
    """Return sums of weight · value, weights and counts in float64, and which sides patches were on."""
    how = of.how
    means, shares, numbers = np.zeros((3, *of.shape[1:]))
    x, u = of.x.astype(np.float64), of.u.astype(np.float64)
    sides = set()
    for group, count in zip(places, found, strict=True):
        if count == 0:
            continue
        corners = [np.unravel_index(corner, of.shape) for corner in group[:count]]
        Z, V = (np.stack([of.cut(part[f], b, a).ravel() for f, _, b, a in corners]) for part in (x, u))
        mean, covariance = group_moments(Z, V, how)
        answers = [(k, b, a) for k, (f, _, b, a) in enumerate(corners[: how.answers]) if f == of.frame]
        for k, b, a in answers:
            observed = of.cut(of.observed, b, a)
            gaps = observed.size - observed.sum()
            sides.add("none" if gaps == 0 else "precision" if gaps <= observed.sum() else "covariance")
            filled, variance = condition(mean, covariance, Z[k : k + 1], observed.reshape(1, -1))
            share = how.softening / (np.maximum(variance, 0) + how.softening)
            value = share * np.clip(filled, -8, 8)
            for total, part in ((means, value), (shares, share), (numbers, np.ones_like(share))):
                of.cut(total, b, a)[...] += np.where(observed, 0, part.reshape(observed.shape))
    return means, shares, numbers, sides


def round_of(**options):
    """Return a Round for small pictures, whose weights are not swamped by rounding in float32."""
    return Round(**{"patch": 3, "stride": 3, "search": 3, "neighbours": 20, "answers": 6,
                    "softening": 1e-3, "trust": 0.25} | options)  # fmt: skip
