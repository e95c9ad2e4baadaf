"""Simulation of packages and programs without any check of values.

The module also analyses programs with the sanitizer. A package runs on an input, a program on
tensors from files, raw bytes in memory, or both.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from byoc.compiler import compile as compile_network
from byoc.host.runtime import region_inputs
from dla_sim.device import Device
from dla_sim.presets import Preset, apply_memory_mode, apply_settings, load_preset, setting_texts
from dla_sim.timing import Timing
from experiments.models.inputs import load_input
from experiments.report.figures import RegionRun, figures
from experiments.report.schema import Figures
from experiments.running.given import MachineChoice, ProgramRequest
from experiments.running.inference import Inference, hardware_of, infer
from experiments.running.network import load_network, network_batch
from isa import program_file
from isa.errors import InputError
from isa.plugins import variant
from isa.program import Program, Segment, Tensor
from isa.reading import check_file, read_npz
from isa.sanitizer import sanitize
from isa.sanitizer.findings import SanitizerFinding
from isa.sanitizer.layouts import is_unchecked

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False, kw_only=True)
class SimulatedRegion(RegionRun):
    """Run of a region with everything needed to repeat it.

    ``imaged`` is ``program`` with further memory images.
    """

    imaged: Program
    inputs: Tensors


@dataclass(frozen=True, eq=False)
class PreparedSimulation:
    """Simulation of a package or program that is ready to run.

    ``regions`` returns the timing of its regions, ``finish`` the outputs and figures.
    """

    hardware: Preset
    regions: Callable[[], tuple[SimulatedRegion, ...]]
    finish: Callable[[], tuple[Tensors, Figures]]


def simulate_package(file: Path, wanted: ProgramRequest) -> PreparedSimulation:
    """Compile a package for the machine and run one inference.

    The simulation returns the model's outputs and the machine's figures.
    """
    network, hardware, options = load_network(str(file)), hardware_of(wanted), wanted.options
    feeds = network_batch(network, wanted.inputs, wanted.seed, options).feeds[0]
    done = infer(network, hardware, feeds, options)
    runs, given = [], list_region_inputs(done)
    for index, trace in done.result.traces.items():
        program = done.compiled.programs[index]
        report = done.compiled.reports[index]
        bounds = report.compulsory_bytes, report.demand
        runs.append(
            SimulatedRegion(index, program, trace, *bounds, imaged=program, inputs=given[index])
        )
    return PreparedSimulation(
        hardware, lambda: tuple(runs), lambda: (dict(done.result.outputs), figures(hardware, runs))
    )


def list_region_inputs(done: Inference) -> dict[int, Tensors]:
    """Return the input tensors of each region's program in a run, by the region's index."""
    return {
        index: region_inputs(done.compiled.programs[index], done.result.values)
        for index in done.result.traces
    }


def simulate_program(file: Path, wanted: ProgramRequest) -> PreparedSimulation:
    """Prepare the simulation of a program on tensors and memory images from files.

    The simulation returns the program's output tensors and the machine's figures. The input is a
    ``.npz`` with arrays for some tensors; ``tensor`` (NAME=FILE.npy) replaces them.

    ``regions`` of the simulation moves no data, so that a program that stops on an overflow can be
    examined, too.
    """
    program = program_file.load(file)
    hardware = hardware_for(file, program, wanted)
    segments = image_segments(program, wanted.image)
    given = None if wanted.inputs is None else Path(str(wanted.inputs))
    inputs = program_inputs(program, wanted.tensor, segments, given)
    imaged = replace(program, segments=(*program.segments, *segments))
    device = Device(hardware.arch, hardware.timing)

    def regions() -> tuple[SimulatedRegion, ...]:
        trace = device.run(imaged, inputs, timing_only=True).trace
        return (SimulatedRegion(0, program, trace, imaged=imaged, inputs=inputs),)

    def finish() -> tuple[Tensors, Figures]:
        try:
            execution = device.run(imaged, inputs)
        except OverflowError as error:
            raise InputError(f"{file}: the program stopped: {error}") from error
        return dict(execution.outputs), figures(hardware, [RegionRun(0, program, execution.trace)])

    return PreparedSimulation(hardware, regions, finish)


def hardware_for(file: Path, program: Program, machine: MachineChoice) -> Preset:
    """Return the simulated machine on which ``program`` runs.

    This is the preset with its changes, or the program's Arch with default timing.

    Raises InputError if the result is not the Arch that the program was made for.
    """
    own = Preset(name="program", arch=program.arch, timing=Timing())
    base = own if machine.preset is None else load_preset(str(machine.preset))
    settings = (
        *setting_texts(machine.settings),
        *([f"isa={variant(machine.isa).name}"] if machine.isa else ()),
    )
    hardware = apply_settings(apply_memory_mode(base, machine.memory_mode), settings)
    if not program.arch.same_machine(hardware.arch):
        raise InputError(
            f"{file}: the program was made for another Arch: {_differences(program, hardware)}; "
            f"emit it again for this machine"
        )
    return hardware


def _differences(program: Program, hardware: Preset) -> str:
    """Return the keys in which two machines differ, with both values, as text."""
    found = program.arch.differences(hardware.arch)
    return ", ".join(
        f"{key} is {made} there and {given} here" for key, (made, given) in found.items()
    )


def image_segments(program: Program, images: Iterable[str]) -> list[Segment]:
    """Return the memory segments that texts of the form ADDRESS=FILE give.

    Raises InputError for other texts, missing files, and bytes outside the memory.
    """
    return [_segment(program, text) for text in images]


def _segment(program: Program, text: str) -> Segment:
    address_text, separator, name = text.partition("=")
    try:
        address = int(address_text, 0)
    except ValueError:
        separator = ""
    if not separator:
        raise InputError(
            f"--image {text}: write it as ADDRESS=FILE, for example 0x1000=weights.bin"
        )
    path = Path(name)
    check_file(path, named=f"--image {text}")
    size = path.stat().st_size
    if address < 0 or address + size > program.dram_bytes:
        raise InputError(
            f"--image {text}: {size} bytes at {address:#x} lie outside the {program.dram_bytes} "
            "bytes of memory"
        )
    return Segment(address, np.frombuffer(path.read_bytes(), np.uint8))


def program_inputs(
    program: Program,
    tensors: Iterable[str],
    images: Iterable[Segment] = (),
    file: Path | None = None,
) -> Tensors:
    """Return a program's input tensors, read from files or memory images.

    They come from texts NAME=FILE, else from a ``.npz``, else from ``images``. Images must cover
    the whole tensor. Raises InputError for an unknown name, for a file that does not contain the
    tensor, and for an input without content.
    """
    given = {} if file is None else _arrays(program, file)
    given |= dict(_tensor(program, text) for text in tensors)
    memory = list(images)
    for tensor in program.inputs:
        if tensor.name not in given:
            given[tensor.name] = _from_images(tensor, memory)
    return given


def _arrays(program: Program, file: Path) -> Tensors:
    """Return the arrays of a ``.npz`` file.

    Raise InputError for an array that is no input tensor.
    """
    check_file(file, "'dla emit --save-inputs' makes one", f"--input {file}")
    wanted = {tensor.name: tensor for tensor in program.inputs}
    found = read_npz(file, f"--input {file}")
    for name, array in found.items():
        if name not in wanted:
            known = ", ".join(wanted)
            raise InputError(
                f"--input {file}: the program has no input '{name}'; its inputs are {known}"
            )
        tensor = wanted[name]
        if array.shape != tensor.shape or array.dtype != tensor.dtype:
            raise InputError(
                f"--input {file}: '{name}' is {array.dtype} {list(array.shape)}; "
                f"the program wants {tensor.dtype} {list(tensor.shape)}"
            )
    return found


def _tensor(program: Program, text: str) -> tuple[str, NDArray[Any]]:
    name, separator, file = text.rpartition("=")
    if not separator:
        raise InputError(f"--tensor {text}: write it as NAME=FILE.npy")
    found = {tensor.name: tensor for tensor in program.inputs}.get(name)
    if found is None:
        known = ", ".join(tensor.name for tensor in program.inputs)
        raise InputError(
            f"--tensor {text}: the program has no input '{name}'; its inputs are {known}"
        )
    return name, load_input(file, found.shape, found.dtype)


def _from_images(tensor: Tensor, images: list[Segment]) -> NDArray[Any]:
    """Return a tensor's bytes from memory images; later images override earlier ones.

    Raise InputError unless they cover every byte.
    """
    content = np.zeros(tensor.nbytes, np.uint8)
    known = np.zeros(tensor.nbytes, bool)
    for image in images:
        low = max(image.address, tensor.address)
        high = min(image.address + image.data.size, tensor.address + tensor.nbytes)
        if low < high:
            target = slice(low - tensor.address, high - tensor.address)
            content[target] = image.data[low - image.address : high - image.address]
            known[target] = True
    if not known.all():
        raise InputError(
            f"input '{tensor.name}' ({tensor.dtype} {list(tensor.shape)} at {tensor.address:#x}) "
            "is missing: "
            f"give --tensor '{tensor.name}=FILE.npy' or an --image that covers it"
        )
    return content.view(tensor.dtype).reshape(tensor.shape)


class Sanitized(NamedTuple):
    """Findings of the sanitizer on a program; ``unchecked``: its layouts could not be checked."""

    findings: tuple[SanitizerFinding, ...]
    unchecked: bool


def sanitize_package(file: Path, wanted: ProgramRequest) -> dict[str, Sanitized]:
    """Return the sanitizer's findings on the program of every region, by name."""
    package = load_network(str(file)).package
    hardware = hardware_of(wanted)
    compiled = compile_network(package, hardware.arch, wanted.options, timing=hardware.timing)
    return {program.name: _sanitize(program) for program in compiled.programs.values()}


def sanitize_program(file: Path, images: Iterable[str]) -> dict[str, Sanitized]:
    """Return the sanitizer's findings on the program in ``file``.

    The program runs with ``images`` in system memory.
    """
    program = program_file.load(file)
    return {program.name: _sanitize(program, image_segments(program, images))}


def _sanitize(program: Program, given: Sequence[Segment] = ()) -> Sanitized:
    return Sanitized(sanitize(program, given), is_unchecked(program))
