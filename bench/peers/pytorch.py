"""The model in PyTorch: eager with ``torch.optim.Adam``, and compiled with its fused Adam."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.functional import softmax

from bench.peers.problem import EPSILON, LEARNING_RATE, Problem

Energy = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Dirichlet energy of the rows of z on the graph with adjacency a."""


def trace_energy(a: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """tr(Zᵀ L Z), as the formula is printed."""
    laplacian = torch.diag(a.sum(dim=1)) - a
    return torch.trace(z.T @ laplacian @ z)


def gram_energy(a: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """The same as Σ deg |z|² − Σ A (Z Zᵀ): half as many products for autograd to make."""
    return (a.sum(dim=1) * z.square().sum(dim=1)).sum() - (a * (z @ z.T)).sum()


ENERGIES: dict[str, Energy] = {"trace": trace_energy, "gram": gram_energy}


class Model(torch.nn.Module):
    """Factors and graphs as parameters; calling it gives the loss."""

    def __init__(self, problem: Problem, energy: Energy) -> None:
        super().__init__()
        self.params = torch.nn.ParameterList(torch.from_numpy(p.copy()) for p in problem.params)
        self.register_buffer("values", torch.from_numpy(problem.values))
        self.register_buffer("mask", torch.from_numpy(problem.mask).to(self.values.dtype))
        self.depth, self.weight, self.scale = problem.depth, problem.weight, problem.scale
        self.method, self.energy = problem.method, energy

    def matrix(self) -> torch.Tensor:
        x = self.params[0]
        for level in range(1, self.depth):
            x = self.params[level] @ x
        return x

    def forward(self) -> torch.Tensor:
        x = self.matrix()
        loss = self.scale * (self.mask * (x - self.values)).square().sum()
        if self.method == "AIR":
            for z, v in ((x, self.params[self.depth]), (x.T, self.params[self.depth + 1])):
                p = softmax(v, dim=1)
                loss = loss + self.weight * self.energy((p + p.T) / 2, z)
        elif self.method == "RDMF":
            for d in (x[1:] - x[:-1], x[:, 1:] - x[:, :-1]):
                loss = loss + self.weight * ((d.square() + EPSILON**2).sqrt() - EPSILON).sum()
        return loss


def eager(problem: Problem, form: str = "trace") -> Callable[[int], float]:
    """Return a function that runs iterations and returns the last loss."""
    model = Model(problem, ENERGIES[form])
    return _loop(model, torch.optim.Adam(model.parameters(), lr=LEARNING_RATE))


def compiled(problem: Problem, form: str = "trace") -> Callable[[int], float]:
    """The same under ``torch.compile``, with the fused Adam."""
    model = Model(problem, ENERGIES[form])
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, fused=True)
    return _loop(torch.compile(model), optimizer)


def _loop(loss_of: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer) -> Callable[[int], float]:
    def run(iterations: int) -> float:
        for _ in range(iterations):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of()
            loss.backward()
            optimizer.step()
        return float(loss.detach())

    return run
