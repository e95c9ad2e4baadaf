"""Export networks of PyTorch and Keras packages with weights drawn from seed 0.

    python exporters.py FOLDER FUNCTION [ARGUMENT ...]

Writes FOLDER/model.onnx or FOLDER/model.tflite, and prints the versions of the packages. The exit
status is 3 if a package is not installed. The script needs only the exporters' packages, so that it
runs in a Python installation without this project. ``real_networks.toml`` has the calls.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
if __name__ == "__main__":
    sys.path.pop(0)  # files beside this one have names of packages that transformers looks for
NOT_INSTALLED = 3


def _export_torch(model: Any, inputs: tuple[Any, ...], folder: Path, *packages: str) -> str:
    """Export a PyTorch module; the TorchScript exporter is tried if the default one fails."""
    import torch

    names = [f"input{number}" for number in range(len(inputs))]
    model = model.eval()
    for parameter in model.parameters():
        if not parameter.any():  # training begins with branches that compute 0
            torch.nn.init.normal_(parameter, std=0.02)
    file = str(folder / "model.onnx")
    try:
        torch.onnx.export(model, inputs, file, input_names=names, external_data=False)
    except Exception:
        torch.onnx.export(model, inputs, file, input_names=names, dynamo=False)
    return ", ".join(f"{name} {version(name)}" for name in (*packages, "torch"))


def _allow_missing_operators() -> None:
    """Let torchvision load beside a PyTorch for the CPU, where its compiled operators are missing.

    No exported network uses them.
    """
    from torch import library as operators

    register = operators.register_fake

    def register_existing(*names: Any, **options: Any) -> Callable[[Any], Any]:
        decorate = register(*names, **options)

        def decorate_existing(function: Any) -> Any:
            try:
                return decorate(function)
            except RuntimeError:
                return function

        return decorate_existing

    operators.register_fake = register_existing


def torchvision(folder: Path, name: str, size: str, family: str = "models") -> str:
    """Export a network of torchvision for a square image."""
    import torch

    _allow_missing_operators()
    import torchvision as package

    torch.manual_seed(0)
    models = package.models if family == "models" else getattr(package.models, family)
    options = {} if family == "models" else {"weights_backbone": None}
    model = getattr(models, name)(weights=None, **options)
    if family == "segmentation":
        model = _named(model, "out", *inspect.signature(model.forward).parameters)
    image = torch.zeros(1, 3, int(size), int(size))
    return _export_torch(model, (image,), folder, "torchvision")


def timm(folder: Path, name: str, size: str) -> str:
    """Export a network of timm for a square image."""
    import torch

    _allow_missing_operators()
    import timm as package

    torch.manual_seed(0)
    model = package.create_model(name, pretrained=False, exportable=True)
    return _export_torch(model, (torch.zeros(1, 3, int(size), int(size)),), folder, "timm")


def _named(model: Any, key: str, *names: str) -> Any:
    """Return a module that passes inputs by name and returns one entry of the results."""
    import torch

    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            return self.model(**dict(zip(names, inputs, strict=True)))[key]

    return Named()


def transformers(folder: Path, kind: str, *changes: str) -> str:
    """Export a small network of transformers; ``changes`` are KEY=NUMBER of its configuration.

    ``kind`` is MODEL:TASK:INPUT, for example BertModel:text:64 or ViTModel:image:224.
    """
    import torch

    _allow_missing_operators()
    import transformers as package

    torch.manual_seed(0)
    name, task, size = kind.split(":")
    settings: dict[str, Any] = {"attn_implementation": "eager"}
    for change in changes:
        key, _, value = change.partition("=")
        settings[key] = _number(value)
    model_class = getattr(package, name)
    model = model_class(model_class.config_class(**settings)).eval()
    length = int(size)
    inputs: dict[str, Any] = {
        "text": {
            "input_ids": torch.zeros(1, length, dtype=torch.int64),
            "attention_mask": torch.ones(1, length, dtype=torch.int64),
        },
        "tokens": {"input_ids": torch.zeros(1, length, dtype=torch.int64)},
        "image": {"pixel_values": torch.zeros(1, 3, length, length)},
        "mel": {"input_features": torch.zeros(1, 80, length)},
        "wave": {"input_values": torch.zeros(1, length)},
    }[task]
    if task == "mel":
        model = model.encoder if hasattr(model, "encoder") else model
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    heads = ("logits", "last_hidden_state")
    with torch.no_grad():
        found = model(**inputs)
    key = next(head for head in heads if head in found)
    wrapped = _named(model, key, *inputs)
    return _export_torch(wrapped, tuple(inputs.values()), folder, "transformers")


def _number(text: str) -> Any:
    if "," in text:
        return [_number(part) for part in text.split(",") if part]
    return float(text) if "." in text else int(text)


def keras(folder: Path, name: str, size: str, form: str = "float") -> str:
    """Convert a network of keras.applications to TensorFlow Lite: float, or int8 throughout."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import numpy as np
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    shape = (int(size), int(size), 3)
    model = getattr(tf.keras.applications, name)(weights=None, input_shape=shape)
    images = np.random.default_rng(0).uniform(0, 255, (4, *shape)).astype(np.float32)
    for layer in model.layers:
        if isinstance(layer, tf.keras.layers.BatchNormalization):
            layer.momentum = 0.0
    model(images, training=True)  # statistics with which activations do not vanish
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if form == "int8":

        def samples() -> Iterator[list[Any]]:
            yield from ([image[None]] for image in images)

        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = samples
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    (folder / "model.tflite").write_bytes(converter.convert())
    return f"keras {tf.keras.version()}, tensorflow {tf.__version__}"


EXPORTERS: tuple[Callable[..., str], ...] = (torchvision, timm, transformers, keras)


def main() -> None:
    """Run the exporter of the command line."""
    folder, function, *arguments = sys.argv[1:]
    exporter = next(each for each in EXPORTERS if each.__name__ == function)
    try:
        print(exporter(Path(folder), *arguments))
    except ModuleNotFoundError as missing:
        print(missing, file=sys.stderr)
        sys.exit(NOT_INSTALLED)


if __name__ == "__main__":
    main()
