"""Exact predictions, by closed form or quadrature; nothing here imports measuring code."""
