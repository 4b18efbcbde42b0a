"""The work: one file for each suite."""
