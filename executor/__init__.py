"""From decisions to running work."""
