"""All passes on ONNX models in order, applied before quantisation and import."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import Literal

from onnx import ModelProto
from onnx.inliner import inline_local_functions

from byoc.frontend.onnx.rewriting.composites import decompose_attention
from byoc.frontend.onnx.rewriting.constants import (
    drop_initializer_inputs,
    fold_constants,
    select_branches,
    take_branches,
    write_out_sparse,
)
from byoc.frontend.onnx.rewriting.convolutions import convolve_pools, spread_transposed
from byoc.frontend.onnx.rewriting.einsums import write_out_einsums
from byoc.frontend.onnx.rewriting.form import (
    PLAIN_OPSET,
    TARGET_OPSET,
    convert_opset,
    drop_unit_dilations,
    drop_unread_outputs,
    guard_divisions,
    name_nodes,
    remove_identities,
    separate_outputs,
)
from byoc.frontend.onnx.rewriting.fused import restore_operators
from byoc.frontend.onnx.rewriting.gemm import canonicalise_gemm, join_biases
from byoc.frontend.onnx.rewriting.indices import (
    multiply_by_indices,
    multiply_by_triangle,
    search_in_turn,
)
from byoc.frontend.onnx.rewriting.integers import (
    dequantise_constants,
    match_types,
    move_casts,
    move_integers,
    unpack_integers,
    write_out_functions,
)
from byoc.frontend.onnx.rewriting.law import Law, OperatorPass, Pass
from byoc.frontend.onnx.rewriting.linear import FOLDS, OTHERS, fold_affine, linear_laws
from byoc.frontend.onnx.rewriting.lookups import tabulate_rows
from byoc.frontend.onnx.rewriting.movement import EXACT, exact_laws, fold_pads
from byoc.frontend.onnx.rewriting.norms import recognise_norms
from byoc.frontend.onnx.rewriting.recurrent import unroll
from byoc.frontend.onnx.rewriting.reductions import decompose_reductions
from byoc.frontend.onnx.rewriting.resizes import expand_resizes
from byoc.frontend.onnx.rewriting.shapes import (
    complete_types,
    fix_shapes,
    infer_shapes,
    shorten_pools,
)
from byoc.frontend.onnx.rewriting.spectra import convolve_spectra
from byoc.frontend.onnx.rewriting.splits import gather_scatters, slice_splits, turn_slopes
from byoc.frontend.onnx.rewriting.volumes import flatten_integer_volumes, flatten_volumes
from byoc.frontend.onnx.units import is_quantised
from byoc.runtimes.protobuf import (
    change_without_large_constants,
    copy_model,
    free_new_constants,
    remove_dead_code,
    sort_nodes,
    use_counts,
)


def prepare(model: ModelProto, shapes: Mapping[str, Sequence[int]] | None = None) -> ModelProto:
    """Return an ONNX model with a current opset, static shapes and folded constants.

    In float models, scales are folded into products. Serves float and quantised models: operators
    between quantised values stay unchanged. ``shapes`` sets the dimensions of dynamic inputs. The
    argument is not changed.

    Raises:
        InputError: unsupported opset, a dynamic input, or ``shapes`` that do not fit the model.
    """
    return apply(passes(model, shapes), model)


def apply(steps: Iterable[Pass], model: ModelProto) -> ModelProto:
    """Apply rewriting passes in order; infer shapes again only after a change."""
    current = model
    free = free_new_constants()
    inferred = False
    for step in steps:
        infers = step.__name__ == infer_shapes.__name__
        if not (infers and inferred):
            made = step(current)
            inferred = infers or (inferred and made is current)
            current = made
            free(current)
    return current


@dataclass(frozen=True)
class PassStage:
    """A pass in the order of passes, its kind of models, and the reason for its position.

    ``rounds`` is True if it may change rounding (:data:`ROUNDING`), ``light`` if it never reads
    weights and runs without them, ``for_cpu`` if operators that it writes run on the CPU, or if it
    depends on the nodes around an operator: it is then no support for the operator alone.
    """

    step: Pass
    models: Literal["all", "float", "quantised"]
    why: str
    rounds: bool = False
    light: bool = False
    for_cpu: bool = False


def inline_functions(model: ModelProto) -> ModelProto:
    """Replace calls of the model's local functions by their bodies."""
    return inline_local_functions(model) if model.functions else model


def order_nodes(model: ModelProto) -> ModelProto:
    """Sort the nodes so that each follows the producers of all tensors that it or its bodies read.

    Some exporters ignore what bodies read.
    """
    result = copy_model(model)
    sort_nodes(result.graph)
    return result


def drop_unread(model: ModelProto) -> ModelProto:
    """Remove unused nodes and constants; return the model itself if there are none."""
    used = use_counts(model.graph)
    makers = (tuple(node.output) for node in model.graph.node)
    kept = all(used[tensor.name] for tensor in model.graph.initializer)
    if kept and all(any(used[name] for name in made) for made in makers):
        return model
    result = copy_model(model)
    remove_dead_code(result.graph)
    return result


def drop_dead_code(model: ModelProto) -> ModelProto:
    """Remove unused nodes and constants, and all inferred shapes.

    Some of the shapes belong to removed tensors.
    """
    result = copy_model(model)
    remove_dead_code(result.graph)
    del result.graph.value_info[:]
    return result


LAWS: tuple[Law, ...] = (*FOLDS, *OTHERS, *EXACT)
"""All rules; those that are not exact are tried only in float models."""

_SHAPES = "later passes need shapes"
ORDER: tuple[PassStage, ...] = (
    PassStage(inline_functions, "all", "all later passes expect nodes, not function calls"),
    PassStage(write_out_sparse, "all", "later passes then see one form of constants"),
    PassStage(order_nodes, "all", "later passes expect nodes in execution order"),
    PassStage(
        drop_initializer_inputs, "all", "later passes treat every input as fed by the caller"
    ),
    PassStage(fix_shapes, "all", "shape inference starts at the inputs"),
    PassStage(separate_outputs, "all", "before a pass identifies inputs and outputs by name"),
    PassStage(
        restore_operators, "all", "converters and checkers accept only ONNX operators", rounds=True
    ),
    PassStage(
        convert_opset,
        "all",
        "later passes know one version of every operator",
        rounds=True,
        light=True,
    ),
    PassStage(infer_shapes, "all", _SHAPES),
    PassStage(
        take_branches, "all", "needs inferred shapes; later passes see the nodes of the branches"
    ),
    PassStage(select_branches, "all", "branches with a constant condition are gone"),
    PassStage(shorten_pools, "all", "before the shapes of a pool's consumers are used", light=True),
    PassStage(
        fold_constants, "all", "needs shapes; most later passes look for constants", rounds=True
    ),
    PassStage(unpack_integers, "quantised", "integer operators have 8-bit weights"),
    PassStage(
        dequantise_constants, "float", "later passes expect float constants in float computations"
    ),
    PassStage(remove_identities, "all", "before a pass counts the consumers of a tensor"),
    PassStage(guard_divisions, "float", "calibration rejects quotients of 0", light=True),
    PassStage(
        drop_unread_outputs, "all", "later passes match operators with one result", light=True
    ),
    PassStage(fold_pads, "all", "before quantised pads become movement"),
    PassStage(write_out_functions, "all", "before `move_integers`", light=True),
    PassStage(complete_types, "all", "splits need element types"),
    PassStage(slice_splits, "all", "later passes expect movements with one result", light=True),
    PassStage(
        turn_slopes,
        "quantised",
        "a table has one function per channel; float slopes become products",
        light=True,
    ),
    PassStage(gather_scatters, "all", "needs constant indices"),
    PassStage(move_casts, "all", "before a pass uses the float tensor after a cast", light=True),
    PassStage(
        expand_resizes,
        "float",
        "it writes products, which later passes fold",
        rounds=True,
        light=True,
    ),
    PassStage(infer_shapes, "float", _SHAPES),
    PassStage(slice_splits, "float", "shapes after folded constants are known now", light=True),
    PassStage(drop_unread, "all", "later passes count the consumers of tensors"),
    PassStage(
        unroll,
        "float",
        "later passes rewrite and fold the operators of an unrolled layer",
        rounds=True,
    ),
    PassStage(infer_shapes, "float", _SHAPES),
    PassStage(
        write_out_einsums, "all", "later passes fold and move its products", rounds=True, light=True
    ),
    PassStage(infer_shapes, "all", _SHAPES),
    PassStage(
        convolve_spectra,
        "float",
        "its weights become constants of a convolution or a product",
        rounds=True,
    ),
    PassStage(
        decompose_attention,
        "float",
        "later passes rewrite and fold the operators of attention",
        rounds=True,
    ),
    PassStage(
        fold_constants, "float", "the two passes before write foldable constants", rounds=True
    ),
    PassStage(
        search_in_turn, "float", "before `multiply_by_indices` sees its scatters", for_cpu=True
    ),
    PassStage(
        multiply_by_indices,
        "float",
        "before products change their form",
        rounds=True,
        for_cpu=True,
    ),
    PassStage(
        multiply_by_triangle, "float", "before products change their form", rounds=True, light=True
    ),
    PassStage(infer_shapes, "float", _SHAPES),
    PassStage(
        tabulate_rows, "float", "before functions of rows are decomposed", rounds=True, for_cpu=True
    ),
    PassStage(
        recognise_norms, "float", "before the reductions of a norm are decomposed", rounds=True
    ),
    PassStage(
        decompose_reductions,
        "float",
        "after `recognise_norms`, which needs the reductions",
        rounds=True,
    ),
    PassStage(convolve_pools, "float", "before scales are folded into convolutions", rounds=True),
    PassStage(infer_shapes, "float", _SHAPES),
    PassStage(fold_affine, "float", "before products change their form", rounds=True),
    PassStage(spread_transposed, "all", "its weights already contain the scales", rounds=True),
    PassStage(infer_shapes, "float", _SHAPES),
    PassStage(
        flatten_volumes,
        "float",
        "transposed convolutions of volumes are convolutions by now",
        rounds=True,
    ),
    PassStage(canonicalise_gemm, "float", "products already contain the scales", rounds=True),
    PassStage(infer_shapes, "float", _SHAPES),
    PassStage(linear_laws, "float", "all products have one form by now", rounds=True),
    PassStage(
        join_biases,
        "quantised",
        "before `move_integers` puts movement between a product and its bias",
        rounds=True,
    ),
    PassStage(drop_dead_code, "all", "removed nodes must not count as consumers"),
    PassStage(drop_unit_dilations, "all", "pools have their final form", light=True),
    PassStage(infer_shapes, "all", _SHAPES),
    PassStage(exact_laws, "all", "movements that earlier passes wrote can now be merged"),
    PassStage(move_integers, "quantised", "clamps are next to the operators that can absorb them"),
    PassStage(infer_shapes, "quantised", _SHAPES),
    PassStage(
        flatten_integer_volumes,
        "quantised",
        "the movements that it writes move integers",
        rounds=True,
    ),
    PassStage(fold_constants, "quantised", "computes movements of weights", rounds=True),
    PassStage(infer_shapes, "quantised", _SHAPES),
    PassStage(exact_laws, "quantised", "movements of integers can now be merged"),
    PassStage(match_types, "quantised", "operators have their final operands"),
    PassStage(infer_shapes, "all", "the quantiser and the importer need shapes"),
    PassStage(complete_types, "float", "the quantiser needs element types"),
    PassStage(name_nodes, "all", "no later pass adds nodes", light=True),
)
"""All passes, in the order in which they are applied to the models that they are for."""

ROUNDING = frozenset(stage.step.__name__ for stage in ORDER if stage.rounds)
"""Passes that recompute constants or replace operators by equivalent ones.

They change rounding. The change can be visible where large terms cancel. In addition, ONNX
Runtime's recurrent layers approximate Sigmoid and Tanh differently from its Sigmoid and Tanh
operators (the pass is omitted for 5 of 150 random models).
"""


def passes(
    model: ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> tuple[Pass, ...]:
    """Return the rewriting passes to apply to ``model``, in order.

    Between quantised values nothing may change. Passes that change rounding are therefore for float
    models, except those that do what ONNX Runtime does itself.
    """
    quantised = is_quantised(inline_functions(model))
    # A newer operator version may round differently, which a quantised model shows: convert no
    # further than needed.
    target = PLAIN_OPSET if quantised else TARGET_OPSET
    settled: dict[Pass, Pass] = {
        fix_shapes: partial(fix_shapes, shapes=shapes),
        convert_opset: partial(convert_opset, target=target),
    }
    kinds = ("all", "quantised") if quantised else ("all", "float")
    return tuple(
        _pass(stage, settled.get(stage.step, stage.step))
        for stage in ORDER
        if stage.models in kinds
    )


def _pass(stage: PassStage, step: Pass) -> Pass:
    """Return a pass with its stage's name, run without weights if it never reads them.

    Copying half a gigabyte of weights for every pass would dominate the run time.
    """

    def run(model: ModelProto) -> ModelProto:
        if isinstance(step, OperatorPass) and not step.is_concerned_with(model):
            return model
        return change_without_large_constants(model, step) if stage.light else step(model)

    return update_wrapper(run, stage.step)
