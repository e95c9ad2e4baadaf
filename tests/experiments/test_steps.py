"""Networks with state: every step equals LiteRT on the file as given, which carries the state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dla
from byoc.package.interface import Interface
from byoc.runtimes import litert
from tests.experiments.command_line import dla as command
from tests.tflite.streaming import KINDS

pytestmark = pytest.mark.usefixtures("fresh_folder")

Capture = pytest.CaptureFixture[str]
FILE = Path("net.tflite")
RESOLVERS: dict[str, litert.Resolver] = {"fixed": "reference", "onnxruntime": "default"}


def frames(steps: int, seed: int = 0) -> NDArray[np.int8]:
    """Drawn inputs of the network in FILE, along a first axis."""
    made = litert.interpreter(FILE.read_bytes())
    shape = made.get_input_details()[0]["shape"]
    return np.random.default_rng(seed).integers(-128, 128, (steps, *shape)).astype(np.int8)


def scores(given: NDArray[np.int8], resolver: litert.Resolver = "reference") -> NDArray[Any]:
    """The outputs of LiteRT on the file, one inference after another."""
    made = litert.interpreter(FILE.read_bytes(), resolver)
    found = []
    for frame in given:
        made.set_tensor(made.get_input_details()[0]["index"], frame)
        made.invoke()
        found.append(made.get_tensor(made.get_output_details()[0]["index"]))
    return np.stack(found)


def write(kind: str) -> str:
    """Write the network to FILE and return the name of its output."""
    FILE.write_bytes(KINDS[kind]())
    return str(litert.interpreter(FILE.read_bytes()).get_output_details()[0]["name"])


@pytest.mark.parametrize("numerics", RESOLVERS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_equals_litert(kind: str, numerics: str) -> None:
    output = write(kind)
    given = frames(40)
    wanted = scores(given, RESOLVERS[numerics])
    found = dla.run(FILE, steps=40, inputs=given, settings={"numerics": numerics})
    assert np.array_equal(found.outputs[output], wanted)
    assert len(np.unique(wanted)) > 2
    check = found.report.check
    assert check.mismatches == 0
    assert check.outputs is not None
    assert check.outputs.differences == 0
    assert check.tensors >= 40


@pytest.mark.parametrize("kind", ["convolutional", "recurrent"])
def test_a_session_steps_and_resets(kind: str) -> None:
    output = write(kind)
    given = frames(6)
    wanted = scores(given)
    session = dla.Session(FILE, settings={"numerics": "fixed"})
    for _ in range(2):
        found = [session.step(frame)[output] for frame in given]
        assert np.array_equal(np.stack(found), wanted)
        assert session.steps == 6
        session.reset()
    initial = session.state
    name, value = next(iter(initial.items()))
    session.step({next(iter(set(session.inputs) - {*initial})): given[0], name: value})
    assert any(not np.array_equal(session.state[name], initial[name]) for name in initial)
    outputs = session.step(given[0]).values()
    kept = session.state.values()
    assert not any(np.shares_memory(one, other) for one in outputs for other in kept)


def test_inferences_without_steps_start_with_the_initial_state() -> None:
    output = write("convolutional")
    given = frames(3)
    found = dla.run(FILE, inputs=list(given), settings={"numerics": "fixed"})
    assert found.report.steps is not None
    assert found.report.steps.count == 1
    assert found.report.check.mismatches == 0
    wanted = np.concatenate([scores(frame[np.newaxis]) for frame in given])
    assert np.array_equal(found.outputs[output], wanted)


def test_state_that_is_lost_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    write("recurrent")

    def forget(self: Interface, given: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
        return self.graph.initial_state

    monkeypatch.setattr(Interface, "next_state", forget)
    found = dla.run(FILE, steps=8, settings={"numerics": "fixed"})
    assert found.report.check.mismatches > 0


def test_a_package_carries_the_state(capsys: Capture) -> None:
    output = write("residual")
    given = frames(5)
    assert command(capsys, "compile", FILE, "-o", "net.dla").status == 0
    found = dla.run("net.dla", steps=5, inputs=given, settings={"numerics": "fixed"})
    assert np.array_equal(found.outputs[output], scores(given))
    assert found.report.check.mismatches == 0


def test_the_report_tells_the_steps(capsys: Capture) -> None:
    write("convolutional")
    np.save("frames.npy", frames(4))
    words = ("--input", "frames.npy", "--steps", 4, "--step-ms", 10, "--json", "r.json")
    found = command(capsys, "run", FILE, *words, "--set", "numerics=fixed", "--no-advice")
    assert found.status == 0, found.err
    assert "real-time factor" in found.out
    report = json.loads(Path("r.json").read_text(encoding="utf-8"))
    steps = report["steps"]
    assert steps["count"] == 4
    assert steps["first_cycles"] > steps["steady_cycles"] == report["end_to_end"]["cycles"]
    assert (
        steps["state_bytes"] == sum(state["nbytes"] for state in steps["state"]) == 4 * 8 + 3 * 16
    )
    milliseconds = steps["steady_cycles"] / report["timing"]["clock_hz"] * 1e3
    assert steps["real_time_factor"] == pytest.approx(milliseconds / 10)
    assert command(capsys, *report["command"].split()[1:], "--json", "r2.json").status == 0
    again = json.loads(Path("r2.json").read_text(encoding="utf-8"))
    assert (again["hashes"], again["steps"]) == (report["hashes"], steps)


def refused(capsys: Capture, *words: Any) -> str:
    """The line with which ``dla run`` ends."""
    found = command(capsys, "run", *words)
    assert found.status == 2
    assert found.err.count("\n") == 1
    return found.err


def test_steps_that_cannot_run_are_refused(capsys: Capture) -> None:
    assert "digits-cnn: it has no state" in refused(capsys, "digits-cnn", "--steps", 3)
    write("convolutional")
    np.save("frames.npy", frames(4))
    line = refused(capsys, FILE, "--input", "frames.npy", "--steps", 5)
    assert "they have 4 steps along their first axis, and 5 are asked for" in line
    assert "1,000,000,000 steps of net: too large" in refused(capsys, FILE, "--steps", 10**9)
    line = refused(capsys, FILE, "--step-ms", "0", "--steps", 1)
    assert line == "error: --step-ms 0: give a positive number of milliseconds\n"
    assert "the run has no steps" in refused(capsys, FILE, "--step-ms", "5")
    with pytest.raises(dla.InputError, match="steps is no option of a session"):
        dla.Session(FILE, steps=3)
    session = dla.Session(FILE)
    name = next(iter(session.state))
    with pytest.raises(dla.InputError, match=rf"input '{name}' has shape \[2\]"):
        session.step({**dict.fromkeys(session.inputs, frames(1)[0]), name: np.zeros(2)})
    with pytest.raises(dla.InputError, match="has no input 'x'; its inputs are features, ring0"):
        dla.run(FILE, steps=4, inputs={"x": frames(4)})


def changed(change: Callable[[Any, Any], None]) -> None:
    """Write a streaming network with something else in its ``ModelT``."""
    model = litert.schema().ModelT.InitFromPackedBuf(KINDS["convolutional"](), 0)
    change(model, model.subgraphs[0])
    FILE.write_bytes(litert.pack_model(model))


def kinds(model: Any, graph: Any) -> list[str]:
    """The kinds of a subgraph's operators."""
    names = {number: name for name, number in vars(litert.schema().BuiltinOperator).items()}
    return [names[model.operatorCodes[one.opcodeIndex].builtinCode] for one in graph.operators]


def test_variables_that_cannot_be_traced_are_refused(capsys: Capture) -> None:
    def uninitialised(model: Any, graph: Any) -> None:
        model.subgraphs[1].operators = model.subgraphs[1].operators[2:]

    def elsewhere(model: Any, graph: Any) -> None:
        graph.operators = graph.operators[1:]

    def foreign(model: Any, graph: Any) -> None:
        place = kinds(model, graph).index("READ_VARIABLE")
        graph.operators[place].inputs = [0]

    def reshaped(model: Any, graph: Any) -> None:
        place = kinds(model, graph).index("ASSIGN_VARIABLE")
        graph.operators[place].inputs = [graph.operators[place].inputs[0], 0]

    changed(uninitialised)
    assert "LiteRT cannot run the initial values of the variables" in refused(capsys, FILE)
    changed(elsewhere)
    assert "subgraph 1 uses variables (ASSIGN_VARIABLE)" in refused(capsys, FILE)
    changed(foreign)
    assert "names no variable of the main subgraph" in refused(capsys, FILE)
    changed(reshaped)
    assert "variable 'ring0' has shape [1, 4, 1, 8]" in refused(capsys, FILE)


def test_a_value_read_after_an_assignment_is_the_new_one(capsys: Capture) -> None:
    """The operators that assign come first, so that a second inference reads what was assigned."""

    def reordered(model: Any, graph: Any) -> None:
        found = kinds(model, graph)
        first = found.index("READ_VARIABLE")
        again = graph.operators[first]
        extra = type(again)()
        extra.opcodeIndex, extra.inputs = again.opcodeIndex, again.inputs
        tensor = graph.tensors[again.outputs[0]]
        graph.tensors.append(tensor)
        extra.outputs = [len(graph.tensors) - 1]
        place = found.index("ASSIGN_VARIABLE")
        graph.operators.insert(place + 1, extra)
        graph.outputs = [*graph.outputs, extra.outputs[0]]

    changed(reordered)
    given = frames(5)
    found = dla.run(FILE, steps=5, inputs=given, settings={"numerics": "fixed"})
    assert found.report.check.mismatches == 0
    assert np.array_equal(found.outputs["score"], scores(given))


def test_other_commands_run_a_network_with_state(capsys: Capture) -> None:
    write("convolutional")
    Path("s.toml").write_text(f'networks = ["{FILE}"]\n[arch]\n"pe.oc" = [8, 16]\n', "utf-8")
    Path("pair.toml").write_text(PAIR, "utf-8")
    split = ("split", FILE, "pair.toml", "--by")
    for words in [
        ("partition", FILE),
        ("compile", FILE, "-o", "net.dla"),
        ("sweep", "s.toml"),
        ("emit", FILE, "-o", "out"),
        ("simulate", "net.dla"),
        (*split, "channels"),
    ]:
        found = command(capsys, *words)
        assert found.status == 0, found.err
    found = command(capsys, *split, "pipeline")
    assert (found.status, found.err.count("\n")) == (2, 1)
    assert "each step needs the state of the step before" in found.err


PAIR = """
[[accelerator]]
name = "a"
count = 2
"""
