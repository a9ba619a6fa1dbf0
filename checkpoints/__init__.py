"""Policies that ship with hetsched."""
