"""Families of random instances, one file each, and their registry.

Sources and distributions: ``docs/scenarios.md``.
"""

from hetsched.envs.scenarios.registry import get_scenario, scenario_names
from hetsched.envs.scenarios.scenario import Scenario, sample_instances

__all__ = ["Scenario", "get_scenario", "sample_instances", "scenario_names"]
