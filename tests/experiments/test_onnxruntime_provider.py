"""The execution provider of ONNX Runtime: placement, bits, contexts, profiles and errors."""

import ctypes
import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from dla import ort
from experiments.models import MODELS
from experiments.running.given import Given
from experiments.running.inference import run
from experiments.running.network import load
from experiments.running.provider import FusedRegion, read_context
from isa.errors import InputError
from tests.byoc.small_models import ModelBuilder
from tests.onnxruntime_networks import compare, devices, open_session, placed, settings

IMAGE = np.random.default_rng(3).standard_normal((1, 1, 8, 8), np.float32)
CPU_BETWEEN = {"isa": "v1"}
"""A machine on which some operators between two regions run on the CPU."""
WARNINGS = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Wconversion", "-Werror")


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The file of the network of digits, and its integer model."""
    folder = tmp_path_factory.mktemp("digits")
    onnx.save(MODELS["digits-cnn"].build(0), folder / "digits.onnx")
    package = load(Given(str(folder / "digits.onnx"))).package
    onnx.save(package.model, folder / "integer.onnx")
    return folder


@pytest.fixture(scope="module")
def expected(digits):
    return run(digits / "digits.onnx", isa="v4", inputs=IMAGE)


@pytest.mark.parametrize(
    ("file", "machine"),
    [("digits.onnx", {}), ("integer.onnx", {}), ("integer.onnx", CPU_BETWEEN)],
)
def test_a_session_places_and_computes_what_dla_does(digits, file, machine):
    words = compare(digits / file, machine, file == "integer.onnx")
    assert "ours 0 of 10 differ" in words
    assert "missing 0, extra 0" in words
    assert ("CPU 0 of 10 differ" in words) == (file == "integer.onnx")


def test_two_sessions_on_two_machines_run_in_threads(digits):
    path = str(digits / "digits.onnx")
    sessions = [open_session(path, {"isa": "v4"}), open_session(path, {"schedule": "seed"})]
    (name,) = [one.name for one in sessions[0].get_inputs()]
    feeds = [{name: np.full((1, 1, 8, 8), number, np.float32)} for number in range(8)]
    expected = [run(path, inputs=feed).outputs["logits"] for feed in feeds]
    with ThreadPoolExecutor(4) as pool:
        for session in sessions:
            found = pool.map(lambda feed, one=session: one.run(None, feed)[0], feeds)
            assert all(map(np.array_equal, found, expected))


@pytest.mark.parametrize("embedded", ["0", "1"])
def test_an_exported_context_runs_without_its_model(digits, tmp_path, embedded):
    file = tmp_path / "context.onnx"
    export = {"ep.context_enable": "1", "ep.context_file_path": str(file)}
    export |= {"ep.context_embed_mode": embedded}
    session = open_session(str(digits / "digits.onnx"), CPU_BETWEEN, export)
    (name,) = [one.name for one in session.get_inputs()]
    given = {name: IMAGE}
    assert [node.op_type for node in onnx.load(file).graph.node].count("EPContext") == 2
    assert len(list(tmp_path.glob("*.bin"))) == (0 if embedded == "1" else 2)
    loaded = open_session(str(file), {})
    assert np.array_equal(loaded.run(None, given)[0], session.run(None, given)[0])
    with pytest.raises(Exception, match=r"region0.* is for another machine: .* has isa = v1"):
        open_session(str(file), {"isa": "v4"})


def test_a_damaged_context_is_one_error(digits, tmp_path):
    file = tmp_path / "context.onnx"
    export = {"ep.context_enable": "1", "ep.context_file_path": str(file)}
    open_session(str(digits / "digits.onnx"), {"isa": "v4"}, export)
    (context,) = tmp_path.glob("*.bin")
    content = context.read_bytes()
    other = hashlib.sha256(b"{}\n").digest() + b"{}\n"
    with pytest.raises(InputError, match=r"^net_0.bin: written by another dla; export the model"):
        read_context(other, "net_0.bin")
    damaged = [content[:-9], b"x" + content]
    for place in np.linspace(0, len(content) - 1, 400, dtype=int):
        damaged.append(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
    for one in damaged:
        with pytest.raises(InputError, match=r"^net_0.bin: no context of dla, truncated or corr"):
            read_context(one, "net_0.bin")
    context.write_bytes(b"")
    with pytest.raises(Exception, match=f"{context.name}: no context of dla, truncated"):
        open_session(str(file), {})
    context.unlink()
    with pytest.raises(Exception, match=context.name):
        open_session(str(file), {})
    model = onnx.load(file)
    (attribute,) = [one for one in model.graph.node[0].attribute if one.name == "ep_cache_context"]
    attribute.s = b"data:AAAAA"
    onnx.save(model, file)
    with pytest.raises(Exception, match=r"context.onnx: no context of dla, truncated"):
        open_session(str(file), {})


def test_a_context_is_in_the_folder_of_its_model(digits, tmp_path):
    """A model from elsewhere must not make the provider read files of other folders."""
    inner = tmp_path / "inner"
    inner.mkdir()
    file = inner / "context.onnx"
    export = {"ep.context_enable": "1", "ep.context_file_path": str(file)}
    open_session(str(digits / "digits.onnx"), {"isa": "v4"}, export)
    (context,) = inner.glob("*.bin")
    (tmp_path / context.name).write_bytes(context.read_bytes())
    model = onnx.load(file)
    (attribute,) = [one for one in model.graph.node[0].attribute if one.name == "ep_cache_context"]
    for content in (f"../{context.name}", f"x/../../{context.name}", str(context), "/etc/hosts"):
        attribute.s = content.encode()
        onnx.save(model, file)
        with pytest.raises(Exception, match="outside of the model's folder; export") as caught:
            open_session(str(file), {})
        assert len(str(caught.value).strip().splitlines()) == 1
    (inner / "below").mkdir()
    context.rename(inner / "below" / context.name)
    attribute.s = f"below/{context.name}".encode()
    onnx.save(model, file)
    open_session(str(file), {})


def test_profiling_events_have_the_cycles_of_dla_run(digits, expected, tmp_path):
    options = settings()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    options.add_provider_for_devices(devices(), {"isa": "v4"})
    session = onnxruntime.InferenceSession(digits / "digits.onnx", options)
    for _ in range(2):
        session.run(None, {session.get_inputs()[0].name: IMAGE})
    events = json.loads(Path(session.end_profiling()).read_text())
    own = [event for event in events if "cycles" in event["args"]]
    assert [int(event["args"]["cycles"]) for event in own] == [expected.report.totals.cycles] * 2
    nodes = [event for event in events if event["args"].get("provider") == ort.get_ep_name()]
    node = next(event for event in nodes if event["name"] == f"{own[0]['name']}_kernel_time")
    assert (
        node["ts"] <= own[0]["ts"] <= own[0]["ts"] + own[0]["dur"] <= node["ts"] + node["dur"] + 1
    )


def test_options_are_those_of_commands(digits, expected):
    asked = {"isa": "v4", "set": "pe.oc=8\nsram_bytes=64KiB", "schedule": "seed", "no-cache": "yes"}
    session = open_session(str(digits / "digits.onnx"), asked)
    given = {session.get_inputs()[0].name: IMAGE}
    assert np.array_equal(session.run(None, given)[0], expected.outputs["logits"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"help": "yes"}, "No such option: --help"),
        ({"isa": ""}, "unknown ISA variant ''"),
        ({"presett": "x"}, "No such option: --presett (Possible options: --preset"),
        ({"preset": "nonesuch"}, "unknown preset 'nonesuch'"),
        ({"schedule": "fast"}, "'fast' is not one of 'seed', 'default'"),
        ({"seed": "x"}, "unable to parse string as an integer"),
        ({"set": "pe.oc=none"}, "setting pe.oc=none"),
        ({"strict": "yes", **CPU_BETWEEN}, "run on the CPU"),
        ({"model": "nonesuch.onnx"}, "nonesuch"),
    ],
)
def test_a_wrong_option_is_one_error(digits, options, said):
    with pytest.raises(Exception, match="FAIL") as caught:
        open_session(str(digits / "digits.onnx"), options)
    assert said in str(caught.value)
    assert len(str(caught.value).strip().splitlines()) == 1


def test_an_export_leaves_the_files_of_an_older_one(digits, tmp_path):
    """ONNX Runtime refuses to replace the model, but only after the export of the regions."""
    export = {"ep.context_enable": "1", "ep.context_file_path": str(tmp_path / "context.onnx")}
    open_session(str(digits / "digits.onnx"), {"isa": "v4"}, export)
    (older,) = tmp_path.glob("*.bin")
    content = older.read_bytes()
    with pytest.raises(Exception, match="exists already"):
        open_session(str(digits / "digits.onnx"), {"isa": "v5"}, export)
    assert older.read_bytes() == content


def test_a_model_in_memory_needs_the_name_of_its_file(digits, expected, tmp_path):
    content = (digits / "digits.onnx").read_bytes()
    with pytest.raises(Exception, match="the session got bytes; give InferenceSession the file"):
        open_session(content, {})
    export = {"ep.context_enable": "1", "ep.context_file_path": str(tmp_path / "context.onnx")}
    session = open_session(content, {"model": str(digits / "digits.onnx"), "isa": "v4"}, export)
    assert len(list(tmp_path.glob("context_*.bin"))) == 1
    found = session.run(None, {session.get_inputs()[0].name: IMAGE})[0]
    assert np.array_equal(found, expected.outputs["logits"])


def test_an_input_of_another_shape_is_one_error(tmp_path):
    """The shapes have the same number of bytes, and ONNX Runtime accepts both."""
    shape = [1, 3, "h", "w"]
    conv = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy"
    ]
    weights = onnx.numpy_helper.from_array(np.ones((3, 3, 3, 3), np.float32), "w")
    graph = onnx.helper.make_graph([conv], "free", ends[:1], ends[1:], [weights])
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[opset], ir_version=10), tmp_path / "free.onnx"
    )
    session = open_session(str(tmp_path / "free.onnx"), {"shape": "x=1,3,8,16"})
    assert session.run(None, {"x": np.ones((1, 3, 8, 16), np.float32)})[0].shape == (1, 3, 8, 16)
    with pytest.raises(Exception, match=r"has the shape \[1, 3, 16, 8\]; the session was compiled"):
        session.run(None, {"x": np.ones((1, 3, 16, 8), np.float32)})


@pytest.mark.parametrize("optimise", [False, True])
def test_unused_nodes_leave_the_placement_as_it_is(tmp_path, optimise):
    """A Flatten without a consumer reads a tensor inside the region."""
    builder = ModelBuilder()
    inner = builder.dequantize(builder.input("x", (1, 4, 6, 6), "int8"), 0.05, 3)
    for kind in ("Relu", "Sigmoid"):
        before = inner
        found = builder.quantize(builder.node(kind, before), 0.05, -3, result=f"{kind}.out")
        inner = builder.dequantize(found, 0.05, -3)
    builder.node("Flatten", before)
    builder.output("Sigmoid.out", "int8")
    onnx.save(builder.model(), tmp_path / "unused.onnx")
    session = open_session(str(tmp_path / "unused.onnx"), {}, optimise=optimise)
    assert {"Relu", "Sigmoid"} < {name.rstrip("0123456789").title() for name in placed(session)}
    plain = onnxruntime.InferenceSession(tmp_path / "unused.onnx", settings())
    given = {"x": np.random.default_rng(1).integers(-128, 128, (1, 4, 6, 6)).astype(np.int8)}
    assert np.array_equal(session.run(None, given)[0], plain.run(None, given)[0])


def test_an_interrupted_run_is_an_error(digits, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    session = open_session(str(digits / "digits.onnx"), {})
    monkeypatch.setattr(FusedRegion, "run", interrupt)
    with pytest.raises(Exception, match="KeyboardInterrupt"):
        session.run(None, {session.get_inputs()[0].name: IMAGE})


def test_a_session_outlives_the_registration_of_the_library(digits, expected):
    session = open_session(str(digits / "digits.onnx"), {"isa": "v4"})
    given = {session.get_inputs()[0].name: IMAGE}
    onnxruntime.unregister_execution_provider_library(ort.get_ep_name())
    assert ort.get_ep_name() not in [one.ep_name for one in onnxruntime.get_ep_devices()]
    assert np.array_equal(session.run(None, given)[0], expected.outputs["logits"])
    del session
    again = open_session(str(digits / "digits.onnx"), {"isa": "v4"})
    assert np.array_equal(again.run(None, given)[0], expected.outputs["logits"])


def test_an_old_onnx_runtime_is_rejected_by_name():
    """The library sees ONNX Runtime 1.20, which has the tables of version 1 but not of 1.29."""
    said = []
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    create = ctypes.CFUNCTYPE(pointer, ctypes.c_int, text)(lambda _, words: said.append(words) or 1)
    table = (pointer * 1)(ctypes.cast(create, pointer))
    get = ctypes.CFUNCTYPE(pointer, ctypes.c_uint32)(
        lambda version: ctypes.addressof(table) if version == 1 else None
    )
    name = ctypes.CFUNCTYPE(pointer)(lambda: ctypes.cast(text(b"1.20.0"), pointer).value)
    base = (pointer * 2)(ctypes.cast(get, pointer), ctypes.cast(name, pointer))
    library = ctypes.PyDLL(ort.get_library_path())
    library.CreateEpFactories.restype = pointer
    count = ctypes.c_size_t(7)
    factories = (pointer * 1)()
    arguments = (base, None, factories, ctypes.c_size_t(1), ctypes.byref(count))
    assert library.CreateEpFactories(b"dla", *arguments) == 1
    assert said == [
        b"dla needs ONNX Runtime 1.29 or later, and this is 1.20.0; pip install -U onnxruntime"
    ]
    assert count.value == 0


def test_without_a_compiler_there_is_one_error(monkeypatch, tmp_path):
    monkeypatch.setenv("CC", "nonesuch")
    monkeypatch.delenv("DLA_NO_CACHE", raising=False)
    monkeypatch.setenv("DLA_CACHE_DIR", str(tmp_path))
    with pytest.raises(InputError, match=r"needs a C compiler \(nonesuch\); install it"):
        ort.get_library_path.__wrapped__()
    monkeypatch.setenv("CC", "false")
    with pytest.raises(InputError, match=r"false: .*must build shared C libraries"):
        ort.get_library_path.__wrapped__()
    assert not list(tmp_path.rglob("*.so"))


def test_the_sources_compile_without_a_warning(tmp_path):
    source = str(files("byoc.hooks.onnxruntime") / "provider.c")
    words = ["gcc", *WARNINGS, "-c", source, "-o", str(tmp_path / "provider.o")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


SANITIZED = """
import sys
from dla import ort
ort._FLAGS = (*ort._FLAGS, "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
import numpy as np
from tests.onnxruntime_networks import open_session
given = {"image": np.ones((1, 1, 8, 8), np.float32)}
export = {"ep.context_enable": "1", "ep.context_file_path": sys.argv[2]}
first = open_session(sys.argv[1], {"isa": "v1"}, export).run(None, given)[0]
assert np.array_equal(open_session(sys.argv[2], {}).run(None, given)[0], first)
try:
    open_session(sys.argv[1], {"isa": "none"})
except Exception as error:
    print(error)
"""


@pytest.mark.slow
def test_the_library_runs_under_sanitizers(digits, tmp_path):
    names = ["libasan.so", "libubsan.so"]
    found = [["gcc", f"-print-file-name={name}"] for name in names]
    loaded = [subprocess.check_output(words, text=True).strip() for words in found]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(loaded),
        "ASAN_OPTIONS": "detect_leaks=0",
        "DLA_CACHE_DIR": str(tmp_path),
    }
    words = [sys.executable, "-c", SANITIZED, str(digits / "digits.onnx"), str(tmp_path / "c.onnx")]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "FAIL" in done.stdout
