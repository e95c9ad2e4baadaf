"""First half of the compiler: import a model into a package and quantise float ONNX models."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto

from byoc.checking.fidelity import (
    PassError,
    compare_prepared,
    differ_by_ties,
    difference,
    round_share,
    trial_feed,
)
from byoc.checking.file_check import (
    SAMPLES,
    Outputs,
    assign_blame,
    check_operators,
    compare_outputs,
    draw_feeds,
    is_explained_by_ties,
    own_optimiser,
)
from byoc.checking.file_check import outputs_of as file_outputs
from byoc.frontend.onnx.file import load_model, open_dimensions
from byoc.frontend.onnx.importer import import_graph
from byoc.frontend.onnx.node_checks import check_scales
from byoc.frontend.onnx.rewriting.constants import fix_inputs
from byoc.frontend.onnx.rewriting.definitions import define, integer_clamps
from byoc.frontend.onnx.rewriting.dynamic import DYNAMIC_OPERATORS, make_static_ranges
from byoc.frontend.onnx.rewriting.form import widen
from byoc.frontend.onnx.rewriting.integers import (
    integer_biases,
    quantise_tables,
    select_integers,
)
from byoc.frontend.onnx.rewriting.law import Pass
from byoc.frontend.onnx.rewriting.prepare import ROUNDING, apply, passes
from byoc.frontend.onnx.rewriting.reasons import KeptNodes
from byoc.frontend.onnx.rewriting.shapes import set_batch
from byoc.frontend.onnx.state import complete_feeds
from byoc.frontend.onnx.units import is_quantised
from byoc.frontend.tflite import is_tflite
from byoc.frontend.tflite.cutting import read_initial_values
from byoc.frontend.tflite.file import TfliteModel, load_tflite
from byoc.frontend.tflite.floating import (
    TRANSPOSED,
    is_float,
    run_float,
    to_onnx,
    write_builtins,
)
from byoc.frontend.tflite.folding import fold_shapes
from byoc.frontend.tflite.importer import import_tflite
from byoc.frontend.tflite.variables import remove_variables
from byoc.graph import pair_state
from byoc.operators.registry import annotate
from byoc.options import Quantisation
from byoc.package.package import (
    Calibration,
    Fidelity,
    FileCheck,
    Package,
    QuantisedTensors,
    build_package,
)
from byoc.quantisation.calibrate import (
    NO_FEEDS,
    NO_STATE,
    Feeds,
    Pairs,
    default_feeds,
)
from byoc.quantisation.float_nodes import is_quantised_whole
from byoc.quantisation.gaps import count_quantised, drop_rounding, find_gaps
from byoc.quantisation.quantize import find_ranges, quantise_within
from byoc.quantisation.resemblance import outputs_of, resemblance
from byoc.quantisation.samples import CalibrationSamples, count_samples, tell_sample
from byoc.quantisation.search import QuantisationSearch
from byoc.runtimes.protobuf import (
    bodies,
    count_of,
    free_constants,
    move_constants,
    share_constants,
)
from isa.errors import InputError
from isa.progress import Progress, report_each, silent

Reference = Callable[[Sequence[Feeds]], Outputs | None]
"""Runs the user's file on several feeds; returns None if its runtime rejects them."""


class ConvertedModel(NamedTuple):
    """ONNX model converted from a file of another format, and the function that runs the file.

    ``state`` and ``initial`` are the outputs and the first values of the file's variables, by
    input. ``replaced`` describes the operators of the file that its runtime lacks.
    """

    model: ModelProto
    reference: Reference
    state: Pairs = NO_STATE
    initial: Feeds = NO_FEEDS
    replaced: str = ""


class NamedSamples(NamedTuple):
    """Calibration samples, their source as text for reports, and the method of quantisation.

    ``weight_bits`` has the bits of weights by pattern of node names.
    """

    samples: Iterable[Feeds] | None
    origin: str = ""
    method: Quantisation = "minmax"
    weight_bits: Mapping[str, int] = MappingProxyType({})


def import_model(
    model: ModelProto | ConvertedModel | str | Path,
    source: str | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    fixed: Mapping[str, float] | None = None,
    state: Pairs = NO_STATE,
    calibration: Iterable[Feeds] | NamedSamples | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Package:
    """Import an ONNX model, or a file that contains one, into a package.

    A float model is quantised first. A quantised TensorFlow Lite file is imported without changes;
    no argument but ``source`` applies to it. A float one becomes an ONNX model.

    ``source`` is the model's name in reports, by default that of the file or of the model's graph.
    ``shapes`` sets the dimensions of dynamic inputs, and ``fixed`` turns inputs into constants.
    ``state`` names outputs by the input whose next value they are; usual names are found.
    ``calibration`` provides the samples for quantisation, consecutive ones if they lack the state,
    by default standard-normal ones drawn from ``seed``. ``progress`` is called with each stage.
    Raises InputError for a model that cannot be imported.
    """
    if isinstance(model, str | Path) and Path(model).is_file() and is_tflite(Path(model)):
        source = source or Path(model).stem
        file = load_tflite(model)
        if not is_float(file):
            return tflite_package(file, source, str(model))
        model = convert_float(file, str(model))
    converted, initial = None, NO_FEEDS
    if isinstance(model, ConvertedModel):
        converted, initial = model, model.initial
        model, state = converted.model, {**converted.state, **state}
    if isinstance(model, str | Path):
        source = source or Path(model).stem
        model = load_model(model)
    else:
        check_scales(model.graph)
        model = open_dimensions(model)
    name = source or model.graph.name
    handed = [fix_inputs(model, fixed or {}, shapes)]
    del model  # frees the model while the import runs, unless the caller keeps a reference
    shapes = {key: dims for key, dims in (shapes or {}).items() if key not in (fixed or {})}
    # Non-finite numbers are rejected where they are used; a warning would only repeat the message.
    with _advice(handed[0]), np.errstate(all="ignore"):
        named = calibration if isinstance(calibration, NamedSamples) else NamedSamples(calibration)
        if named.weight_bits and named.method != "power-of-two":
            raise InputError(
                f"{name}: --weight-bits is for --quantise power-of-two, not for {named.method}; "
                "give both"
            )
        sampling = _Sampling(*named, seed, state, initial)
        return _import_only(handed, name, shapes, sampling, progress, converted)


def convert_float(model: TfliteModel, file: str) -> ConvertedModel:
    """Return the ONNX model of a float TensorFlow Lite model in ``file``.

    Raises InputError that names the file if an operator has no ONNX form.
    """
    try:
        builtin = write_builtins(model)
        replaced = "" if builtin is model else f"TRANSPOSE_CONV in place of {TRANSPOSED}"
        model = remove_variables(builtin)
        names = [tensor.name for tensor in model.tensors]
        values = read_initial_values(model) if model.variables else {}
        return ConvertedModel(
            to_onnx(model),
            partial(run_float, model),
            {names[one.before]: names[one.after] for one in model.variables},
            {names[number]: array for number, array in values.items()},
            replaced,
        )
    except InputError as error:
        raise InputError(f"{file}: {error}") from error


def tflite_package(model: TfliteModel, source: str, file: str = "") -> Package:
    """Import a TensorFlow Lite model.

    ``source`` is its name in reports, ``file`` its name in messages. Raises InputError for a model
    that cannot be imported.
    """
    try:
        model = fold_shapes(remove_variables(model))
        graph = import_tflite(model)
    except InputError as error:
        raise InputError(f"{file or source}: {error}") from error
    return build_package(graph, annotate(graph), model, 0, source, AS_GIVEN)


AS_GIVEN = Fidelity(tensors=0, elements=0, difference=0.0, integer=0.0)
"""Fidelity of a package with the user's unchanged file: there is nothing to compare."""


@contextmanager
def _advice(model: ModelProto) -> Iterator[None]:
    """Advise to fix an input when the import of a model with branches raises InputError.

    The advice is added to the message.
    """
    branches = any(True for node in model.graph.node for _ in bodies(node))
    del model
    try:
        yield
    except InputError as error:
        if not branches:
            raise
        raise InputError(
            f"{error}; where an input chooses between branches, fix it with --fix NAME=VALUE"
        ) from error


class _Sampling(NamedTuple):
    """Fields of :class:`NamedSamples`, the seed of samples, and state by name with first values."""

    calibration: Iterable[Feeds] | None
    origin: str
    method: Quantisation
    weight_bits: Mapping[str, int]
    seed: int
    state: Pairs
    initial: Feeds


@share_constants()
def _import_only(
    handed: list[ModelProto],
    name: str,
    shapes: Mapping[str, Sequence[int]],
    sampling: _Sampling,
    progress: Progress,
    converted: ConvertedModel | None,
) -> Package:
    """Remove the model from the list ``handed``, so that its memory can be freed, and import it."""
    calibration, origin, method, weight_bits, seed, given_state, initial = sampling
    file = move_constants(handed.pop())
    widened = move_constants(widen(file))
    check_operators(widened)
    model = given = drop_rounding(widened)
    named, shapes = shapes, set_batch(file, shapes)
    facts = _first_facts(model, [name for name in shapes if name not in named], widened is not file)
    feeds = None if calibration is None else iter(calibration)
    samples = CalibrationSamples(
        lambda prepared: default_feeds(prepared, seed) if feeds is None else feeds,
        partial(tell_sample, progress, name, count_samples(calibration)),
        drawn=feeds is None,
    )
    drawn = Calibration(0, calibration is None, origin, method=method)
    with assign_blame(file, shapes, seed):
        if facts["made_static"]:
            given = apply(passes(model, shapes), model)
            observed = complete_feeds(given, feeds or default_feeds(given, seed), given_state)
            model = make_static_ranges(given, observed)
            shapes = {}
            feeds = iter(observed)
        steps = passes(model, shapes)
        prepared = apply(report_each(steps, f"preparing {name}", progress), model)
        samples.find_state(prepared, given_state, initial)
        carried = samples.state, samples.initial
        if is_quantised(prepared):
            _refuse_method(name, method)
            found = _import_quantised(file, model, prepared, steps, seed, facts)
            if facts["widened"]:
                found = _choose_precision(file, found, shapes, seed, facts)
            filled = _fill_gaps(file, found, samples, drawn, progress, name)
            return package_of(*filled, *carried)
        prepared, fidelity = compare_prepared(model, prepared, steps, samples.first)
        source = given if facts["made_static"] else prepared
        first = samples.kept if calibration is not None else ()
        facts["file"] = _compare_with_file(file, source, first, seed, facts["widened"], converted)
    on_file = count_quantised(file)
    del file, given, model, widened
    free_constants(source, prepared)
    ranges = find_ranges(prepared, samples.all(), seed, samples.hear, *carried)
    exact = outputs_of(source, samples.kept) if facts["made_static"] else samples.outputs
    progress(f"quantising {name}")
    handed.append(prepared)
    del source, prepared
    search = QuantisationSearch(handed, ranges, samples, exact, on_file.weights > 0, progress)
    made = search.run(method, weight_bits)
    if samples.count:
        progress(f"comparing {name} in int8 and in float")
        drawn = replace(drawn, trials=made.trials, lossy=made.noise or {})
        facts |= _measure(exact, made.model, samples, drawn, on_file)
    return package_of(made.model, name, replace(fidelity, **facts), *carried, made.in_float)


def _refuse_method(name: str, method: Quantisation) -> None:
    """Raise InputError for a method other than ``minmax`` if a model is quantised already."""
    if method != "minmax":
        raise InputError(
            f"{name}: --quantise {method} is for float models, and parts of this one are quantised "
            "already; leave --quantise out"
        )


def _first_facts(model: ModelProto, opened: Iterable[str], widened: bool) -> dict[str, Any]:
    """Return the fields of a model's fidelity that are known before its passes."""
    made_static = count_of(model.graph, DYNAMIC_OPERATORS)
    return {"opened": tuple(opened), "widened": widened, "made_static": made_static}


def _measure(
    exact: Sequence[Feeds],
    model: ModelProto,
    samples: CalibrationSamples,
    drawn: Calibration,
    given: QuantisedTensors,
) -> dict[str, Any]:
    """Return noise and calibration of a quantised model, whose outputs should be ``exact``.

    ``given`` counts the tensors that the file quantises.
    """
    noise, agreement = resemblance(exact, model, samples.kept) if exact else ({}, {})
    calibration = replace(drawn, samples=samples.count, agreement=agreement)
    if not given.activations and not given.weights:
        return {"noise": noise, "calibration": calibration}
    whole = count_quantised(model)
    activations, weights = (
        max(0, getattr(whole, kind) - getattr(given, kind)) for kind in ("activations", "weights")
    )
    added = QuantisedTensors(activations, weights)
    return {"noise": noise, "calibration": replace(calibration, given=given, added=added)}


def _fill_gaps(
    file: ModelProto,
    imported: _Imported,
    samples: CalibrationSamples,
    drawn: Calibration,
    progress: Progress,
    name: str,
) -> tuple[ModelProto, str, Fidelity | None]:
    """Quantise the float parts of a partly quantised, imported model.

    The parts in integers stay as they are. Returns the model, its name and its fidelity. If all is
    quantised, or if drawn samples are unusable, the model stays as it is.
    """
    model, fidelity = imported
    gaps = None if fidelity is None else find_gaps(model)
    if fidelity is None or gaps is None:
        unused = None if drawn.random or fidelity is None else replace(fidelity, calibration=drawn)
        return model, name, unused or fidelity
    try:
        first = next(gaps.observe_borders([samples.first(gaps.whole)]))
        steps = passes(gaps.parts)
        parts, found = compare_prepared(
            gaps.parts, apply(steps, gaps.parts), steps, lambda _: first
        )
        ranges = find_ranges(parts, gaps.observe_borders(samples.all()))
    except InputError:
        if not drawn.random:
            raise
        return model, name, fidelity
    progress(f"quantising {name}")
    scales = gaps.find_scales(ranges)
    quantised = quantise_within(parts, ranges, scales, on_grids=True)
    filled = gaps.fill(select_integers(quantise_tables(quantised)))
    wanted = file_outputs(file, samples.kept) or ()
    names = [value.name for value in filled.graph.output]
    exact = [
        {
            name: array.astype(np.float32) if array.dtype.kind == "f" else array
            for name, array in zip(names, outputs, strict=True)
        }
        for outputs in wanted
    ]
    return (
        filled,
        name,
        replace(
            fidelity,
            laws={**fidelity.laws, **found.laws},
            left_out=(*fidelity.left_out, *found.left_out),
            **_measure(exact, filled, samples, drawn, count_quantised(file)),
        ),
    )


def _compare_with_file(
    file: ModelProto,
    model: ModelProto,
    first: Sequence[Feeds],
    seed: int,
    in_half: bool,
    converted: ConvertedModel | None,
) -> FileCheck | None:
    """Compare outputs of a ``file`` and of the float ``model`` made from it, on several samples.

    The samples are the calibration samples ``first``, then random ones. The file is that from which
    ONNX was ``converted``, if it was.
    """
    run = partial(file_outputs, file) if converted is None else converted.reference
    replaced = "" if converted is None else converted.replaced
    for draw in (draw_feeds, default_feeds):
        feeds = [*first, *draw(model, seed, SAMPLES)][:SAMPLES]
        wanted = run(feeds)
        found = None if wanted is None else file_outputs(model, feeds)
        if wanted is not None and found is not None:
            fused = file_outputs(file, feeds, optimised=True) if in_half else None
            theirs = 0 if fused is None else compare_outputs(wanted, fused, model).beyond
            return replace(compare_outputs(wanted, found, model), fused=theirs, replaced=replaced)
    return None


def _choose_precision(
    file: ModelProto,
    widened: _Imported,
    shapes: Mapping[str, Sequence[int]],
    seed: int,
    facts: Mapping[str, Any],
) -> _Imported:
    """Return the given model, which is widened to float32, or one in half precision.

    The half-precision model is used only if the widened one differs from the file by more than a
    step and the other does not. Its half-precision operators run on the CPU.
    """
    _, fidelity = widened
    if fidelity is None or fidelity.file is None or not fidelity.file.beyond:
        return widened
    try:
        steps = passes(file, shapes)
        other = _import_quantised(
            file, file, apply(steps, file), steps, seed, {**facts, "widened": False}
        )
    except (InputError, PassError):
        return widened
    right = other[1] is not None and other[1].file is not None and not other[1].file.beyond
    return other if right else widened


_Imported = tuple[ModelProto, Fidelity | None]
"""Model after the passes, and its comparison with the file; None if that does not run."""


class _CheckedImport(NamedTuple):
    """Imported integer model with the result of its comparison with the user's file.

    ``integer`` and ``file`` are as in :class:`Fidelity`.
    """

    model: ModelProto
    integer: float
    file: FileCheck

    @property
    def right(self) -> bool:
        """True if the imported model's outputs are as right as the file's.

        They are within a step of the file's, or equal ONNX Runtime's integers.
        """
        return not (self.file.beyond and self.integer)


def _import_quantised(
    file: ModelProto,
    model: ModelProto,
    prepared: ModelProto,
    steps: Sequence[Pass],
    seed: int,
    facts: Mapping[str, Any],
) -> _Imported:
    """Return the imported model of a file that is quantised already, wholly or partly.

    The model is compared with its file if it accepts inputs drawn from ``seed``. A pass that may
    change rounding is omitted only if the result is wrong with it and right without it.
    """
    try:
        faithful, fidelity = compare_prepared(
            model, prepared, steps, lambda m: trial_feed(m, seed), integers=True
        )
        checked = _check_integer_model(file, quantise_tables(integer_biases(faithful)), seed)
    except InputError:
        checked = None
    if checked is None:
        return quantise_tables(integer_biases(prepared)), None
    left_out = fidelity.left_out
    kept = [step for step in steps if step.__name__ not in left_out]
    right = checked.right or all(
        differ_by_ties(model, faithful, feed) for feed in draw_feeds(faithful, seed)
    )
    for name in dict.fromkeys(
        step.__name__ for step in kept if step.__name__ in ROUNDING and not right
    ):
        without = apply([step for step in kept if step.__name__ != name], model)
        other = _check_integer_model(file, quantise_tables(integer_biases(without)), seed)
        if other is not None and other.right:
            checked = other
            left_out = (*left_out, name)
            break
    found = replace(
        fidelity, integer=checked.integer, file=checked.file, left_out=left_out, **facts
    )
    return checked.model, found


def _check_integer_model(file: ModelProto, model: ModelProto, seed: int) -> _CheckedImport | None:
    """Compare the outputs of a quantised ``file`` and of the integer ``model`` made from it.

    Returns None if the file rejects inputs drawn from ``seed``. Raises PassError if ONNX Runtime
    runs the file but not the model.
    """
    for draw in (draw_feeds, default_feeds):
        feeds = list(draw(model, seed, SAMPLES))
        plain, fused = (
            file_outputs(file, feeds, optimised=optimised) for optimised in (False, True)
        )
        ours = file_outputs(model, feeds, optimised=True)
        if plain is None or fused is None:
            continue
        if ours is None:
            raise PassError(
                "ONNX Runtime does not run what passes make of the model; please "
                "report it with the model"
            )
        pairs = [
            pair for samples in zip(fused, ours, strict=True) for pair in zip(*samples, strict=True)
        ]
        integer = round_share(
            max((difference(one, other.astype(one.dtype)) for one, other in pairs), default=0.0)
        )
        check = replace(
            compare_outputs(plain, ours, model), fused=compare_outputs(plain, fused, model).beyond
        )
        if check.beyond:
            check = replace(check, ties=is_explained_by_ties(file, model, feeds))
        if check.beyond and not integer:
            check = replace(check, optimiser=own_optimiser(file, feeds, plain, model))
        return _CheckedImport(model, integer, check)
    return None


LEFT_FLOAT = "it works on a tensor that loses too much accuracy in int8 (--quantise auto)"
"""Remark on a node that the search for the most accurate quantisation leaves in float."""


def package_of(
    model: ModelProto,
    source: str,
    fidelity: Fidelity | None = None,
    state: Pairs = NO_STATE,
    initial: Feeds = NO_FEEDS,
    in_float: Collection[str] = (),
) -> Package:
    """Build the package of a quantised, prepared model.

    ``source`` is its name in reports, ``state`` has outputs by the input whose next value they are,
    and ``initial`` the first values of inputs, where they are not zeros. The nodes named
    ``in_float`` were not quantised on purpose. The result is deterministic.
    """
    graph = import_graph(model)
    quantised = fidelity is None or fidelity.integer is not None
    kept = KeptNodes(model, fidelity.left_out if fidelity else (), quantised, is_quantised_whole)
    pairs = tuple(pair_state(graph, *pair, initial.get(pair[0])) for pair in state.items())
    nodes = (
        replace(node, remark=LEFT_FLOAT) if node.name in in_float and not node.integer else node
        for node in kept.explain(graph.nodes)
    )
    graph = replace(graph, nodes=tuple(nodes), state=pairs)
    embedded, rewritten = integer_clamps(model, graph)
    return build_package(
        graph, annotate(graph), define(embedded, graph), rewritten, source, fidelity
    )
