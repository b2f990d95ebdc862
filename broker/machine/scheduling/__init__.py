"""Scheduling: which worker runs which task, and at which time.

class      tasks of one group, type and set of resources: alike to every worker
queue      the waiting tasks of one tenant and class, by priority and id; tasks of held keys are left out
limit      of what is used beyond one worker (resource, cap, hold); it keeps what is blocked on it, and wakes it
share      the service a tenant has had, as virtual time: the least is served first
worker     an offer, and what runs there; a class that finds no room on it looks again when something there ends

A step costs the classes that are neither empty nor blocked, and log n of their tenants; never what waits or is blocked,
and never the workers that are full. What keeps a task waiting is always one of the above, so it can be told. Which of
several closed limits a queue or class meets does not matter: woken, it is looked at again, and the next one blocks it.

Tenants share by virtual time:

    virtual time(now) = service(now) / weight + a quantum / weight per dispatch        service in thread-ms

The tenant with the least is served first. Three additions make that fair in the short run too:

1. **What runs is charged ahead.** Durations are not known before a task ends; the mean of the tenant's last ones of
   that type is expected. A tenant's running tasks count with what they have used or what they are expected to use,
   whichever is more. Without it a newcomer would take every thread that becomes free until its *used* time had caught
   up, and the old ones then again: with jobs of an hour a swing of hours.
2. **Waiting earns nothing.** A tenant that becomes runnable starts at the least virtual time of those with whom it
   competes, unless its own is higher: no credit is hoarded by idling, no debt is forgiven by idling for a moment.
3. **Credit is bounded.** Whoever was runnable but not placeable (its workers were full) is at most `CREDIT_MS_MAX`
   behind the one that was served last.

Virtual time rises while time goes on; it falls only when a task ends earlier than expected.
"""
