"""The sparse form in PyTorch: autograd over gathered rows, and closed form over ``torch.sparse`` products.

The model is that of ``airnp.fit_sparse`` with two factors and learned graphs over candidate edges:
s/2 Σ (u_i·v_j − y_ij)² over observed entries, and λ/2 Σ P_ij ‖x_i − x_j‖² over the candidates of rows and of
columns, P a softmax over each node's candidates, distances by the r×r Gram matrix of the other side.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import embedding

_PORTION = 2_000_000
"""Rows to gather at a time; all at once would need many times the memory of the entries."""


@dataclass(frozen=True)
class SparseStart:
    """A problem and its start: arrays in airnp's layout, candidates of shape (nodes, k + 1)."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    u: np.ndarray
    v: np.ndarray
    candidates: tuple[np.ndarray, np.ndarray]
    logits: tuple[np.ndarray, np.ndarray]
    scale: float
    weight: float
    rate: float


def _parameters(start: SparseStart) -> list[torch.nn.Parameter]:
    arrays = (start.u, start.v, *start.logits)
    return [torch.nn.Parameter(torch.from_numpy(array.copy())) for array in arrays]


def gathered(start: SparseStart) -> Callable[[int], float]:
    """Autograd over embedding lookups, portion by portion, with the fused Adam; returns the last loss."""
    params = u, v, *logits = _parameters(start)
    optimizer = torch.optim.Adam(params, lr=start.rate, fused=True)
    rows = torch.from_numpy(np.repeat(np.arange(len(start.u)), np.diff(start.indptr)))
    columns, values = torch.from_numpy(start.indices.astype(np.int64)), torch.from_numpy(start.values)
    candidates = [torch.from_numpy(c.astype(np.int64)) for c in start.candidates]

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for first in range(0, len(values), _PORTION):
            part = slice(first, first + _PORTION)
            predicted = (embedding(rows[part], u) * embedding(columns[part], v)).sum(dim=1)
            loss = start.scale / 2 * (predicted - values[part]).square().sum()
            loss.backward()
            total += float(loss.detach())
        for nodes, other, ends, free in ((u, v, candidates[0], logits[0]), (v, u, candidates[1], logits[1])):
            height = max(1, _PORTION // ends.shape[1])
            for first in range(0, len(ends), height):
                part = slice(first, first + height)
                # The small Gram matrix is recomputed for each portion, because backward() frees its graph.
                turned = nodes @ (other.T @ other)
                norms = (turned * nodes).sum(dim=1)
                products = torch.bmm(embedding(ends[part], nodes), turned[part, :, None])[:, :, 0]
                distances = norms[part, None] + norms[ends[part]] - 2 * products
                loss = start.weight / 2 * (torch.softmax(free[part], dim=1) * distances).sum()
                loss.backward()
                total += float(loss.detach())
        optimizer.step()
        return total

    return _loop(step)


class _Pattern:
    """A fixed sparse pattern, its transpose, and products with values on it."""

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, width: int) -> None:
        from scipy.sparse import csr_array

        self.shape = (len(indptr) - 1, width)
        places = csr_array((np.arange(len(indices)), indices, indptr), shape=self.shape)
        turned = places.T.tocsr()
        # 32-bit indices where possible: MKL then reads half as much.
        kind = np.int32 if len(indices) < 2**31 else np.int64
        self.lines = [torch.from_numpy(a.astype(kind)) for a in (indptr, indices)]
        self.turned = [torch.from_numpy(a.astype(kind)) for a in (turned.indptr, turned.indices)]
        self.order = torch.from_numpy(turned.data.astype(np.int64))
        self._zeros = torch.zeros(len(indices))
        with warnings.catch_warnings():  # PyTorch warns once that sparse tensors are new
            warnings.simplefilter("ignore", UserWarning)
            self.matrix(self._zeros)

    def matrix(self, values: torch.Tensor, *, turned: bool = False) -> torch.Tensor:
        shape = self.shape[::-1] if turned else self.shape
        found = values[self.order] if turned else values
        lines = self.turned if turned else self.lines
        return torch.sparse_csr_tensor(*lines, found, shape, check_invariants=False)

    def products(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return a_i·b_j at the places of the pattern."""
        empty = self.matrix(self._zeros)
        return torch.sparse.sampled_addmm(empty, a, b.T, beta=0.0).values()


def sparse_products(start: SparseStart) -> Callable[[int], float]:
    """Closed-form gradients by sampled and sparse products of ``torch.sparse``, with the fused Adam."""
    params = u, v, *logits = _parameters(start)
    optimizer = torch.optim.Adam(params, lr=start.rate, fused=True)
    values = torch.from_numpy(start.values)
    entries = _Pattern(start.indptr, start.indices, len(start.v))
    ends = [torch.from_numpy(c.astype(np.int64)) for c in start.candidates]
    edges = [_Pattern(np.arange(len(c) + 1) * c.shape[1], c.reshape(-1), len(c)) for c in start.candidates]

    @torch.no_grad()
    def step() -> float:
        errors = entries.products(u, v) - values
        total = start.scale / 2 * float(errors.square().sum())
        errors *= start.scale
        u.grad = entries.matrix(errors) @ v
        v.grad = entries.matrix(errors, turned=True) @ u
        for nodes, other, place, free in ((u, v, 0, logits[0]), (v, u, 1, logits[1])):
            gram = other.T @ other
            turned = nodes @ gram
            norms = (turned * nodes).sum(dim=1)
            products = edges[place].products(turned, nodes).reshape(free.shape)
            distances = norms[:, None] + norms[ends[place]] - 2 * products
            weights = torch.softmax(free, dim=1)
            means = (weights * distances).sum(dim=1, keepdim=True)
            total += start.weight / 2 * float(means.sum())
            free.grad = start.weight / 2 * weights * (distances - means)
            flat = weights.reshape(-1)
            incoming = torch.zeros(len(nodes)).index_add_(0, ends[place].reshape(-1), flat)
            pull = (1 + incoming)[:, None] * nodes  # 2 L U, with A = (P + Pᵀ)/2
            pull -= edges[place].matrix(flat) @ nodes
            pull -= edges[place].matrix(flat, turned=True) @ nodes
            nodes.grad += start.weight * (pull @ gram)
            other.grad += start.weight * (other @ (nodes.T @ pull))
        optimizer.step()
        return total

    return _loop(step)


def _loop(step: Callable[[], float]) -> Callable[[int], float]:
    def run(iterations: int) -> float:
        loss = 0.0
        for _ in range(iterations):
            loss = step()
        return loss

    return run
