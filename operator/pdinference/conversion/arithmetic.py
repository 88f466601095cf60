"""Evaluates the arithmetic of shell scripts: integers, variables, brackets, and `+ - * / %`.

Tests: tests/conversion/test_shell.py
"""

import ast
import operator
import re
from collections.abc import Callable
from typing import Final

_LONGEST: Final = 200
_LARGEST: Final = 2**63
_ALLOWED = re.compile(r"[A-Za-z0-9_+\-*/%()\s]*", re.ASCII)
Variable = Callable[[str], int | None]


def evaluated(expression: str, variable: Variable) -> int | None:
    """The value of an expression; None if it has other operations, or variables without a known number.

    Args:
        expression: Text between `$((` and `))`, with `$A` written as `A`.
        variable: Values of variables.
    """
    if len(expression) > _LONGEST or "**" in expression or "//" in expression or not _ALLOWED.fullmatch(expression):
        return None
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return _value(tree.body, variable)


def _value(node: ast.expr, variable: Variable) -> int | None:
    match node:
        case ast.Constant(value=int(number)):
            return number if number < _LARGEST else None
        case ast.Name(id=name):
            return variable(name)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            value = _value(operand, variable)
            return -value if value is not None and isinstance(sign, ast.USub) else value
        case ast.BinOp(left=left, op=sign, right=right) if apply := _OPERATIONS.get(type(sign)):
            values = _value(left, variable), _value(right, variable)
            return None if values[0] is None or values[1] is None else apply(values[0], values[1])
    return None


def _bounded(apply: Callable[[int, int], int]) -> Callable[[int, int], int | None]:
    def result(left: int, right: int) -> int | None:
        value = apply(left, right)
        return value if abs(value) < _LARGEST else None

    return result


def _quotient(left: int, right: int) -> int | None:
    """Integer division towards zero, as in a shell."""
    if right == 0:
        return None
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


def _remainder(left: int, right: int) -> int | None:
    quotient = _quotient(left, right)
    return None if quotient is None else left - quotient * right


_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int | None]] = {
    ast.Add: _bounded(operator.add),
    ast.Sub: _bounded(operator.sub),
    ast.Mult: _bounded(operator.mul),
    ast.Div: _quotient,
    ast.Mod: _remainder,
}
