"""Index of the broker's tables: objects that each keep their own invariants.

tasks      tasks by status, tenant, type, worker, transaction; bytes; rows that are left over
timers     when to look at what
workers    rows and offers of workers; dead ones have a plan
admin      policies of tenants, holds, use of code pools
demands    changed demands of waiting tasks, of which the scheduler is to hear
purging    ended tasks, payloads, replies to request keys: what goes in time, or beyond a quota

All of it is kept by folding records, and rebuilt from the tables: see `broker.machine.rebuilding`. Each class has a
`validate` for tests.
"""
