"""The one storage primitive: file groups of base and delta files, written, merged on read, and folded by Spark."""

import sys

from spark_apps.storage.supported import check_spark_release

# Whatever works with Spark is told that it cannot before it does anything: here, or where pyspark is first imported
# (pyspark_names). What reads without Spark imports no pyspark.
if "pyspark" in sys.modules:
    check_spark_release(sys.modules["pyspark"].__version__)
