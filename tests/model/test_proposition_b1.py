"""Proposition B.1 as printed is not the gradient; one symbol and one average correct it."""

from __future__ import annotations

import numpy as np
import pytest

from airnp.engines import reference
from tests.gradcheck import check_coordinates
from tests.model.paper import gradient, paper_quantities, printed_gradient, problems, relative_difference


def corrected(V, Z):
    A_prime, _, C = paper_quantities(V, Z)
    return (C + C.T) * A_prime.T - 2 * np.trace((C + C.T) / 2 @ A_prime) * A_prime.T


def test_the_correct_gradients_are_those_of_finite_differences():
    for V, Z in problems():
        for kind in ("global", "product"):

            def value(point, kind=kind, Z=Z):
                return float(reference.laplacian_terms(kind, point[0], Z @ Z.T, weight=1.0).energy)

            check_coordinates(value, [V], [gradient(kind, V, Z)])


def test_the_corrected_statement_is_the_gradient_of_the_global_form():
    for V, Z in problems():
        np.testing.assert_allclose(corrected(V, Z), gradient("global", V, Z), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("kind", ["row", "global", "product"])
def test_the_printed_formula_is_not_the_gradient_of_any_form(kind):
    for V, Z in problems():
        assert relative_difference(printed_gradient(V, Z), gradient(kind, V, Z)) > 0.05


def test_with_a_prime_for_a_and_equal_norms_the_printed_formula_is_right():
    """The one-symbol correction: A′ for A (in V's order) is all that rows of equal norm need."""
    for V, Z in list(problems())[1::2]:
        A_prime, _, C = paper_quantities(V, Z)
        corrected_symbol = 2 * C * A_prime.T - 2 * np.trace(C @ A_prime) * A_prime.T
        np.testing.assert_allclose(corrected_symbol, gradient("global", V, Z), rtol=1e-9, atol=1e-14)
