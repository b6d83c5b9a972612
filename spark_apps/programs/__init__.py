"""The programs that are handed to Spark: one a file, which runs one action of a job."""
