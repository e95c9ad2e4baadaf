"""Trains ``digits-cnn`` in plain NumPy and writes the network and its data beside this file.

Run ``python -m experiments.models.train_digits`` (needs the ``train`` extra: scikit-learn, for its handwritten digits
only). Everything is drawn from one seed. The result, ``digits-cnn.onnx`` and ``digits-data.npz``, is committed, so
nothing here is needed to run the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.models.digits import DATA_FILE, MODEL_FILE, digits_graph
from experiments.models.training import Parameters, accuracy, initial_parameters, loss_and_gradients

HELD_OUT = 450
CALIBRATION = 64


@dataclass(frozen=True)
class Digits:
    """scikit-learn's 1797 digits, shuffled and split: images uint8 (N, 8, 8) with values 0..16, labels int64 (N,)."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.int64]


def load_digits(seed: int) -> Digits:
    """The data set with the last 450 images of a seeded permutation held out."""
    from sklearn.datasets import load_digits as sklearn_digits

    bunch = sklearn_digits()
    order = np.random.default_rng(seed).permutation(len(bunch.target))
    images = bunch.images.astype(np.uint8)[order]
    labels = bunch.target.astype(np.int64)[order]
    return Digits(images[:-HELD_OUT], labels[:-HELD_OUT], images[-HELD_OUT:], labels[-HELD_OUT:])


def normalise(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """uint8 (N, 8, 8) with values 0..16 to the network's float32 (N, 1, 8, 8) with values 0..1."""
    return (images.astype(np.float32) / 16.0)[:, np.newaxis]


def shifted(images: NDArray[np.float32], generator: np.random.Generator) -> NDArray[np.float32]:
    """Each image (N, 1, 8, 8) moved by -1, 0 or 1 pixels in both directions: the only augmentation."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = generator.integers(0, 3, size=(2, len(images)))
    return np.stack([p[:, r : r + 8, c : c + 8] for p, r, c in zip(padded, rows, columns, strict=True)])


def train(digits: Digits, seed: int, epochs: int = 40, batch: int = 32) -> Parameters:
    """Adam on the cross entropy with a cosine learning rate from 0.003 to 0; returns the trained parameters."""
    generator = np.random.default_rng(seed)
    parameters = initial_parameters(generator)
    first = {name: np.zeros_like(value) for name, value in parameters.items()}
    second = {name: np.zeros_like(value) for name, value in parameters.items()}
    images = normalise(digits.train_images)
    steps_per_epoch = len(images) // batch
    for step in range(epochs * steps_per_epoch):
        if step % steps_per_epoch == 0:
            order = generator.permutation(len(images))
        chosen = order[step % steps_per_epoch * batch :][:batch]
        _, gradients = loss_and_gradients(parameters, shifted(images[chosen], generator), digits.train_labels[chosen])
        rate = 0.0015 * (1 + np.cos(np.pi * step / (epochs * steps_per_epoch)))
        adam_step(parameters, gradients, first, second, step + 1, float(rate))
    return parameters


def adam_step(
    parameters: Parameters, gradients: Parameters, first: Parameters, second: Parameters, step: int, rate: float
) -> None:
    """One update of Adam (Kingma and Ba, 2015) with its default moments, in place; ``step`` counts from 1."""
    for name, gradient in gradients.items():
        first[name] = 0.9 * first[name] + 0.1 * gradient
        second[name] = 0.999 * second[name] + 0.001 * gradient**2
        unbiased = first[name] / (1 - 0.9**step)
        spread = np.sqrt(second[name] / (1 - 0.999**step))
        parameters[name] = (parameters[name] - rate * unbiased / (spread + 1e-8)).astype(np.float32)


def main(seed: int = 1) -> None:
    """Train, print the held-out accuracy, write both files."""
    import onnx

    digits = load_digits(seed)
    parameters = train(digits, seed)
    print(f"held-out accuracy {accuracy(parameters, normalise(digits.test_images), digits.test_labels):.4f}")
    folder = Path(__file__).parent
    onnx.save_model(digits_graph(parameters), folder / MODEL_FILE)
    np.savez_compressed(
        folder / DATA_FILE,
        images=digits.test_images,
        labels=digits.test_labels.astype(np.uint8),
        calibration=digits.train_images[:CALIBRATION],
    )


if __name__ == "__main__":
    main()
