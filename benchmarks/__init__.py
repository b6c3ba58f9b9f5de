"""What sdpa-check costs, beside what the same numbers cost otherwise: ``python -m benchmarks``."""
