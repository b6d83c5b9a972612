"""Random joins whose keys are computed from rows that outer joins and sums make, compared with Spark alone."""
