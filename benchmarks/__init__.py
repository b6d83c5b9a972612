"""Measurements, one module a question; ``python -m benchmarks`` runs them. Nothing here is a test: no figure fails a run."""
