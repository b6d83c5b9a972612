"""Random tables, random histories, random predicates: what a table answers is held against engines that know nothing of
its code, DuckDB and plain Spark, over raw rows that the test keeps itself.
"""
