"""The workload of tables: queries from a log, from Spark's event logs and from SQL files, merged."""
