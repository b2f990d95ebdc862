"""Code pools on the worker's side: archives fetched, checked, unpacked, and run in processes of their own."""
