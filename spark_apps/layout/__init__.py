"""Where a row belongs: typed values, partitions, buckets, and rules for bucket counts. No Spark in it."""
