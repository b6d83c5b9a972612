"""The one storage primitive: file groups of base and delta files, written, merged on read, and folded by Spark."""

import sys

from spark_apps.storage.supported import check_spark_release

# An unsupported Spark is refused before anything is done with it: at this import, or where pyspark is first imported
# (pyspark_names). What reads without Spark imports no pyspark.
if "pyspark" in sys.modules:
    check_spark_release(sys.modules["pyspark"].__version__)
