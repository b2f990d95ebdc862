"""A pool of workers that something else starts: Spark's tasks, for one (`jobs/worker_pool.py`).

One process, the pool's controller, decides how many workers there are, has them started, and tells them when to end;
each worker holds one connection to it besides its stream to the broker: decision 13 says why. Not to be
confused with code pools, which are archives of task code.

    core/           how many workers are wanted, and who is where: no IO
    channel         what controller and workers say to each other, and how both know that it is them
    member_server   the controller's end, link the worker's
    member          the worker: runs wherever it was started
    backlog         what waits at the broker, pushed
    controller      wires all that
    statement_tasks tasks of type `spark_sql`
"""
