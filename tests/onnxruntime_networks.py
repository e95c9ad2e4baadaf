"""Compare ONNX Runtime sessions on the accelerator with dla's own runs, for built-in networks.

``python -m tests.onnxruntime_networks [NAME ...]`` prints a line for each network and file: the
file as built, and the integer model that dla makes of it. It compares outputs with those of
``byoc.host.runtime``, the integer model's also with those of the CPU provider, and the nodes that
the session places on the accelerator with those of the partition.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from byoc.options import DEFAULTS
from dla import ort
from dla_sim.presets import load_hardware
from experiments.models import MODELS
from experiments.running.given import Given
from experiments.running.inference import open_runtime
from experiments.running.network import load, network_feeds

LARGEST = 100_000_000
"""Largest file in bytes."""


def devices():
    """Register the provider once and return its device."""
    found = [one for one in onnxruntime.get_ep_devices() if one.ep_name == ort.get_ep_name()]
    if not found:
        path = ort.get_library_path()
        onnxruntime.register_execution_provider_library(ort.get_ep_name(), path)
        return devices()
    return found


def settings(**entries):
    """Return session options under which ONNX Runtime's integer operators are exact."""
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = 1
    made.log_severity_level = 3
    known = {
        "session.qdqisint8allowed": "1",
        "session.record_ep_graph_assignment_info": "1",
        **entries,
    }
    for key, value in known.items():
        made.add_session_config_entry(key, value)
    return made


def open_session(path, options, entries=None, optimise=True):
    """Return a session of a file on the accelerator."""
    made = settings(**entries or {})
    if not optimise:
        made.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    made.add_provider_for_devices(devices(), dict(options))
    # ONNX Runtime before 1.32 tries the CPU after an error, and then reports another one
    return onnxruntime.InferenceSession(path, made, enable_fallback=False)


def placed(session):
    """Return the names of the nodes that a session places on the accelerator."""
    return {
        node.name
        for part in session.get_provider_graph_assignment_info()
        if part.ep_name == ort.get_ep_name()
        for node in part.get_nodes()
    }


def partitioned(compiled, names):
    """Return the names of a model's nodes that the partition places on the accelerator alone."""
    on = {"dla": set(), "cpu": set()}
    for place in compiled.partition.placement:
        on[place.on] |= names & {*place.onnx_nodes}
    return on["dla"] - on["cpu"], on["cpu"] - on["dla"]


def compare(path, options, integer):
    """Return what differs between a session and dla's own run of one file, as words."""
    network = load(Given(str(path)))
    hardware = load_hardware(options.get("preset"), isa=options.get("isa"))
    compiled, runtime = open_runtime(network, hardware, DEFAULTS)
    feeds = network_feeds(network, None, 0, DEFAULTS)
    start = time.perf_counter()
    session = open_session(str(path), options)
    outputs = dict(zip(_names(session), session.run(None, dict(feeds)), strict=True))
    words = [f"{time.perf_counter() - start:.1f} s"]
    words.append(f"ours {_differing(runtime.run(feeds).outputs, outputs)}")
    if integer:
        plain = onnxruntime.InferenceSession(path, settings(), providers=["CPUExecutionProvider"])
        cpu = dict(zip(_names(plain), plain.run(None, dict(feeds)), strict=True))
        words.append(f"CPU {_differing(cpu, outputs)}")
    exact = open_session(str(path), options, optimise=False)
    nodes = onnx.load(path).graph.node
    ours, cpu_nodes = partitioned(compiled, {node.name for node in nodes})
    found = placed(exact)
    missing = ours - found
    shared = missing & list_shared(nodes, cpu_nodes)
    words.append(
        f"{len(found)} nodes, missing {len(missing - shared)}, extra {len(found & cpu_nodes)}"
        + f", {len(shared)} shared DequantizeLinear on the CPU" * bool(shared)
    )
    return " | ".join(words)


def list_shared(nodes, cpu_nodes):
    """Return the names of DequantizeLinear nodes whose results a node on the CPU reads."""
    read = {name for node in nodes if node.name in cpu_nodes for name in node.input}
    return {
        node.name for node in nodes if node.op_type == "DequantizeLinear" and node.output[0] in read
    }


def _names(session):
    return [one.name for one in session.get_outputs()]


def _differing(one, other):
    count = sum(np.count_nonzero(one[name] != other[name]) for name in other)
    return f"{count:,} of {sum(array.size for array in other.values()):,} differ"


def main(names, options):
    """Print a line for each network and file."""
    for name in names or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            model = MODELS[name].build(0)
            if model.ByteSize() > LARGEST:
                print(f"{name}: {model.ByteSize():,} bytes, too large", flush=True)
                continue
            given = Path(folder) / f"{name}.onnx"
            onnx.save(model, given)
            integer = Path(folder) / f"{name}-integer.onnx"
            for path, kind in ((given, "file"), (integer, "integer")):
                try:
                    if kind == "integer":
                        onnx.save(load(Given(str(given))).package.model, integer)
                    print(f"{name} {kind}: {compare(path, options, kind == 'integer')}", flush=True)
                except Exception as error:
                    print(f"{name} {kind}: {type(error).__name__} {str(error)[:300]}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:], {"isa": "v4"})
