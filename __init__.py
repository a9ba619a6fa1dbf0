"""hetsched: a learned scheduler for jobs on unrelated GPU machines."""

__version__ = "0.1.0"
