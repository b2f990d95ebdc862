"""What a task broker did, kept for good: its log as Delta tables that outlive its own purge."""
