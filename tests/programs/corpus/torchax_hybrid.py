"""torchax: a PyTorch network of separable convolutions and attention on JAX, trained by its own
`make_train_step` and AdamW, then asked operation by operation."""

import jax
import numpy as np
import optax
import torch
import torchax
from torch import nn
from torchax import interop
from torchax.train import make_train_step

PACKAGES = ("torchax", "torch", "optax")
TOLERANCE = (1e-3, "float32, 6 steps of Adam; answers: what softmax takes out has no gradient")


class Separable(nn.Module):
    """A convolution per channel, one of all channels, normalized by batch, and a gate per channel
    (MobileNet, EfficientNet)."""

    def __init__(self, width, out, stride):
        super().__init__()
        self.apart = nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 8, 1), nn.SiLU(), nn.Conv2d(8, width, 1)
        )
        self.together = nn.Conv2d(width, out, 1)

    def forward(self, x):
        x = nn.functional.hardswish(self.norm(self.apart(x)))
        return self.together(x * torch.sigmoid(self.gate(x)))


class Hybrid(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.GELU())
        self.blocks = nn.Sequential(Separable(16, 32, 1), Separable(32, 64, 2))
        self.places = nn.Parameter(0.02 * torch.randn(1, 64, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.memory = nn.GRU(64, 32, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, images):
        x = self.blocks(self.stem(images)).flatten(2).transpose(1, 2)
        x = self.encoder(x + self.places)
        return self.head(self.memory(x[:, ::8])[0][:, -1])


def program():
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    images = torch.from_numpy(random.random((16, 3, 32, 32), dtype="float32"))
    digits = torch.from_numpy(random.integers(0, 10, 16))
    model = Hybrid()
    env = torchax.default_env()
    with env:
        model, images, digits = model.to("jax"), images.to("jax"), digits.to("jax")
    weights, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    optimizer = optax.adamw(1e-3)

    def apply(weights, buffers, args):
        return torch.func.functional_call(model, {**weights, **buffers}, args)

    step = make_train_step(apply, nn.CrossEntropyLoss(), optimizer)
    step = interop.jax_jit(step)

    def train():
        found, state = weights, interop.call_jax(optimizer.init, weights)
        costs = []
        for _ in range(6):
            cost, found, state = step(found, buffers, state, (images,), digits)
            costs.append(cost)
        model.eval()
        with env, torch.no_grad():  # nothing is jitted
            answers = torch.func.functional_call(model, {**found, **buffers}, images)
        model.train()
        return jax.tree.map(lambda tensor: tensor.jax(), (costs, answers))

    return train
