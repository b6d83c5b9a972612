"""The one storage primitive: file groups of base and delta files, written, merged on read, and folded by Spark."""

import pyspark

from spark_apps.storage.supported import check_spark_release

# Whatever works with Spark imports this package first, and is told that it cannot before it does anything.
check_spark_release(pyspark.__version__)
