"""Queries that find their index: a rule in Spark's optimizer puts what the planner chooses in the place of a scan."""
