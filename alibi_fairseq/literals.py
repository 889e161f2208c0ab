"""Evaluating the literals that fairseq's options hold, without ``eval``."""

from __future__ import annotations

import ast
import operator

_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
#: Longest text, and most items of a list that is repeated: ``[(512, 3)] * 4``.
LIMIT = 10_000


def evaluate_literal(text, *scope):
    """The value of a Python literal, in which numbers and lists may be added and multiplied.

    That is all that fairseq uses ``eval`` for: ``"20000,60000"``, ``"(0.9, 0.98)"``,
    ``"[(512, 3)] * 4"``.

    Args:
        text: the literal; anything but a string raises TypeError, as ``eval`` does.
        scope: ignored; namespaces that a caller of ``eval`` may pass.

    Raises:
        ValueError: the text is anything else.
    """
    if not isinstance(text, str):
        raise TypeError(f"expected a string, not {type(text).__name__}")
    if len(text) > LIMIT:
        raise ValueError("the text is too long for an option")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError, ArithmeticError, TypeError) as error:
        raise ValueError(f"{text[:80]!r} is not a literal") from error


def _value(node: ast.expr):
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Mult):
            for repeated, times in ((left, right), (right, left)):
                if isinstance(repeated, (list, tuple, str)) and times * len(repeated) > LIMIT:
                    raise ValueError("a repeated list is too long for an option")
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.List):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_value(item) for item in node.elts)
    if isinstance(node, ast.Dict) and None not in node.keys:
        return {_value(key): _value(value) for key, value in zip(node.keys, node.values) if key}
    if isinstance(node, ast.Constant):
        return node.value
    raise ValueError(f"{ast.unparse(node)[:80]!r} is not a literal")
