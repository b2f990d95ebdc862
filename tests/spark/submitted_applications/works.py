"""Works for as long as it is let, and has a child note that in a file which has left its group."""

import subprocess
import sys

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
note = "import sys, time\nwhile True:\n    open(sys.argv[1], 'a').write('.')\n    time.sleep(0.05)\n"
subprocess.Popen([sys.executable, "-c", note, sys.argv[1]], start_new_session=True)
while True:
    # Work of the JVM's alone: its tasks are long enough to be seen.
    hashed = spark.range(0, 200, 1, 200).selectExpr("sha2(repeat(string(id), 5000000), 512)")
    hashed.write.format("noop").mode("overwrite").save()
