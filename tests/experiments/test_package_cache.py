"""The cache of imported models: a run from it is the same run.

What cannot be believed is made again, in silence.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from byoc import importing
from byoc.package.package import Package
from experiments.cli.main import main
from experiments.running import package_cache
from experiments.running.network import load_network
from experiments.running.package_cache import PackageCache, key_of, users_cache
from isa import sources
from isa.files import is_leftover
from isa.plugins import OPERATORS
from tests.experiments.command_line import save_tiny


@pytest.fixture
def imports(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that records the imports from now on."""
    seen: list[str] = []
    real = importing.import_model

    def counted(*given: object, **more: object) -> Package:
        seen.append(str(given[1]))
        return real(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(importing, "import_model", counted)
    return seen


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Save a small float model; the cache is in the same folder."""
    monkeypatch.delenv("DLA_NO_CACHE", raising=False)
    monkeypatch.setenv("DLA_CACHE_DIR", str(tmp_path / "cache"))
    return save_tiny(tmp_path)


def cache() -> PackageCache:
    found = users_cache()
    assert found is not None
    return found


def packages() -> list[Path]:
    return [path for path in cache().entries() if path.suffix == ".package"]


def entry() -> Path:
    (found,) = packages()
    return found


def report(model: Path, *words: str) -> bytes:
    place = model.with_suffix(".json")
    assert main(["run", str(model), "--json", str(place), *words]) == 0
    return place.read_bytes()


def test_a_run_from_the_cache_is_the_same_to_the_byte(model: Path, imports: list[str]) -> None:
    first = report(model)
    again = report(model)
    without = report(model, "--no-cache")
    assert first == again == without
    assert imports == ["tiny", "tiny"]
    assert json.loads(again)["check"]["mismatches"] == 0
    # compared again: the cache has only the package
    assert json.loads(again)["check"]["elements"] > 0


def test_whatever_makes_another_package_is_another_entry(model: Path, imports: list[str]) -> None:
    """Seed, content and name of the model; machine and input make no other package."""
    report(model)
    report(model, "--set", "sram_bytes=65536", "--isa", "v2")
    assert len(imports) == 1
    report(model, "--seed", "1")
    renamed = model.rename(model.with_name("other.onnx"))
    report(renamed)
    renamed.write_bytes(renamed.read_bytes() + b"\xba\x3e\x01x")  # an unknown field
    report(renamed)
    assert len(imports) == len(packages()) == 4


@pytest.mark.parametrize("what", ["sources_digest", "processor"])
def test_other_code_and_another_processor_make_other_names(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = key_of({})
    monkeypatch.setattr(package_cache, what, lambda *folders: "other")
    assert key_of({}) != before


@pytest.mark.parametrize("name", ["code.py", "weights.npz", "preset.toml", "gates.csv"])
def test_the_digest_of_sources_has_code_and_data(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "HOME", tmp_path)
    digest = inspect.unwrap(sources._digest_folder)
    before = digest(".")
    (tmp_path / name).write_bytes(b"1")
    assert digest(".") != before


def test_nothing_is_cached_with_operators_of_other_packages(
    model: Path, imports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their code may change unnoticed."""
    report(model)
    before = cache().entries()
    monkeypatch.setattr(package_cache, "has_entry_points", lambda group: group == OPERATORS)
    report(model)
    assert (imports, cache().entries()) == (["tiny", "tiny"], before)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flipped(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def without_secret(path: Path) -> None:
    (path.parent / "secret").unlink()


def short_secret(path: Path) -> None:
    (path.parent / "secret").write_bytes(b"x")


def writable_by_all(path: Path) -> None:
    path.parent.chmod(0o777)


@pytest.mark.parametrize(
    "damage", [cut, flipped, empty, folder, pipe, without_secret, short_secret, writable_by_all]
)
def test_what_cannot_be_believed_is_made_again(
    model: Path,
    imports: list[str],
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], None],
) -> None:
    first = report(model)
    damage(entry())
    capsys.readouterr()
    assert report(model) == first
    assert "error" not in capsys.readouterr().err
    assert len(imports) == 2


def test_a_sound_package_under_the_name_of_another_is_not_believed(
    model: Path, imports: list[str]
) -> None:
    first = report(model)
    mine = entry()
    report(model, "--seed", "1")
    (other,) = (path for path in packages() if path != mine)
    mine.write_bytes(other.read_bytes())
    assert report(model) == first
    assert len(imports) == 3


def test_without_a_place_for_it_there_is_no_cache(
    model: Path, imports: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = model.with_name("file")
    blocked.write_bytes(b"")
    monkeypatch.setenv("DLA_CACHE_DIR", str(blocked / "cache"))
    assert report(model) == report(model)
    assert len(imports) == 2
    monkeypatch.setenv("DLA_NO_CACHE", "1")
    assert users_cache() is None


def test_only_data_in_files_beside_it_keep_a_model_out(model: Path, imports: list[str]) -> None:
    """The word that says in which may stand anywhere."""
    given = onnx.load(model)
    given.doc_string = "location"
    onnx.save(given, model)
    for _ in range(2):
        report(model)
    assert len(imports) == 1
    onnx.save(given, model, save_as_external_data=True, location="weights.bin", size_threshold=0)
    for _ in range(2):
        report(model)
    assert len(imports) == 3


def test_no_home_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DLA_NO_CACHE", raising=False)
    monkeypatch.delenv("DLA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert users_cache() is None


def test_those_not_used_for_longest_go_first(model: Path, tmp_path: Path) -> None:
    package = load_network(str(model)).package
    small = PackageCache(tmp_path / "small", 1 << 40)
    for number in range(5):
        small.keep(f"key{number}", package)
        os.utime(small.folder / f"key{number}.package", (number, number))
    assert small.find("key0") is not None  # and is used now
    left = small.folder / f".{'0' * 16}.part"
    left.write_bytes(b"by somebody who was killed")
    os.utime(left, (0, 0))
    size = (small.folder / "key0.package").stat().st_size
    PackageCache(small.folder, 4 * size).keep("key5", package)
    assert {path.stem for path in small.entries()} == {"key0", "key3", "key4", "key5"}
    PackageCache(small.folder, 3 * size).keep("key6", package)  # more than a quarter of all
    assert small.find("key6") is None


@pytest.mark.usefixtures("advice")
def test_the_command_shows_and_clears(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(model)
    capsys.readouterr()
    assert main(["cache"]) == 0
    # the package, the compiled network, and the advice
    assert f"{cache().folder}: 3 entries" in capsys.readouterr().out
    assert main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"{cache().folder}: 3 entries removed\n"
    assert list(cache().folder.iterdir()) == []


WRITER = """
import sys
from pathlib import Path
from experiments.running.network import load_network
from experiments.running.package_cache import PackageCache
package, cache = load_network(sys.argv[1]).package, PackageCache(Path(sys.argv[2]))
print("ready", flush=True)
for number in range(int(sys.argv[3])):
    cache.keep("key", package)
    found = cache.find("key")
    assert found is None or found.digest == package.digest
"""


@pytest.mark.slow
def test_writers_at_a_time_and_killed_ones(model: Path, tmp_path: Path) -> None:
    """Three write one entry over and over, one of them for ever until it is killed.

    The entry is whole or not there.
    """
    place = tmp_path / "shared"
    command = [sys.executable, "-c", WRITER, str(model), str(place)]
    endless = subprocess.Popen([*command, "1000000"], stdout=subprocess.PIPE)
    others = [subprocess.Popen([*command, "60"], stdout=subprocess.DEVNULL) for _ in range(2)]
    assert endless.stdout is not None
    assert endless.stdout.readline() == b"ready\n"
    assert [process.wait() for process in others] == [0, 0]
    endless.send_signal(signal.SIGKILL)
    endless.wait()
    endless.stdout.close()
    shared = PackageCache(place)
    package = load_network(str(model)).package
    shared.keep("key", package)
    found = shared.find("key")
    assert found is not None
    assert found.digest == package.digest
    assert all(path.name == "key.package" or is_leftover(path) for path in shared.entries())
