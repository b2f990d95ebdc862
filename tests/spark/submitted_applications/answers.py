"""Says when it began, when it had a session, and when its first action was answered; the same in each mode."""

import time

began_s = time.time()

from pyspark.sql import SparkSession  # noqa: E402 - the import is part of the start

spark = SparkSession.builder.getOrCreate()
connected_s = time.time()
spark.range(100).selectExpr("sum(id)").first()
print(began_s, connected_s, time.time())
spark.stop()
