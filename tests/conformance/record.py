"""Run openxla's whole test data and the corpus, and write their section of docs/conformance.md.

python -m tests.conformance.record
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Sequence

from tests.conformance.sections import circumstances, shortened, write_section
from tests.conformance.suites import MISSING, Case, run_corpus, run_openxla, suites_folder
from tinyhlo.config import from_environment
from tinyhlo.devices import kind_of
from tinyhlo.runtime.devices.device import available

SHOWN = 120  # characters of a message
ORDER = ("pass", "loose", "fail", "error", "crash", "timeout", "unsupported", "skip")

INTRODUCTION = """## Suites that others wrote{where}

{circumstances}

*pass* is what upstream demands (equal, or within 3 units in the last place), *loose* only within a
wider tolerance, *unsupported* a clear `UnsupportedOp`, *skip* what the runner cannot run on one
device. *Plain* cases have no complex, quantized or sub-byte type. Constants of the cases are given
as arguments, so nothing passes by constant folding.
"""


# What was found out about cases that do not pass
FFT_ORDER = "the expected sums are added in another FFT's order; upstream does not run this case"
NOTES = {
    "cosh_float32_20_20_chlo": "the expected values are up to 4.3 ulp from the exact ones",
    "random_gamma_float64_3_chlo": "where 1 + c x is fused; the expected value is 2.6 ulp from the "
    "exact one, ours 2.4",
    "sinh_float32_20_20_chlo": "the expected values are up to 6.6 ulp from the exact ones, ours up "
    "to 1.6",
    "expm1_complex64_20_20": "the expected imaginary parts are up to 3,066 ulp from the exact ones",
    "fft_complex64_14_15_16_17": FFT_ORDER,
    "fft_complex128_14_15_16_17": FFT_ORDER,
    "fft_float32_14_15_16_17": FFT_ORDER,
    "fft_float64_14_15_16_17": FFT_ORDER,
    "sin_complex64_20_20": "the expected imaginary parts are up to 3.5 ulp from the exact ones, "
    "ours up to 2.2",
    "pow_complex64_20_30_complex64_20_30": "badly conditioned: the expected values are up to 9,108 "
    "ulp from the exact ones, ours up to 9,107",
    "cumprod_complex64_8_9": "parts that cancel: the expected values are up to 147 ulp from the "
    "exact ones, ours up to 200",
    "conv_general_dilated_float32_2_3_9_float32_12_1_3": "products are added without rounding them "
    "first",
    "triangular_solve_float32_2_8_8_float32_2_10_8": "XLA:CPU itself is 10 ulp off here",
    "cumsum_bfloat16_8_9": "ours is the exact sum, rounded once; expected are sums rounded at "
    "every step",
    "hf_gpt2_train": "XLA:CPU, which recorded the outputs with AVX-512, is itself 0.0062 away with "
    "AVX2, and moves by 0.0072 when the inputs move by 1e-7: Adam divides gradients that are zero "
    "but for rounding",
    "llama_train_bf16": "XLA:CPU, which recorded the outputs with AVX-512, is itself 0.025 away "
    "with AVX2; bfloat16 keeps 8 bits. Computed in float32, the program is 0.030 away from ours "
    "and 0.044 from the recorded outputs",
}


def main() -> int:
    """Write the page; the exit code is 0 when the suites are there, whatever passes."""
    folder = suites_folder()
    if folder is None:
        print(f"nothing recorded: {MISSING}", file=sys.stderr)
        return 2
    print("running openxla's test data ...")
    openxla = run_openxla(folder, None, processes=2)
    print("running the corpus of real programs ...")
    corpus = run_corpus(folder)
    device = from_environment().device
    write_section(
        "suites" if kind_of(device).on_host else f"suites-{device}", section(openxla, corpus)
    )
    print("wrote the suites' section of docs/conformance.md")
    for name, cases in suites(openxla, corpus):
        print(f"  {name}: {counts(cases)}")
    return 0


def suites(openxla: Sequence[Case], corpus: Sequence[Case]) -> list[tuple[str, list[Case]]]:
    plain = [case for case in openxla if case.plain]
    other = [case for case in openxla if not case.plain]
    return [
        ("openxla/stablehlo testdata, plain", plain),
        ("openxla/stablehlo testdata, other types", other),
        ("corpus of real programs", list(corpus)),
    ]


def section(openxla: Sequence[Case], corpus: Sequence[Case]) -> str:
    """The suites' section of docs/conformance.md."""
    device = from_environment().device
    where = "" if kind_of(device).on_host else f", on {device}: {dict(available())[device]}"
    lines = [INTRODUCTION.format(where=where, circumstances=circumstances())]
    lines += ["| suite | cases | " + " | ".join(ORDER) + " | pass rate |"]
    lines += ["|---|" + "---:|" * (len(ORDER) + 2)]
    for name, cases in suites(openxla, corpus):
        lines.append(row(name, cases))
    for name, cases in suites(openxla, corpus):
        failing = [case for case in cases if case.status not in ("pass", "skip")]
        lines += ["", f"### {name}: {len(failing)} not passing", ""]
        lines += [f"* `{case.name}` {case.status}: {remark(case)}" for case in failing]
    return "\n".join(lines) + "\n"


def row(name: str, cases: Sequence[Case]) -> str:
    number = collections.Counter(case.status for case in cases)
    ran = len(cases) - number["skip"]
    rate = f"{number['pass'] / ran:.1%}" if ran else "-"
    cells = [name, str(len(cases)), *(str(number[status]) for status in ORDER), rate]
    return "| " + " | ".join(cells) + " |"


def counts(cases: Sequence[Case]) -> str:
    number = collections.Counter(case.status for case in cases)
    return ", ".join(f"{number[status]} {status}" for status in ORDER if number[status])


def remark(case: Case) -> str:
    """The message of a case, and what is known about it."""
    note = NOTES.get(case.name)
    return shortened(case.message, SHOWN) + (f" ({note})" if note else "")


if __name__ == "__main__":
    sys.exit(main())
