"""Handwritten digits: scikit-learn's bundled 8x8 images, split, augmented and cut into batches.

In: seeds. Out: NumPy arrays; equal seeds give equal arrays, so every device sees the same data.

    digits = load_digits(seed=0)
    images, labels = batches(digits, steps=600, batch=64, seed=0)   # (600, 64, 8, 8, 1), (600, 64)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NOISE = 0.05  # standard deviation of the pixel noise, of a range of 1
LARGEST_SHIFT = 1  # pixels; the digits fill their 8x8 frame, so more would cut strokes off


@dataclass(frozen=True, slots=True)
class Digits:
    """Images are (n, 8, 8, 1) float32 in [0, 1], labels (n,) int32."""

    train_images: np.ndarray
    train_labels: np.ndarray
    test_images: np.ndarray
    test_labels: np.ndarray


def load_digits(seed: int) -> Digits:
    """The 1,797 digits, a fifth of each class held out for the test."""
    from sklearn import datasets, model_selection

    bundled = datasets.load_digits()
    images = (bundled.images / 16.0).astype(np.float32)[..., None]
    labels = bundled.target.astype(np.int32)
    train_images, test_images, train_labels, test_labels = model_selection.train_test_split(
        images, labels, test_size=0.2, random_state=seed, stratify=labels
    )
    return Digits(train_images, train_labels, test_images, test_labels)


def batches(digits: Digits, steps: int, batch: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """All batches of a training run, augmented: images (steps, batch, 8, 8, 1) and labels."""
    random = np.random.default_rng(seed)
    count = len(digits.train_labels)
    epochs = -(-steps * batch // count)
    order = np.concatenate([random.permutation(count) for _ in range(epochs)])[: steps * batch]
    images = augment(digits.train_images[order], random)
    labels = digits.train_labels[order]
    return images.reshape(steps, batch, *images.shape[1:]), labels.reshape(steps, batch)


def augment(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each image shifted by up to a pixel in both directions, with a little noise."""
    margin = LARGEST_SHIFT
    padded = np.pad(images, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    rows, columns = random.integers(0, 2 * margin + 1, (2, len(images)))
    grid = np.arange(images.shape[1])
    shifted = padded[
        np.arange(len(images))[:, None, None],
        (rows[:, None] + grid)[:, :, None],
        (columns[:, None] + grid)[:, None, :],
    ]
    noise = random.normal(0.0, NOISE, images.shape).astype(np.float32)
    return np.clip(shifted + noise, 0.0, 1.0)
