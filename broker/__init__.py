"""The multi-tenant task broker: a replicated state machine that gives tasks to workers, fairly and as promised."""
