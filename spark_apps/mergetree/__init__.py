"""The one storage primitive: file groups of base and delta files, written, merged on read, and folded by Spark."""
