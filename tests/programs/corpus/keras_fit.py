"""Keras on JAX: `fit`, `predict` and `evaluate` of a small convolutional network."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np
from keras import layers

PACKAGES = ("keras",)
TOLERANCE = (1e-4, "float32, 8 steps with momentum")


def program():
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    images = random.random((128, 28, 28, 1), dtype="float32")
    digits = random.integers(0, 10, 128)
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(16, 3, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.MaxPooling2D(),
            layers.SeparableConv2D(32, 3, padding="same", activation="relu"),
            layers.AveragePooling2D(2),
            layers.Conv2D(32, 3, strides=2, activation="gelu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(64, activation="swish", kernel_regularizer="l2"),
            layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    start = model.get_weights()

    def run():
        model.set_weights(start)
        for variable in model.optimizer.variables:
            if "learning" not in variable.path:
                variable.assign(np.zeros(variable.shape, variable.dtype))
        fitted = model.fit(images, digits, batch_size=32, epochs=2, shuffle=False, verbose=0)
        history = {name: np.array(values, "f4") for name, values in fitted.history.items()}
        predicted = model.predict(images[:64], batch_size=32, verbose=0)
        score = np.array(model.evaluate(images, digits, batch_size=64, verbose=0), "f4")
        return history, predicted, score, model.get_weights()

    return run
