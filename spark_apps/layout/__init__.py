"""The layout of rows: typed values, partitions, buckets, and rules for bucket counts. No Spark in it."""
