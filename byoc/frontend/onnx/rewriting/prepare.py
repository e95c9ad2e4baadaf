"""The passes on ONNX models in their order: what every model goes through before quantisation and import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial, update_wrapper

from onnx import ModelProto
from onnx.inliner import inline_local_functions

from byoc.frontend.onnx.rewriting.attention import decompose_attention
from byoc.frontend.onnx.rewriting.branches import take_branches
from byoc.frontend.onnx.rewriting.constants import drop_initializer_inputs, fold_constants
from byoc.frontend.onnx.rewriting.edit import copy_model, remove_dead_code, sort_nodes, without_large_constants
from byoc.frontend.onnx.rewriting.gemm import canonicalise_gemm, join_biases
from byoc.frontend.onnx.rewriting.integers import move_casts, move_integers, write_out_functions
from byoc.frontend.onnx.rewriting.law import Law, Pass, rewriting
from byoc.frontend.onnx.rewriting.linear import FOLDS, OTHERS, fold_affine, linear_laws
from byoc.frontend.onnx.rewriting.lookups import tabulate_rows
from byoc.frontend.onnx.rewriting.movement import EXACT
from byoc.frontend.onnx.rewriting.norms import recognise_norms
from byoc.frontend.onnx.rewriting.opset import PLAIN_OPSET, TARGET_OPSET, convert_opset
from byoc.frontend.onnx.rewriting.pools import convolve_pools
from byoc.frontend.onnx.rewriting.recurrent import unroll
from byoc.frontend.onnx.rewriting.reductions import decompose_reductions
from byoc.frontend.onnx.rewriting.resizes import expand_resizes
from byoc.frontend.onnx.rewriting.shapes import fix_shapes, infer_shapes, shorten_pools
from byoc.frontend.onnx.rewriting.splits import gather_scatters, slice_splits
from byoc.frontend.onnx.rewriting.tidy import (
    drop_unit_dilations,
    drop_unread_outputs,
    fold_pads,
    name_nodes,
    remove_identities,
    separate_outputs,
)
from byoc.frontend.onnx.rewriting.transposed import spread_transposed
from byoc.frontend.onnx.rewriting.volumes import flatten_integer_volumes, flatten_volumes
from byoc.frontend.onnx.shapes import complete_types
from byoc.frontend.onnx.units import is_quantised


def prepare(model: ModelProto, shapes: Mapping[str, Sequence[int]] | None = None) -> ModelProto:
    """A copy at a current opset with static shapes, folded constants and, where float, folded BatchNormalization.

    Serves float and quantised models: what stands between quantised values is left as it is. ``shapes`` gives
    dynamic inputs their dimensions. The argument is not changed.

    Raises:
        InputError: unsupported opset; an input that is dynamic; ``shapes`` that do not fit the model.
    """
    return apply(passes(model, shapes), model)


def apply(steps: Iterable[Pass], model: ModelProto) -> ModelProto:
    """What ``steps``, one after another, make of ``model``."""
    current = model
    for step in steps:
        current = step(current)
    return current


def passes(model: ModelProto, shapes: Mapping[str, Sequence[int]] | None = None) -> tuple[Pass, ...]:
    """The passes that ``model`` goes through, in their order; what they are called is their name.

    Passes that change how numbers are rounded are for float models only: between quantised values nothing may change.
    """
    quantised = is_quantised(inline_functions(model))
    fix = update_wrapper(partial(fix_shapes, shapes=shapes), fix_shapes)
    # A newer version of an operator may round otherwise, which a quantised model shows: no newer than needed.
    target = PLAIN_OPSET if quantised else TARGET_OPSET
    convert = update_wrapper(partial(convert_opset, target=target), convert_opset)
    written = infer_shapes, unroll, infer_shapes, decompose_attention, fold_constants
    planes = fold_affine, spread_transposed, infer_shapes, flatten_volumes, canonicalise_gemm
    floats: tuple[Pass, ...] = (
        _light(expand_resizes),
        *written,
        tabulate_rows,
        recognise_norms,
        decompose_reductions,
        convolve_pools,
        infer_shapes,
        *planes,
        infer_shapes,
        linear_laws,
    )
    folds: tuple[Pass, ...] = (spread_transposed, join_biases) if quantised else floats
    moved = move_integers, infer_shapes, flatten_integer_volumes, fold_constants, infer_shapes, exact_laws
    integers: tuple[Pass, ...] = moved if quantised else ()
    types: tuple[Pass, ...] = () if quantised else (complete_types,)
    return (
        inline_functions,
        order_nodes,
        drop_initializer_inputs,
        fix,
        separate_outputs,
        _light(convert),
        infer_shapes,
        take_branches,
        _light(shorten_pools),
        fold_constants,
        remove_identities,
        _light(drop_unread_outputs),
        fold_pads,
        _light(write_out_functions),
        complete_types,
        _light(slice_splits),
        gather_scatters,
        _light(move_casts),
        *folds,
        drop_dead_code,
        _light(drop_unit_dilations),
        infer_shapes,
        exact_laws,
        *integers,
        infer_shapes,
        *types,
        _light(name_nodes),
    )


exact_laws = rewriting("exact_laws", EXACT)
LAWS: tuple[Law, ...] = (*FOLDS, *OTHERS, *EXACT)
"""All laws: those that are linear are tried where models are float."""

ROUNDING = frozenset(
    step.__name__
    for step in (
        *(
            fold_constants,
            fold_affine,
            linear_laws,
            canonicalise_gemm,
            join_biases,
            expand_resizes,
            unroll,
            decompose_attention,
        ),
        *(tabulate_rows, recognise_norms, decompose_reductions, convolve_pools),
        *(spread_transposed, flatten_volumes, flatten_integer_volumes),
    )
)
"""Passes that compute constants anew, or write an operator as others of equal meaning: where huge terms cancel, what
that does to rounding can be seen. ONNX Runtime's own recurrent layers approximate Sigmoid and Tanh besides, otherwise
than its Sigmoid and Tanh do (5 of 150 drawn are left out).
"""


def _light(change: Pass) -> Pass:
    """A pass that never looks at weights, run without them: copying half a gigabyte each time is what takes long."""

    def light(model: ModelProto) -> ModelProto:
        return without_large_constants(model, change)

    return update_wrapper(light, change)


def order_nodes(model: ModelProto) -> ModelProto:
    """A copy in which every node stands behind what it and its bodies read; some writers do not mind bodies."""
    result = copy_model(model)
    sort_nodes(result.graph)
    return result


def inline_functions(model: ModelProto) -> ModelProto:
    """The model with the bodies of its local functions in place of their calls."""
    return inline_local_functions(model) if model.functions else model


def drop_dead_code(model: ModelProto) -> ModelProto:
    result = copy_model(model)
    remove_dead_code(result.graph)
    del result.graph.value_info[:]
    return result
