"""The jail of code that comes with tasks: of what the kernel has, put on before any of it runs."""
