"""The tables of rules: every op that can be imported, from the files of its families.

`RULES` are for plain tensors; `LIFTED_RULES` for ops on complex and small element types that
differ from the plain rule applied by plane or by value (`lifted/`). `rule_of` picks one.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from tinyhlo.import_stablehlo import control
from tinyhlo.import_stablehlo.families import fft, ragged
from tinyhlo.import_stablehlo.lifted import complex_arithmetic, complex_functions, small_rules
from tinyhlo.import_stablehlo.lifted.lifting import lifted
from tinyhlo.import_stablehlo.records import Form, Operation
from tinyhlo.import_stablehlo.spmd import collectives, manual
from tinyhlo.import_stablehlo.walker import Rule

FAMILIES = """
    broadcasting calls contraction conversions convolution custom_calls einsum elementwise indexing
    linalg movement normalization pooling ragged random_bits reductions scattering sorting
    special_functions windows
"""

TOGETHER = {**collectives.TOGETHER, **control.TOGETHER, **manual.TOGETHER}
RULES: dict[str, Rule] = {**collectives.RULES, **control.RULES, **manual.RULES} | {
    name: rule
    for family in FAMILIES.split()
    for name, rule in import_module(f"tinyhlo.import_stablehlo.families.{family}").RULES.items()
}
LIFTED_RULES: dict[Form, dict[str, Rule]] = {
    Form.COMPLEX: {**complex_arithmetic.RULES, **complex_functions.RULES, **fft.RULES},
    Form.SMALL: small_rules.RULES,
}
# ops of which some are left to jaxlib's expansions
EXCEPT: dict[str, Callable[[Operation], bool]] = {
    "chlo.next_after": lambda operation: operation.form is Form.SMALL,  # steps of those bits
    # of complex numbers their pass ends the process
    "chlo.ragged_dot": lambda op: op.form is not Form.COMPLEX and ragged.is_batched(op),
}


def rule_of(operation: Operation) -> Rule | None:
    """How to import an op. On complex and small types: its rule for them, or the one for plain
    tensors lifted; None when there is neither."""
    name, form = operation.name, operation.form
    plain = RULES.get(name)
    if name in EXCEPT and EXCEPT[name](operation):
        return None
    if form is Form.PLAIN:
        return plain
    own = LIFTED_RULES[form].get(name)
    return own or (lifted(plain, operation) if plain is not None else None)
