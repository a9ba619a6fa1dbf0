"""Scheduling problems: instances, objectives, simulation; no learning in here."""
