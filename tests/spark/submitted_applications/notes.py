"""Notes that it lives, for as long as it is let; without a file to note it in it ends at once. It needs no executor."""

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
while len(sys.argv) > 1:
    # Asked of the JVM: a program that outlives its driver notes nothing more.
    spark.sparkContext._jvm.java.lang.System.nanoTime()
    with Path(sys.argv[1]).open("a") as file:
        file.write(".")
    time.sleep(0.05)
spark.stop()
