"""``dla generate``: tokens of small decoders against ONNX Runtime, figures, and bad input."""

from __future__ import annotations

import csv
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import dla
from byoc.decoding.decoding import find_decoder, merge_ranges
from byoc.decoding.positions import join_positions
from experiments.generation.generating import GenerationRun
from experiments.models.decoders import DECODERS, gpt2_decoder, llama_decoder
from isa.errors import InputError
from tests.experiments.command_line import dla as run_dla
from tests.rotation import choose_cases

SMALL = ("gpt2-decoder-small", "llama-decoder-small")
ISAS = ("v4", "v5")


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )


def _generate(model: onnx.ModelProto, prompt: list[int], count: int) -> list[int]:
    """Return the greedy tokens of a float decoder that computes all positions again each time."""
    session = _session(model)
    inputs = {value.name: value for value in session.get_inputs()}
    empty = {
        name: np.zeros([0 if isinstance(size, str) else size for size in value.shape], np.float32)
        for name, value in inputs.items()
        if name.startswith("past")
    }
    row = list(prompt)
    for _ in range(count):
        places = np.arange(len(row))[np.newaxis]
        feeds: dict[str, NDArray[Any]] = {
            "input_ids": np.array([row]),
            "position_ids": places,
            "attention_mask": np.ones_like(places),
        }
        feeds = {name: array for name, array in feeds.items() if name in inputs}
        logits: Any = session.run(["logits"], {**feeds, **empty})[0]
        row.append(int(logits[0, -1].argmax()))
    return row[len(prompt) :]


@pytest.mark.parametrize("name", choose_cases(SMALL, 2))
def test_tokens_equal_those_of_onnx_runtime_on_the_integer_model(name: str) -> None:
    found = dla.generate(name, prompt_tokens=6, tokens=12, seed=3)
    assert len(found.tokens) == 12
    assert found.tokens == found.oracle_tokens
    assert (found.different, found.mismatches) == (0, 0)
    assert len(set(found.tokens)) > 3
    model = DECODERS[name][1](3)
    assert list(found.float_tokens) == _generate(model, list(found.prompt), 12)
    # int8 follows the float model as long as no two logits are close
    assert found.float_agreement >= 4


@pytest.mark.parametrize(
    "case", choose_cases([f"{name} {isa}" for name in SMALL for isa in ISAS], 4)
)
def test_every_position_reads_the_whole_cache_once_and_writes_the_new_row(case: str) -> None:
    """On ideal memory, a position reads nothing more than one row; v5 adds padding of atoms."""
    name, isa = case.split()
    found = dla.generate(name, prompt_tokens=5, tokens=6, prefill=(2,), isa=isa)
    prompt, shorter, *steps = found.steps
    assert [(prompt.length, prompt.position), (shorter.length, shorter.position)] == [
        (5, 0),
        (2, 0),
    ]
    assert (prompt.phase, shorter.phase) == ("prefill", "prefill")
    assert shorter.cycles < prompt.cycles
    assert [step.position for step in steps] == [5, 6, 7, 8, 9]
    row = steps[0].cache_written_bytes
    heads, depth, layers = {"gpt2": (4, 16, 2), "llama": (2, 16, 2)}[name.split("-")[0]]
    assert row == 2 * layers * heads * depth
    assert [step.cache_read_bytes for step in steps] == [row * step.position for step in steps]
    if isa == "v4":
        assert np.diff([step.read_bytes for step in steps]).tolist() == [row] * 4
    assert all(step.cycles > 0 and step.phase == "decode" for step in steps)
    clock = found.machine["timing"]["clock_hz"]
    assert all(step.seconds == (step.cycles + step.cpu_cycles) / clock for step in steps)


def test_one_wrong_row_of_the_cache_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = GenerationRun.advance

    def forget(self: GenerationRun, length: int) -> None:
        name = next(iter(self._cache))
        self._cache[name] = -self._cache[name]
        whole(self, length)

    monkeypatch.setattr(GenerationRun, "advance", forget)
    assert dla.generate(_small(), prompt_tokens=4, tokens=3).mismatches > 0


def test_equal_requests_give_equal_results() -> None:
    first, second = (dla.generate(_small(), prompt_tokens=4, tokens=3).content() for _ in range(2))
    assert first == second


@pytest.fixture(scope="module")
def usual() -> tuple[int, ...]:
    """Tokens of the first decoder on the default machine."""
    return dla.generate(SMALL[0], prompt_tokens=4, tokens=4).tokens


@pytest.mark.parametrize("isa", choose_cases(ISAS, 2))
def test_other_machines_generate_the_same_tokens(isa: str, usual: tuple[int, ...]) -> None:
    settings = {"sram_bytes": "16KiB"}
    found = dla.generate(SMALL[0], prompt_tokens=4, tokens=4, isa=isa, settings=settings)
    assert found.mismatches == 0
    assert found.tokens == usual


def _rename(model: onnx.ModelProto, renamed: dict[str, str]) -> onnx.ModelProto:
    graph = model.graph
    for value in (*graph.input, *graph.output):
        value.name = renamed.get(value.name, value.name)
    for node in graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = renamed.get(name, name)
    return model


def test_exports_with_other_names_and_a_free_batch_run(tmp_path: Path) -> None:
    model = llama_decoder(0, 1, width=32, heads=2, groups=1, hidden=64, words=50)
    renamed = {
        f"{given}.0.{part}": f"{other}_{part}_0"
        for given, other in (("past_key_values", "past"), ("present", "present"))
        for part in ("key", "value")
    }
    model = _rename(model, renamed)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, tmp_path / "d.onnx")
    np.save(tmp_path / "p.npy", np.array([3, 49, 0], np.int32))
    found = dla.generate(tmp_path / "d.onnx", prompt=tmp_path / "p.npy", tokens=4)
    assert (found.prompt, found.different, found.mismatches) == ((3, 49, 0), 0, 0)


def test_a_decoder_in_half_precision_runs_in_float32() -> None:
    convert = pytest.importorskip("onnxruntime.transformers.float16").convert_float_to_float16
    model = convert(_small(), keep_io_types=False, disable_shape_infer=True)
    found = dla.generate(model, prompt_tokens=4, tokens=3)
    assert (found.different, found.mismatches) == (0, 0)


def test_the_command_prints_counts_and_writes_json_and_csv(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(_small(), tmp_path / "d.onnx")
    words = [
        "generate",
        tmp_path / "d.onnx",
        "--prompt-tokens",
        "4",
        "--tokens",
        "3",
        "--prefill",
        "2",
    ]
    files = ["--json", tmp_path / "g.json", "--csv", tmp_path / "g.csv"]
    done = run_dla(capsys, *words, *files)
    assert done.status == 0
    assert "3 tokens compared with ONNX Runtime on the integer model, 0 differ" in done.out
    content = json.loads((tmp_path / "g.json").read_text())
    assert (content["tokens_compared"], content["tokens_different"]) == (3, 0)
    with (tmp_path / "g.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["phase"] for row in rows] == ["prefill", "prefill", "decode", "decode"]
    assert [step["cycles"] for step in content["steps"]] == [int(row["cycles"]) for row in rows]


def _repeat_past(model: onnx.ModelProto) -> onnx.ModelProto:
    """Make the new keys the first operand of their Concat."""
    node = next(node for node in model.graph.node if node.op_type == "Concat")
    node.input[:] = list(node.input)[::-1]
    return model


def _drop(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    return _rename(model, {name: f"{name}_x"})


def _small() -> onnx.ModelProto:
    return gpt2_decoder(0, 1, width=16, heads=2, words=20, positions=8)


def _fix_sizes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Make all free axes of a decoder's inputs and outputs 4."""
    for value in (*model.graph.input, *model.graph.output):
        for axis in value.type.tensor_type.shape.dim:
            axis.dim_value = axis.dim_value or 4
    return model


BAD = {
    "no cache": (lambda: dla.MODELS["digits-cnn"].build(0), {}, "no cache of keys and values"),
    "order": (lambda: _repeat_past(_small()), {}, "is not 'past_key_values.0.key' with new"),
    "tokens": (lambda: _drop(_small(), "input_ids"), {}, "there is no 'input_ids'"),
    "input": (lambda: _drop(_small(), "position_ids"), {}, "the meaning of input 'position_ids_x'"),
    "positions": (_small, {"prompt_tokens": 6, "tokens": 4}, "need 9 positions, the decoder has 8"),
    "drawn": (_small, {"prompt_tokens": 10**11}, "need 100000000063 positions, the decoder has 8"),
    "memory": ("llama-decoder-small", {"tokens": 10**9}, "a cache of 1000000031 positions: too"),
    "word": (_small, {"prompt": [3, 20], "tokens": 1}, "token 20 at 1 is no word"),
    "negative": (_small, {"prompt": [-1], "tokens": 1}, "token -1 at 0 is no word"),
    "short": (_small, {"prompt": [1], "prompt_tokens": 2}, "has 1 tokens"),
    "prefill": (_small, {"prompt_tokens": 2, "tokens": 1, "prefill": (3,)}, "give 1 to 2"),
    "numerics": (_small, {"settings": {"numerics": "fixed"}}, "numerics is fixed"),
    "zero": (_small, {"tokens": 0}, "tokens is 0; it is 1 or more"),
    "fixed shape": (lambda: _fix_sizes(_small()), {}, "has 0 free axes behind its batch"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_in_one_line(case: str) -> None:
    build, keywords, message = BAD[case]
    with pytest.raises(InputError, match=message) as found:
        dla.generate(build() if callable(build) else build, **keywords)  # type: ignore[arg-type]
    assert "\n" not in str(found.value)


def test_a_prompt_file_without_tokens_is_named_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "p.npy"
    with pytest.raises(InputError, match=r"p\.npy: no such file"):
        dla.generate(_small(), prompt=path, tokens=1)
    for array in map(np.array, ([0.5], [[0, 0], [0, 0]], np.zeros(0, np.int64), 0.5)):
        np.save(path, array)
        with pytest.raises(InputError, match="give a row of tokens, integers"):
            dla.generate(_small(), prompt=path, tokens=1)


def test_dla_run_names_the_command_for_a_decoder() -> None:
    with pytest.raises(InputError, match="'dla generate gpt2-decoder' runs it"):
        dla.run("gpt2-decoder")


def _model_of_shape(numbers: list[int], fill: float, size: int) -> onnx.ModelProto:
    from onnx import TensorProto, helper, numpy_helper

    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, size])
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    constants = {"shape": np.array(numbers, np.int64), "mask": np.full(size, fill, np.float32)}
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    return helper.make_model(helper.make_graph([node], "g", [value], [], tensors))


def test_a_positional_model_extends_sizes_and_masks_to_other_positions() -> None:
    pair = [_model_of_shape([1, 2 * size], -5.0, size) for size in (4, 7)]
    joint = join_positions(pair, (4, 7))
    found = {one.name: onnx.numpy_helper.to_array(one) for one in joint.bind(9).graph.initializer}
    assert found["shape"].tolist() == [1, 18]
    assert found["mask"].tolist() == [-5.0] * 9
    assert joint.bind(9).graph.input[0].type.tensor_type.shape.dim[1].dim_value == 9


def test_models_that_differ_otherwise_are_refused() -> None:
    first, second = _model_of_shape([1, 8], -5.0, 4), _model_of_shape([1, 14], -4.0, 7)
    with pytest.raises(InputError, match="constant 'mask' is not a linear function"):
        join_positions((first, second), (4, 7))
    second = _model_of_shape([2, 9], -5.0, 7)
    with pytest.raises(InputError, match="'shape' is not a linear function"):
        join_positions((first, second), (4, 7))


def test_tensors_of_a_group_share_a_range_in_all_models() -> None:
    decoder = find_decoder(_small(), "small")
    one, two = np.float32(1), np.float32(2)
    models = [decoder.model, decoder.model]
    past, new, present = "past_key_values.0.key", "block0_k", "present.0.key"
    observed = [{past: (-one, one)}, {new: (-two, two), "logits": (one, one)}]
    found = merge_ranges(models, observed, [(past, new, present)])
    assert found[past] == found[new] == (-two, two)
    assert found["logits"] == (one, one)


PROMPTS = range(32, 96, 8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "prompt"), choose_cases([*product(("gpt2-decoder", "llama-decoder"), PROMPTS)], 16)
)
def test_tokens_of_whole_decoders_are_those_of_onnx_runtime(name: str, prompt: int) -> None:
    """A turn computes 8 positions of a decoder; all turns compute 32 to 95 of both."""
    found = dla.generate(name, prompt_tokens=prompt, tokens=9)
    assert [step.position for step in found.steps] == [0, *range(prompt, prompt + 8)]
    assert (len(found.tokens), found.different, found.mismatches) == (9, 0, 0)
