"""Build folder of one machine's hardware.

It contains Verilog, a model of the machine's scratchpad, and a simulation executable.
"""

import json
import re
import shutil
from pathlib import Path

from dla_sim.presets import Preset
from dla_sim.rtl.scratchpad import NAME as SCRATCHPAD
from dla_sim.rtl.simulator.executable import build_executable, find_tools
from experiments.rtl.hardware import Modules, own_text
from isa.errors import InputError
from isa.files import folder_beside, replace_folder
from isa.progress import Progress, silent

MACHINE = "dla_machine.v"
MEMORY = "dla_scratchpad.v"
SIMULATION = "simulation"
README = "README.md"
_README = """# {name}

Hardware of the machine that docs/machine.md defines: {pe} processing elements, {sram} bytes \
of scratchpad, programs of
ISA variant {isa}. `dla rtl build` wrote this folder; docs/rtl.md describes the ports.

| file | contents |
|---|---|
| `{machine}` | module `dla_machine`, its configuration tied to this machine; \
plain synthesisable Verilog |
| `{memory}` | module `{scratchpad}`, a model of the memories, \
which memory macros replace in a chip |
| `machine.json` | Arch and Timing |
"""
_SIMULATED = """\
| `{simulation}` | the machine compiled by Verilator together with a \
harness that runs cases and compares |

`dla rtl case PROGRAM -o FILE` writes a case of this machine, and `./{simulation} OUTPUTS FILE...` \
runs cases. It
prints one line of JSON per case: the cycles, and every difference from the expected behaviour. \
It writes the bytes of
the output tensors to OUTPUTS.
"""


def write_build(
    hardware: Preset,
    folder: Path,
    progress: Progress = silent,
    replacing: Modules | None = None,
    *,
    simulated: bool = True,
) -> None:
    """Create ``folder`` with one machine's hardware, completely or not at all.

    An earlier build is replaced.

    ``simulated`` False leaves out the executable, which needs a C++ compiler. Raises InputError,
    before anything is built, if tools are missing, the folder has other content, or it cannot be
    written.
    """
    foreign = _foreign(folder)
    if foreign is not None:
        raise InputError(
            f"{folder}: holds {foreign}, which no build put there; choose another folder"
        )
    with folder_beside(folder):
        pass
    if simulated:
        find_tools()
    progress("writing Verilog")
    text = own_text(hardware.arch, hardware.timing, replacing)
    progress("compiling the simulation")
    executable = build_executable(text) if simulated else None
    machine, memory = split_text(text)
    with folder_beside(folder) as passing:
        new = passing / "new"
        new.mkdir()
        (new / MACHINE).write_text(machine)
        (new / MEMORY).write_text(memory)
        (new / README).write_text(_readme(hardware, simulated=simulated))
        (new / "machine.json").write_text(_machine_json(hardware))
        if executable is not None:
            shutil.copy2(executable.path, new / SIMULATION)
        replace_folder(new, folder)


def _foreign(folder: Path) -> str | None:
    """Return a file that a hardware build did not make, or None if there is none."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder}: is no folder; choose another place")
    known = {MACHINE, MEMORY, SIMULATION, README, "machine.json"}
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    return next((name for name in names if name not in known), None)


def split_text(text: str) -> tuple[str, str]:
    """Split Verilog text into the machine and the model of its scratchpad."""
    found = re.search(rf"^module {SCRATCHPAD}\b", text, re.MULTILINE)
    at = len(text) if found is None else found.start()
    return text[:at], text[at:]


def _machine_json(hardware: Preset) -> str:
    machine = {
        "arch": hardware.arch.model_dump(mode="json"),
        "timing": hardware.timing.model_dump(mode="json"),
    }
    return json.dumps(machine, indent=1) + "\n"


def _readme(hardware: Preset, *, simulated: bool) -> str:
    arch = hardware.arch
    pe = f"{arch.pe.ic} × {arch.pe.oc} × {arch.pe.ow}"
    return (_README + _SIMULATED * simulated).format(
        name=hardware.name, pe=pe, sram=f"{arch.sram_bytes:,}", isa=arch.isa, machine=MACHINE,
        memory=MEMORY,
        scratchpad=SCRATCHPAD, simulation=SIMULATION,
    )  # fmt: skip
