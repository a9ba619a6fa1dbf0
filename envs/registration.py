"""Importing this module tells Gymnasium about ``hetsched/Scheduling-v0``.

``gymnasium.make("hetsched.envs.registration:hetsched/Scheduling-v0", scenario="hitzges")`` does it
in one call.
"""

import gymnasium

gymnasium.register(
    id="hetsched/Scheduling-v0", entry_point="hetsched.envs.environment:SchedulingEnv"
)
