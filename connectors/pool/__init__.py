"""Long-lived work on Spark's executors, and statements in the driver's session: what a pool of workers needs of Spark.

Nothing here knows what the work is: it is named by a text, or comes as a statement.
"""
