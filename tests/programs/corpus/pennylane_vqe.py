"""PennyLane: the ground state of an Ising chain of 10 qubits by a variational circuit and Adam."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pennylane as qml

jax.config.update("jax_enable_x64", True)

PACKAGES = ("pennylane", "optax")
TOLERANCE = (1e-8, "complex128")
QUBITS, LAYERS = 10, 2


def program():
    bonds = [qml.PauliZ(i) @ qml.PauliZ(i + 1) for i in range(QUBITS - 1)]
    fields = [qml.PauliX(i) for i in range(QUBITS)]
    energy = qml.Hamiltonian([-1.0] * len(bonds) + [-0.8] * len(fields), bonds + fields)

    @qml.qnode(qml.device("default.qubit", wires=QUBITS), interface="jax")
    def circuit(angles):
        for layer in range(LAYERS):
            for i in range(QUBITS):
                qml.RY(angles[layer, i, 0], wires=i)
                qml.RZ(angles[layer, i, 1], wires=i)
            for i in range(QUBITS - 1):
                qml.CNOT(wires=[i, i + 1])
        for i in range(QUBITS):
            qml.RY(angles[LAYERS, i, 0], wires=i)
        return qml.expval(energy)

    gradient = jax.jit(jax.value_and_grad(circuit))
    optimizer = optax.adam(0.1)

    @jax.jit
    def update(angles, state, slopes):
        updates, state = optimizer.update(slopes, state)
        return optax.apply_updates(angles, updates), state

    start = jnp.asarray(np.random.default_rng(1).uniform(-0.5, 0.5, (LAYERS + 1, QUBITS, 2)))

    def run():
        angles, state, energies = start, optimizer.init(start), []
        for _ in range(5):
            value, slopes = gradient(angles)
            angles, state = update(angles, state, slopes)
            energies.append(value)
        return angles, jnp.stack(energies)

    return run
