"""Run the benchmarks."""

from __future__ import annotations

import os
import sys

# Before numpy is loaded: a figure of one worker is one of one thread, on both sides.
os.environ.update(
    OPENBLAS_NUM_THREADS="1",
    MKL_NUM_THREADS="1",
    OMP_NUM_THREADS="1",
    BLIS_NUM_THREADS="1",
    VECLIB_MAXIMUM_THREADS="1",
)

from benchmarks.command import main

if __name__ == "__main__":
    sys.exit(main())
