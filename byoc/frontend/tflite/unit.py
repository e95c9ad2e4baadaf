"""One operator of a TensorFlow Lite model during conversion: operands in any view, results, nodes.

Every value of the graph is a view of one of the model's tensors: the model's own order of elements,
or channels first. A view copies nothing. Any region output can therefore be compared with LiteRT's
tensor, or passed to it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from byoc.frontend.tflite.cutting import cut_model
from byoc.frontend.tflite.file import TfliteModel, TFLiteOperator, TFLiteTensor
from byoc.graph import ModelView, Node, Quantization, Value
from byoc.runtimes.litert_process import get_session
from isa.errors import InputError
from isa.numerics import activation_steps, steps

PLANES = (0, 3, 1, 2)
"""Axes of a tensor (batch, rows, columns, channels) in the accelerator's order for planes."""


@dataclass(frozen=True)
class TensorView:
    """Layout of a tensor whose elements have another order and shape than in the model.

    They are reshaped to ``factors``, transposed by ``order`` and shaped as ``lies``. ``axes`` gives
    the tensor's axis for each axis of ``lies``; None if these are not axes of the tensor.
    """

    shape: tuple[int, ...]
    factors: tuple[int, ...]
    order: tuple[int, ...]
    lies: tuple[int, ...]
    axes: tuple[int, ...] | None

    @property
    def plain(self) -> bool:
        """True if the tensor has the shape and element order of the model."""
        return self.lies == self.shape and not self.moved

    @property
    def moved(self) -> bool:
        """True if the tensor's element order differs from the model's."""
        return len(self.steps) > 1 or any(step != 1 for _, step in self.steps)

    @property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """Merged dimensions of a layout as (size, stride in the model), outermost first.

        Dimensions of size 1 are left out.
        Views with equal steps have the same elements in the same order.
        """
        strides = [prod(self.factors[axis + 1 :]) for axis in range(len(self.factors))]
        found: list[tuple[int, int]] = []
        for axis in self.order:
            size = self.factors[axis]
            step = strides[axis]
            if size == 1:
                continue
            if found and found[-1][1] == size * step:
                found[-1] = found[-1][0] * size, step
            else:
                found.append((size, step))
        return tuple(found)

    def layout(self, tensor: str, dtype: str) -> ModelView:
        """Convert a view of a TensorFlow Lite tensor to the graph's layout type."""
        return ModelView(tensor, self.shape, self.factors, self.order, dtype)

    def arrange(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        """Rearrange an array in the model's layout into this view's layout."""
        return np.ascontiguousarray(array.reshape(self.factors).transpose(self.order)).reshape(
            self.lies
        )

    def axis(self, axis: int) -> int:
        """Return the position of a tensor's axis in the view.

        ``axis`` may be negative; the view must have axes.
        """
        assert self.axes is not None
        return self.axes.index(axis % len(self.shape))


def refine_views(one: TensorView, other: TensorView) -> tuple[TensorView, TensorView] | None:
    """Return two views of a tensor with the coarsest common factors; None if there are none."""
    total = prod(one.shape)
    if total == 0:
        return None
    ends = sorted({end for view in (one, other) for end in _ends(view.factors)}, reverse=True)
    factors = tuple(before // after for before, after in zip((total, *ends), ends, strict=False))
    if any(before % after for before, after in zip((total, *ends), ends, strict=False)):
        return None
    first, second = (_split_factors(view, factors) for view in (one, other))
    return first, second


def _ends(factors: tuple[int, ...]) -> list[int]:
    """Return the stride of each factor: the number of elements in the factors after it."""
    return [prod(factors[axis + 1 :]) for axis in range(len(factors))]


def _split_factors(view: TensorView, factors: tuple[int, ...]) -> TensorView:
    """Return a view as an array of finer factors of its tensor's dimensions."""
    parts: list[list[int]] = [[] for _ in view.factors]
    ends = _ends(view.factors)
    finer = _ends(factors)
    for number, (end, size) in enumerate(zip(finer, factors, strict=True)):
        if size > 1:
            parts[
                max(
                    axis
                    for axis, whole in enumerate(ends)
                    if whole * view.factors[axis] >= end * size
                )
            ].append(number)
    order = tuple(number for axis in view.order for number in parts[axis])
    order += tuple(number for number, size in enumerate(factors) if size == 1)
    return replace(
        view,
        factors=factors,
        order=order,
        lies=tuple(factors[number] for number in order),
        axes=None,
    )


def permute_axes(shape: Sequence[int], axes: Sequence[int]) -> TensorView:
    """Return the view of a tensor with its axes in another order."""
    factors = tuple(shape)
    order = tuple(axes)
    return TensorView(factors, factors, order, tuple(factors[axis] for axis in order), order)


def natural(shape: Sequence[int]) -> TensorView:
    """Return the layout that a tensor has in the model."""
    return permute_axes(shape, range(len(shape)))


def planes(shape: Sequence[int]) -> TensorView:
    """Return the channels-first view of a four-dimensional tensor; the natural view for others."""
    return permute_axes(shape, PLANES) if len(shape) == 4 else natural(shape)


def reshape_view(view: TensorView, shape: Sequence[int]) -> TensorView:
    """Return a view with another shape and the elements in the same order.

    It is the natural view or planes if possible.
    """
    for found in (natural(shape), planes(shape)):
        if found.steps == view.steps:
            return found
    factors = tuple(view.factors)
    return TensorView(tuple(shape), factors, view.order, tuple(shape), None)


ACTIVATIONS: Mapping[int, tuple[float, float]] = {1: (0.0, np.inf), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""Limits of RELU, RELU_N1_TO_1 and RELU6, by their numbers in the schema."""
_UNROUNDED = frozenset(
    {
        "MaxPool",
        "Reshape",
        "Identity",
        "Concat",
        "Slice",
        "Pad",
        "Gather",
        "GatherND",
        "Tile",
        "Expand",
        "Resize",
    }
    | {
        "ReverseSequence",
        "SpaceToDepth",
        "DepthToSpace",
        "Transpose",
        "Min",
        "Max",
        "ReduceMax",
        "ReduceMin",
    }
    | {"ArgMax", "ArgMin"}
)
"""Canonical operators that do not round here, so all kernels of LiteRT and all numerics agree."""
_BY_XNNPACK = frozenset({"Conv", "MatMul"})
"""Operators that follow XNNPACK's rule with numerics onnxruntime: 0 of 2.6 M outputs differ.

With numerics fixed, every operator follows LiteRT's reference kernels.
"""
_OTHERS = {4: "TANH", 5: "SIGN_BIT"}


class Collection:
    """Values and nodes of a graph under construction, and the layouts of each tensor."""

    def __init__(self, model: TfliteModel) -> None:
        self.model = model
        self.values: dict[str, Value] = {}
        self.nodes: list[Node] = []
        self._views: dict[int, dict[TensorView, str]] = {}

    def add_computed(
        self, number: int, view: TensorView, *, open: bool = False, dtype: str = ""
    ) -> str:
        """Add a tensor, by index and in one layout, as a computed value; return its name.

        ``dtype`` replaces the model's type. The default is the type of an existing view of the
        tensor, if there is one.
        """
        known = next(iter(self._views.get(number, {}).values()), None)
        tensor = self.model.tensors[number]
        name = self._name(number, view)
        dtype = dtype or ("" if known is None else self.values[known].dtype)
        plain = view.plain and name == tensor.name
        other = dtype not in ("", tensor.dtype)
        layout = (
            None if plain and not other else view.layout(tensor.name, tensor.dtype if other else "")
        )
        quantization = _move_quantization(tensor.quantization, view)
        self.values[name] = Value(
            name, view.lies, dtype or tensor.dtype, quantization, open=open, layout=layout
        )
        return name

    def _name(self, number: int, view: TensorView) -> str:
        """Return an unused value name for a tensor in another layout.

        The first view gets the tensor's name.
        """
        views = self._views.setdefault(number, {})
        name = self.model.tensors[number].name
        if views:
            name = f"{name}:{'x'.join(map(str, view.lies))}:{len(views)}"
        if name in self.values:
            raise InputError(
                f"a tensor is called '{name}', which is kept for a view of another; rename it"
            )
        views[view] = name
        return name

    def view(self, number: int) -> TensorView:
        """Return the layout in which a computed tensor was produced."""
        return next(iter(self._views[number]))

    def value(self, number: int, view: TensorView, reader: str) -> str:
        """Return the name of a tensor, by index, in a layout, and convert it if necessary.

        Adds nodes that convert it for operator ``reader``.
        """
        tensor = self.model.tensors[number]
        views = self._views.setdefault(number, {})
        if view in views:
            return views[view]
        if tensor.data is not None:
            return self.constant(number, view)
        have = self.view(number)
        if have.steps == view.steps:
            return views[self._ensure_view(number, view, reader)]
        pair = refine_views(have, view)
        if pair is None:
            plain = _factor_order(have)
            if have.steps != plain.steps:
                self._reorder_view(number, have, plain, reader)
            pair = _factor_order(view), view
        self._reorder_view(number, *pair, reader)
        return views[self._ensure_view(number, view, reader)]

    def constant(self, number: int, view: TensorView) -> str:
        tensor = self.model.tensors[number]
        assert tensor.data is not None
        name = self._name(number, view)
        return self.add_constant(
            name, view.arrange(tensor.data), _move_quantization(tensor.quantization, view)
        )

    def add_constant(self, name: str, data: NDArray[Any], quantization: Quantization | None) -> str:
        """Add a constant to the graph and return its name.

        An apostrophe is appended if another constant has the name.
        """
        known = self.values.get(name)
        while known is not None and not (
            known.constant is not None and np.array_equal(known.constant, data)
        ):
            name += "'"
            known = self.values.get(name)
        self.values[name] = Value(name, data.shape, data.dtype.name, quantization, data)
        return name

    def name_as_in_file(self, ends: Mapping[int, str]) -> list[str]:
        """Give each value that is a model output the name that its tensor has in the file.

        Returns the new names. Another view with the tensor's name gets the output's previous name
        in exchange.
        """
        own = {name: self.model.tensors[number].name for number, name in ends.items()}
        names = own | {wanted: name for name, wanted in own.items()}
        self.values = {
            names.get(name, name): _rename_value(value, names)
            for name, value in self.values.items()
        }
        for place, node in enumerate(self.nodes):
            inputs, outputs = (
                tuple(names.get(name, name) for name in side)
                for side in (node.inputs, node.outputs)
            )
            self.nodes[place] = replace(node, inputs=inputs, outputs=outputs)
        return list(own.values())

    def _ensure_view(self, number: int, view: TensorView, reader: str) -> TensorView:
        """Add a tensor in the layout ``view`` unless it exists, and return that layout.

        A Reshape computes it from a view with the same elements in the same order.
        """
        views = self._views[number]
        if view not in views:
            source = next(name for known, name in views.items() if known.steps == view.steps)
            self._add("Reshape", source, self.add_computed(number, view), {}, reader)
        return view

    def _reorder_view(self, number: int, have: TensorView, view: TensorView, reader: str) -> None:
        """Reorder a tensor's elements from layout ``have`` to ``view``, with equal factors."""
        views = self._views[number]
        source = self._ensure_view(number, _unfold_view(have), reader)
        result = _unfold_view(view)
        if all(known.steps != result.steps for known in views):
            perm = tuple(have.order.index(axis) for axis in view.order)
            self._add(
                "Transpose",
                views[source],
                self.add_computed(number, result),
                {"perm": perm},
                reader,
            )

    def _add(
        self, op_type: str, source: str, result: str, attributes: Mapping[str, Any], reader: str
    ) -> None:
        self.nodes.append(
            Node(
                f"layout:{result}",
                op_type,
                (source,),
                (result,),
                attributes,
                (reader,),
                integer=True,
            )
        )


def _rename_value(value: Value, names: Mapping[str, str]) -> Value:
    """Return a graph value under its new name in ``names``.

    It has no layout if its bytes are in the model's own order.
    """
    name = names.get(value.name, value.name)
    layout = value.layout
    if layout == natural(value.shape).layout(name, ""):
        layout = None
    return replace(value, name=name, layout=layout)


def _unfold_view(view: TensorView) -> TensorView:
    """Return a view in which every factor of the tensor's size is a dimension."""
    return replace(view, lies=tuple(view.factors[axis] for axis in view.order))


def _factor_order(view: TensorView) -> TensorView:
    """Return the model's element order as an array of a view's factors."""
    return replace(view, order=tuple(range(len(view.factors))), lies=view.factors, axes=None)


def _move_quantization(quantization: Quantization | None, view: TensorView) -> Quantization | None:
    """Return a tensor's quantisation with the channel axis numbered as in ``view``.

    Per-channel scales need a view with that axis.
    """
    if quantization is None or quantization.per_tensor or view.axes is None:
        return quantization
    return replace(quantization, axis=view.axis(quantization.axis or 0))


class KeptOnCpuError(Exception):
    """Exception for an operator that runs on the CPU; its message gives the reason."""


class UnitContext:
    """Context for converting one TensorFlow Lite operator to nodes of the graph.

    ``wanted`` are the tensors that should have channels first. ``delegated`` is True if XNNPACK
    runs the operator.
    """

    def __init__(
        self,
        collection: Collection,
        operator: TFLiteOperator,
        wanted: frozenset[int],
        delegated: bool,
    ) -> None:
        self.operator = operator
        self.options = operator.options
        self._collection = collection
        self._wanted = wanted
        self._delegated = delegated
        self._model = collection.model

    # Operands.

    def number(self, position: int) -> int:
        """Return the tensor index of an operator's operand; -1 if it is omitted."""
        inputs = self.operator.inputs
        return inputs[position] if position < len(inputs) else -1

    def tensor(self, position: int) -> TFLiteTensor:
        return self._model.tensors[self.number(position)]

    def is_given(self, position: int) -> bool:
        return self.number(position) >= 0

    def get_constant(self, position: int) -> NDArray[Any] | None:
        """Return the contents of a constant operand; None if it is computed or omitted."""
        return self.tensor(position).data if self.is_given(position) else None

    def parameter(self, position: int, what: str, verb: str = "is") -> NDArray[Any]:
        """Return the contents of a constant operand; raise KeptOnCpuError if it is computed."""
        found = self.get_constant(position)
        if found is None:
            raise KeptOnCpuError(
                f"its {what} '{self.tensor(position).name}' {verb} computed at run time"
            )
        return found

    def shape(self, position: int) -> tuple[int, ...]:
        return self.tensor(position).shape

    def view(self, position: int) -> TensorView:
        """Return the layout of an operand; constants have the model's layout."""
        if self.tensor(position).data is not None:
            return natural(self.shape(position))
        return self._collection.view(self.number(position))

    def axes_view(self, position: int) -> TensorView:
        """Return an operand's layout, or the model's own if the operand's splits or merges axes."""
        view = self.view(position)
        return view if view.axes is not None else natural(view.shape)

    def alone(self, operand: int) -> Callable[[NDArray[Any]], list[NDArray[Any]]]:
        """Return a function that runs one operator on LiteRT with a given operand."""
        number = self.number(operand)
        outputs = self.operator.outputs
        made = get_session(cut_model(self._model, [number], outputs), self.operator.name)

        def run(array: NDArray[Any]) -> list[NDArray[Any]]:
            return list(made.run({number: array}, outputs).values())

        return run

    def value(self, position: int, view: TensorView) -> str:
        return self._collection.value(self.number(position), view, self.operator.name)

    def add_constant(
        self, position: int, label: str, data: NDArray[Any], quantization: Quantization | None
    ) -> str:
        """Add ``data``, derived from a constant operand, and return the new constant's name."""
        return self._collection.add_constant(
            f"{self.tensor(position).name}:{label}", data, quantization
        )

    def find_common_view(self, positions: Sequence[int]) -> TensorView:
        """Return a common layout, which neither splits nor merges axes, of operands of equal rank.

        It may permute the axes: it is channels first if one of the operands is.
        """
        views = [
            self.axes_view(position) for position in positions if self.tensor(position).data is None
        ]
        return next((view for view in views if view.moved), views[0])

    # Results.

    def result(self, index: int = 0) -> TFLiteTensor:
        return self._model.tensors[self.operator.outputs[index]]

    def free_view(self, index: int = 0) -> TensorView:
        """Return the preferred layout of an operator's result that can have any layout."""
        number = self.operator.outputs[index]
        shape = self._model.tensors[number].shape
        return planes(shape) if number in self._wanted else natural(shape)

    def node(
        self,
        op_type: str,
        inputs: Iterable[str],
        view: TensorView,
        attributes: Mapping[str, Any] | None = None,
        index: int = 0,
        macs: int = 0,
        dtype: str = "",
    ) -> None:
        """Add a canonical node that computes an operator's result ``index`` in a layout.

        ``dtype`` replaces the model's type.
        """
        operator = self.operator
        name = operator.name if len(operator.outputs) == 1 else f"{operator.name}:{index}"
        result = self._collection.add_computed(operator.outputs[index], view, dtype=dtype)
        same = op_type in _UNROUNDED or (op_type in _BY_XNNPACK and self._delegated)
        rule = {} if same else {"numerics": "fixed"}
        nodes = (operator.name,)
        all_attributes = {**rule, **(attributes or {})}
        found = Node(
            name, op_type, tuple(inputs), (result,), all_attributes, nodes, macs=macs, integer=True
        )
        self._collection.nodes.append(found)

    def activation(self) -> dict[str, Any]:
        """Return the attributes of an operator's fused activation.

        Raises KeptOnCpuError if it cannot be fused.
        """
        number = getattr(self.options, "fusedActivationFunction", 0)
        if number in ACTIVATIONS:
            return limits(self.result(), ACTIVATIONS[number])
        if number:
            raise KeptOnCpuError(f"its activation is {_OTHERS.get(number, number)}")
        return {}


def limits(result: TFLiteTensor, bounds: tuple[float, float]) -> dict[str, Any]:
    """Return attributes that clamp a result to real ``bounds`` as LiteRT's reference kernels do.

    The kernels round bound / scale in float32, ties away from zero
    (CalculateActivationRangeQuantized). XNNPACK rounds ties to even, so the attributes restrict the
    numerics if the two differ.
    """
    quantization = result.quantization
    if quantization is None or not quantization.per_tensor:
        return {}
    scale = np.float32(quantization.scale)
    attributes: dict[str, Any] = {}
    ends = []
    for bound, away in zip(bounds, activation_steps(bounds, scale), strict=True):
        if np.isfinite(bound) and away != steps(np.float32(bound), scale, 0, np.int32):
            attributes["numerics"] = "fixed"
        ends.append(away * float(scale) if np.isfinite(bound) else bound)
    return {**attributes, "activation": "Relu" if bounds == ACTIVATIONS[1] else ("Clip", *ends)}


Reader = Callable[[UnitContext], None]
"""Function that adds the canonical nodes of an operator, or none and raises KeptOnCpuError."""
