"""TensorFlow Lite front end: read a model, recognise its operators, cut parts out of it."""

from pathlib import Path

from isa.reading import first_bytes

IDENTIFIER = b"TFL3"


def is_tflite(path: Path) -> bool:
    """Return True if a file's suffix or first bytes identify a TensorFlow Lite model."""
    return path.suffix == ".tflite" or first_bytes(path, 8)[4:] == IDENTIFIER
