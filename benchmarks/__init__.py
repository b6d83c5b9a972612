"""Measurements, one module a question; ``python -m benchmarks`` runs them. No figure fails a run: none is a test."""
