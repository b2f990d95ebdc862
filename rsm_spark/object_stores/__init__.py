"""Object stores: their options, what they complain of in words without secrets, and S3."""
