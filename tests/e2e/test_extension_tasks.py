"""Tasks of a user who has a model of their own, writes scripts, and extends the compiler."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.user_tasks import SWEEP, User, own_network, samples, without
from tests.plugins.installation import write_information

pytestmark = pytest.mark.slow  # tasks compile networks or start processes


# A model of their own.


def test_run_a_network_with_an_open_batch(user: User) -> None:
    own_network(user.folder, shape=("batch", 3, 16, 16))
    seen = " ".join(user.types("dla run mine.onnx").split())
    assert "0 mismatches in 10 elements" in seen
    assert "batch 1, because the first dimension of 'image' is open; --shape sets" in seen


def test_run_it_with_another_batch(user: User) -> None:
    own_network(user.folder, shape=("batch", 3, 16, 16))
    seen = user.types("dla run mine.onnx --shape image=4,3,16,16")
    assert "0 mismatches in 40 elements" in seen
    assert "is open" not in seen


def test_calibrate_with_a_batch_of_images(user: User) -> None:
    own_network(user.folder)
    np.savez(user.folder / "images.npz", image=samples()[:, 0])
    assert "quantised on 4 inputs of images.npz" in user.types(
        "dla run mine.onnx --calibration images.npz"
    )


def test_give_a_file_of_pytorch(user: User) -> None:
    (user.folder / "net.pth").write_bytes(b"PK\x03\x04")
    error, *recipe = user.types("dla run net.pth", status=2).splitlines()
    assert error.startswith("error: net.pth: a PyTorch file; dla reads ONNX: ")
    assert recipe[0] == "import torch"
    assert recipe[2].startswith("torch.onnx.export(network, ")
    assert len(recipe) == 3


# Scripts.


def test_which_version_does_a_script_use(user: User) -> None:
    version = user.runs("import dla\nprint(dla.__version__)").strip()
    assert user.types("dla --version") == f"dla {version}\n"


def test_read_a_run_in_a_script(user: User) -> None:
    user.types("dla run digits-cnn --json run.json")
    said = user.runs("import dla\nprint(dla.load('run.json').check.mismatches)")
    assert said == "0\n"


def test_read_a_sweep_and_its_specification_in_a_script(user: User) -> None:
    (user.folder / "grid.toml").write_text(SWEEP)
    user.types("dla sweep grid.toml --workers 1 -o grid.sqlite")
    script = "import dla\nprint(len(dla.load('grid.sqlite')), *dla.load('grid.toml').networks)"
    assert user.runs(script) == "8 digits-cnn\n"


def test_read_a_machine_in_a_script(user: User) -> None:
    user.types("dla presets balanced-64 > mine.toml")
    assert user.runs("import dla\nprint(dla.load('mine.toml').arch.pe.oc)") == "16\n"


def test_a_mistake_in_a_script_names_the_keyword(user: User) -> None:
    own_network(user.folder, shape=(1, 3, "height", 16))
    script = "import dla\ntry:\n    dla.run('mine.onnx')\nexcept dla.InputError as error:\n"
    said = user.runs(f"{script}    print(error)")
    assert said.endswith("for example with shapes={'image': (1, 3, 224, 16)}\n")
    assert user.fails("dla run mine.onnx").endswith("for example with --shape image=1,3,224,16")


def test_a_script_goes_on_without_an_extra(user: User) -> None:
    (user.folder / "script.py").write_text(
        "import dla\nresult = dla.run('digits-cnn')\ntry:\n    print(result.layers)\n"
        "except dla.MissingExtraError:\n    print('no tables')\n"
    )
    assert user.types("python script.py", PYTHONPATH=without(user, "pandas")) == "no tables\n"


# Editors.


def test_let_an_editor_check_a_machine(user: User) -> None:
    user.types("dla schema machine > machine.json")
    schema = json.loads(user.has("machine.json").read_text(encoding="utf-8"))
    assert "sram_bytes" in schema["$defs"]["Arch"]["properties"]


def test_ask_for_a_schema_that_does_not_exist(user: User) -> None:
    assert "did you mean machine? choose one of machine, sweep" in user.fails("dla schema machin")


# Operators and instructions of their own.


def _install(user: User, name: str) -> str:
    """Install a package that ``dla new`` wrote, and return its folder for the front of the path."""
    folder = user.folder / name
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    write_information(folder, name, project["version"], project["entry-points"])
    return str(folder)


def test_write_an_operator_and_run_its_tests(user: User) -> None:
    assert "my-ramp: my_ramp.py, pyproject.toml, test_my_ramp.py" in user.types(
        "dla new operator my-ramp"
    )
    path = _install(user, "my-ramp")
    assert "my-ramp" in user.types("dla support", PYTHONPATH=path)
    assert "2 passed" in user.types("python -m pytest -q my-ramp", PYTHONPATH=path)


def test_write_an_instruction_and_run_its_tests(user: User) -> None:
    user.types("dla new instruction my-minus")
    path = _install(user, "my-minus")
    assert "OP_MY_MINUS" in user.types("dla isa", PYTHONPATH=path)
    assert "3 passed" in user.types("python -m pytest -q my-minus", PYTHONPATH=path)


def test_write_it_twice(user: User) -> None:
    user.types("dla new operator my-ramp && echo '# mine' >> my-ramp/my_ramp.py")
    before = (user.folder / "my-ramp/my_ramp.py").read_text(encoding="utf-8")
    assert "my-ramp exists; dla new overwrites nothing" in user.fails("dla new operator my-ramp")
    assert (user.folder / "my-ramp/my_ramp.py").read_text(encoding="utf-8") == before


@pytest.mark.parametrize("name", ["MyRamp", "numpy", "softmax"])
def test_write_it_under_a_wrong_name(user: User, name: str) -> None:
    assert name in user.fails(f"dla new operator {name}")
    assert not Path(user.folder / name).exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("s/def attributes/def atributes/", "MyRamp.atributes is never called; name it attributes"),
        ('s/Form("PRelu")/Form("Prelu")/', "no ONNX operator is called Prelu; write PRelu"),
        ('s/family = "my-ramp"/&\\n    speeds = 3/', "MyRamp.speeds is never used"),
        ("s/written.view/written.views/", "MyRamp.attributes ends with AttributeError"),
    ],
)
def test_make_a_mistake_in_an_operator(user: User, change: str, says: str) -> None:
    user.types("dla new operator my-ramp")
    path = _install(user, "my-ramp")
    user.types(f"sed -i '{change}' my-ramp/my_ramp.py")
    user.types(
        "python -c 'from onnx import save; from test_my_ramp import model; "
        'save(model([0.25]), "one.onnx")\'',
        PYTHONPATH=path,
    )
    error = user.fails("dla run one.onnx --isa v2", PYTHONPATH=path)
    assert error.startswith("package my-ramp 1.0 (entry point my-ramp): ")
    assert says in error
