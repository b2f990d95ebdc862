"""Has a warm server work for as long as it is let, also in a session that is not its own; a second run ends at once."""

import os
import sys
import threading

from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as OtherSession


def work(session):
    while True:
        hashed = session.range(0, 200, 1, 200).selectExpr("sha2(repeat(string(id), 5000000), 512)")
        hashed.write.format("noop").mode("overwrite").save()


spark = SparkSession.builder.getOrCreate()
if os.environ["RSM_ATTEMPT"] != "1":
    print(spark.range(7).count())
    sys.exit()
if "besides" in sys.argv:
    address = os.environ["SPARK_REMOTE"].split("/;")[0]
    other = OtherSession.builder.remote(f"{address}/;user_id=somebody").create()
    threading.Thread(target=work, args=(other,), daemon=True).start()
work(spark)
