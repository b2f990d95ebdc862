"""Counts, and says with what it was called and under which settings."""

import json
import os
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
context = spark.sparkContext
print(
    json.dumps(
        {
            "args": sys.argv[1:],
            "count": spark.range(100).count(),
            "id": context.applicationId,
            "master": context.master,
            "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
            "task": context.getConf().get("spark.rsm.task"),
            "run": os.environ["RSM_ASSIGNMENT_ID"],
            "options": context.getConf().get("spark.driver.extraJavaOptions", ""),
        }
    )
)
spark.stop()
