"""Measurements of atoll against the same work on a plain file system; `python -m benchmarks --help`."""
