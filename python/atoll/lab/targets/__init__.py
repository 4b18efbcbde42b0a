"""What can be measured: one file for each kind of target."""
