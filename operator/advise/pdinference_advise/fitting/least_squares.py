"""Least squares of a few parameters, by Levenberg and Marquardt's method, in plain Python.

Source: Marquardt, J. SIAM 11(2), 1963.

Tests: tests/advise/fitting/test_fitting.py, tests/advise/fitting/test_api_server.py
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

Vector = list[float]
Matrix = list[Vector]

_STEP: Final = 1e-5
_ROUNDS: Final = 200
_CONVERGED: Final = 1e-10
_LARGEST_DAMPING: Final = 1e12


@dataclass(frozen=True, slots=True)
class Solution:
    """The parameters with the least sum of squares that was found.

    Attributes:
        at: The parameters.
        cost: Sum of squares.
        spread: Standard deviation of each, for residuals of variance 1.
    """

    at: Vector
    cost: float
    spread: Vector


def least_squares(
    residuals: Callable[[Vector], Vector], start: Vector, bounds: Sequence[tuple[float, float]]
) -> Solution:
    """Minimise the sum of squares from a start, within bounds."""
    at = _within(start, bounds)
    now = residuals(at)
    cost, damping = _squares(now), 1e-3
    for _ in range(_ROUNDS):
        slopes = _jacobian(residuals, at, now)
        normal, gradient = _normal(slopes), [sum(s * r for s, r in zip(column, now, strict=True)) for column in slopes]
        while damping < _LARGEST_DAMPING:
            damped = [[v * (1 + damping) if i == j else v for j, v in enumerate(row)] for i, row in enumerate(normal)]
            move = solved(damped, gradient)
            tried = _within([a - m for a, m in zip(at, move, strict=True)], bounds)
            found = residuals(tried)
            if (least := _squares(found)) < cost:
                break
            damping *= 4
        else:
            break
        gain, at, now, cost = cost - least, tried, found, least
        damping = max(damping / 8, 1e-9)
        if gain <= _CONVERGED * (1 + cost):
            break
    normal = _normal(_jacobian(residuals, at, now))
    units = ([float(i == j) for j in range(len(at))] for i in range(len(at)))
    return Solution(at, cost, [solved(normal, unit)[i] ** 0.5 for i, unit in enumerate(units)])


def _within(at: Vector, bounds: Sequence[tuple[float, float]]) -> Vector:
    return [min(max(value, low), high) for value, (low, high) in zip(at, bounds, strict=True)]


def _squares(values: Vector) -> float:
    return sum(value * value for value in values)


def _jacobian(residuals: Callable[[Vector], Vector], at: Vector, now: Vector) -> Matrix:
    """Slopes of all residuals, by parameter."""
    columns = []
    for index in range(len(at)):
        moved = [value + _STEP * (i == index) for i, value in enumerate(at)]
        columns.append([(b - a) / _STEP for a, b in zip(now, residuals(moved), strict=True)])
    return columns


def _normal(slopes: Matrix) -> Matrix:
    return [[sum(a * b for a, b in zip(left, right, strict=True)) for right in slopes] for left in slopes]


def solved(matrix: Matrix, right: Vector) -> Vector:
    """The solution of a system of linear equations, by elimination with pivots.

    Raises:
        ZeroDivisionError: It has none, or more than one.
    """
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for index in range(size):
        pivot = max(range(index, size), key=lambda row: abs(rows[row][index]))
        rows[index], rows[pivot] = rows[pivot], rows[index]
        for row in range(index + 1, size):
            share = rows[row][index] / rows[index][index]
            rows[row] = [a - share * b for a, b in zip(rows[row], rows[index], strict=True)]
    found = [0.0] * size
    for index in reversed(range(size)):
        known = sum(rows[index][i] * found[i] for i in range(index + 1, size))
        found[index] = (rows[index][size] - known) / rows[index][index]
    return found
