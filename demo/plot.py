"""Curves as text (braille dots, two columns and four rows a character) and as a PNG.

print(plot_text({"tiny": losses, "XLA:CPU": others}, width=72, height=14))
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from rich.text import Text

# dot (row, column) of a character cell -> its bit in U+2800..U+28FF
BRAILLE = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], np.uint8)
COLOURS = ("cyan", "magenta")
COLOUR_OF_BOTH = "white"


def plot_text(curves: Mapping[str, np.ndarray], width: int, height: int) -> Text:
    """Up to two positive curves over their index on a logarithmic axis; where they cover each
    other the dots are white."""
    logs = {name: np.log10(smooth(values)) for name, values in curves.items()}
    low = min(float(values.min()) for values in logs.values())
    high = max(float(values.max()) for values in logs.values())
    layers = [cells(values, low, high, width, height) for values in logs.values()]
    text = Text()
    for row in range(height):
        share = 1.0 - row / max(1, height - 1)
        text.append(f"{10 ** (low + share * (high - low)):9.2g} ┤", style="dim")
        for column in range(width):
            bits = [int(layer[row, column]) for layer in layers]
            owners = [k for k, b in enumerate(bits) if b]
            style = COLOUR_OF_BOTH if len(owners) != 1 else COLOURS[owners[0]]
            text.append(chr(0x2800 + int(np.bitwise_or.reduce(bits))), style=style)
        text.append("\n")
    steps = max(len(values) for values in curves.values())
    text.append(" " * 11 + f"0{'step':^{width - 1 - len(str(steps))}}{steps}\n", style="dim")
    text.append(" " * 11)
    for name, colour in zip(curves, COLOURS, strict=False):
        text.append(f"● {name}   ", style=colour)
    text.append("● both", style=COLOUR_OF_BOTH)
    return text


def cells(values: np.ndarray, low: float, high: float, width: int, height: int) -> np.ndarray:
    """The braille bits of one curve, a byte per character."""
    columns = np.arange(2 * width)
    sampled = np.interp(columns, np.linspace(0, 2 * width - 1, len(values)), values)
    span = (high - low) or 1.0
    rows = np.rint((high - sampled) / span * (4 * height - 1)).astype(int)
    bits = np.zeros((height, width), np.uint8)
    for column, row in zip(columns, rows, strict=True):
        bits[row // 4, column // 2] |= BRAILLE[row % 4, column % 2]
    return bits


def smooth(values: np.ndarray, window: int = 9) -> np.ndarray:
    """A centred running mean; single batches are noisy."""
    if len(values) < window:
        return values
    padded = np.pad(values, window // 2, mode="edge")
    return np.convolve(padded, np.full(window, 1.0 / window), mode="valid")


def plot_png(curves: Mapping[str, np.ndarray], path: Path) -> None:
    """The same plot as an image, single batches behind the running mean."""
    import matplotlib

    matplotlib.use("Agg")  # no display needed
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    styles = (("tab:cyan", "-", 3.0), ("tab:purple", "--", 1.2))
    for (name, values), (colour, line, width) in zip(curves.items(), styles, strict=False):
        axes.plot(values, color=colour, alpha=0.15, linewidth=0.8)
        axes.plot(smooth(values), color=colour, linestyle=line, linewidth=width, label=name)
    axes.set(yscale="log", xlabel="step", ylabel="cross entropy", title="handwritten digits")
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
