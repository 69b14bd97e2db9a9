"""The numerical tests under other kernels of this processor, as other machines would run them.

    python scripts/test_machines.py [--quick] [PYTEST OPTION ...]

Processors differ in the order of their sums, so two ways to one number differ in its last bits.
Environment variables make the libraries choose the kernels of other processors, and other numbers
of threads. `bits` names what a few sums, products and exponentials come to: two rows with the same
bits tested the same kernels. No variable brings the kernels of a newer processor, or of another
maker's: EKGN_ROUNDING=other stands for them (tests/rounding.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

OLD = {
    "MKL_CBWR": "COMPATIBLE",
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "NUMBA_CPU_NAME": "generic",
    "NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3",
}
# What is set, and the number of threads.
COMBINATIONS: list[tuple[dict[str, str], int]] = [
    ({"EKGN_ROUNDING": "other"}, 1),
    (OLD, 2),
    ({}, 4),
    ({"MKL_CBWR": "COMPATIBLE"}, 1),
    ({"MKL_CBWR": "AUTO"}, 2),
    ({"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}, 4),
    ({"MKL_CBWR": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}, 1),
]
# --quick runs the first row, on what most of the others build upon.
PARTS = ("network", "l1", "kbc", "reference", "analysis", "explain")
QUICK = [f"tests/test_{part}.py" for part in PARTS]

# Runs in a process of its own: the libraries read their variables once, when they are loaded.
CHILD = """
import hashlib, sys, numpy, pytest, torch
from ekgn.network.l1 import l1_distances
from tests.rounding import chosen_rounding
torch.manual_seed(0)
a, b = torch.randn(257, 129), torch.randn(129, 200)
with chosen_rounding():
    made = [a @ b, a[:3] @ b[:, :7], a.exp(), a.sum(), a.softmax(dim=1), l1_distances(a, b.T)]
made += [torch.from_numpy(numpy.exp(a.numpy())), torch.tensor(numpy.sum(a.numpy()))]
digest = hashlib.sha256(b"".join(part.numpy().tobytes() for part in made)).hexdigest()
print("bits", digest[:8], flush=True)
sys.exit(pytest.main(["-m", "numerical and not slow", *sys.argv[1:]]))
"""


def run(changes: dict[str, str], threads: int, options: list[str]) -> tuple[bool, list[str], str]:
    """Whether the tests pass, the row of the table, and all that they printed."""
    counts = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    # Threads that wait for a core must not keep it from those that work.
    environment = {**os.environ, **counts, "OMP_WAIT_POLICY": "passive", **changes}
    environment.pop("EKGN_DATA", None)  # the tests of real benchmarks are not about kernels
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *options],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    seconds = time.monotonic() - start
    lines = done.stdout.splitlines() or ["", "nothing was printed"]
    bits = lines[0].removeprefix("bits ")
    what = " ".join(f"{name}={value}" for name, value in changes.items()) or "as it is"
    passed = done.returncode == 0
    row = ["passed" if passed else "FAILED", str(threads), bits, f"{seconds:.0f} s", what]
    return passed, row, done.stdout + done.stderr


def main() -> int:
    """Run every combination and print the table."""
    options = sys.argv[1:]
    quick = "--quick" in options
    if quick:
        options.remove("--quick")
        options += QUICK
    table = [["tests", "threads", "bits", "time", "combination"]]
    all_passed = True
    for changes, threads in COMBINATIONS[: 1 if quick else None]:
        passed, row, output = run(changes, threads, options)
        all_passed &= passed
        table.append(row)
        print(*row, flush=True)
        if not passed:
            print(output, flush=True)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print()
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    return 0 if all_passed else 1


if __name__ == "__main__":
    sys.exit(main())
