"""One change of a running node of each listed operator, and the reason for its outcome."""

from __future__ import annotations

import pytest

from byoc.frontend.onnx.rewriting.reasons import support_rows
from tests.byoc.every_reason import judged
from tests.byoc.running_nodes import UNDRAWN, listed, running_nodes
from tests.rotation import choose_cases, rotate_parts

ENDS = {"runs", "refused", "named", "other cause"}
"""Right ends of a variant. "other cause": the node runs without the attribute that the reason
names.
"""
EXPENSIVE = {"Attention", "Gemm", "MultiHeadAttention", "QGemm", "Resize", "RotaryEmbedding"}
"""Operators whose variants take longest: a fifth of the time of all."""
UNCHANGEABLE = {"Not"}
"""Operators of one operand of one type, without attributes."""


@pytest.mark.parametrize(
    "operator",
    [
        *rotate_parts([name for name in listed() if name not in EXPENSIVE], 4),
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in choose_cases(sorted(EXPENSIVE), 3)
        ),
    ],
)
def test_the_reason_names_what_changes(operator: str) -> None:
    """A changed node runs, is rejected, or stays on the CPU for a reason that names the change.

    A rejection is one line.

    One attribute, input or output is added, removed or changed, or the element type, or a constant
    is computed.
    """
    assert running_nodes(operator, 1)
    outcomes = list(judged(operator, values=1, nodes=1))
    wrong = [(outcome.kind, outcome.case.text, outcome.reasons, outcome.error)
             for outcome in outcomes if outcome.kind not in ENDS]  # fmt: skip
    assert not wrong
    assert outcomes or operator in UNCHANGEABLE


def test_every_operator_is_drawn() -> None:
    """The list is that of ``dla support``, but for operators that compute nothing alone."""
    names = {name for row in support_rows() for name in (*row.operators, *row.closes)}
    assert names == {*listed(), *UNDRAWN}
