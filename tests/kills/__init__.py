"""Ends of every kind, met by every kind of work, on a real scheduler: ``python -m tests.kills`` or ``make kills``."""
