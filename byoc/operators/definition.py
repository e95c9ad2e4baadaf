"""Definitions of instructions as ONNX nodes on integers.

Operators that ONNX Runtime computes in float have such definitions. ONNX Runtime executes them one
elementary operator after the other, so they are an oracle that shares no code with the simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Value


@dataclass(frozen=True)
class DefinitionStep:
    """One ONNX node in the definition of an instruction.

    ``inputs`` name tensors of the model, results of earlier steps, or constants.
    """

    op_type: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


class Definition:
    """Sequence of ONNX nodes that defines the result of an instruction.

    :meth:`finish` adds the last ones.
    """

    def __init__(self) -> None:
        self.steps: list[DefinitionStep] = []
        self.constants: dict[str, NDArray[Any]] = {}

    def add(
        self, op_type: str, *operands: str | NDArray[Any] | np.generic, **attributes: Any
    ) -> str:
        """Add an ONNX node with named or constant inputs and return the name of its result."""
        names = tuple(name if isinstance(name, str) else self._constant(name) for name in operands)
        self.steps.append(DefinitionStep(op_type, names, f"step{len(self.steps)}", attributes))
        return self.steps[-1].output

    def cast(self, operand: str, dtype: str) -> str:
        """Add a Cast node (change of element type) and return the name of its result."""
        return self.add("Cast", operand, to=dtype)

    def finish(self, scaled: str, result: Value) -> Definition:
        """Add the nodes for ``clip(rint(scaled) + zero point)`` and return the definition.

        The steps produce the 8-bit ``result`` in its shape.
        """
        assert result.quantization is not None
        zero_point = np.float32(result.quantization.zero_point.reshape(()))
        rounded = self.add("Add", self.add("Round", scaled), zero_point)
        limits = np.iinfo(result.dtype)
        clipped = self.add("Clip", rounded, np.float32(limits.min), np.float32(limits.max))
        shaped = self.add("Reshape", clipped, np.array(result.shape, np.int64))
        self.cast(shaped, result.dtype)
        return self

    def _constant(self, array: NDArray[Any] | np.generic) -> str:
        name = f"constant{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name
