"""What a pool decides: values in, effects out."""
