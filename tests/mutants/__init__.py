"""Faults planted one at a time in a copy of the code, and which tests find each: ``make mutants``.

The list is ``faults.toml``, what was found stands in ``results.json``. A fault that nothing finds is a test to write.
"""
