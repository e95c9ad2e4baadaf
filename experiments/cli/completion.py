"""What a shell may offer for a word that is not finished yet (dla --install-completion)."""

from __future__ import annotations

from glob import escape, iglob


def models(begun: str) -> list[str]:
    """Built-in networks, and files."""
    from experiments.models import MODELS

    return _beginning(begun, [*MODELS, *_files(begun)])


def presets(begun: str) -> list[str]:
    """Machines, and files."""
    from dla_sim.presets import preset_names

    return _beginning(begun, [*preset_names(), *_files(begun)])


def memory_modes(begun: str) -> list[str]:
    """Where data can lie."""
    from dla_sim.presets.modes import MEMORY_MODES

    return _beginning(begun, [mode.name for mode in MEMORY_MODES])


def settings(begun: str) -> list[str]:
    """Keys of a machine."""
    from dla_sim.presets.keys import declared_settings

    return _beginning(begun, [f"{setting.key}=" for setting in declared_settings()])


def _files(begun: str) -> list[str]:
    return sorted(iglob(f"{escape(begun)}*"))


def _beginning(begun: str, words: list[str]) -> list[str]:
    return [word for word in words if word.startswith(begun)]
