"""The `sdpa-check` command, also as ``python -m sdpa_check``."""

from __future__ import annotations

import os
import sys

_BLAS_THREADS = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OMP_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def main() -> None:
    """Run the command line and exit with its code."""
    # Before numpy is loaded: blocks run in threads, each with a BLAS of one thread. Two levels of
    # threads would compete for the cores, and only a single-threaded BLAS gives the same bits.
    os.environ.update(dict.fromkeys(_BLAS_THREADS, "1"))
    try:
        from sdpa_check.cli import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before the command line could take it
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    main()
