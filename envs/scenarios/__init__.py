"""Families of instances and their registry."""
