"""A table without Spark: real timelines over a store in memory whose every call can be held, failed or lost.

What the log says is judged by :mod:`tests.simulation.checker`, which shares no code with what it judges.
"""
