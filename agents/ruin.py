"""Ruin and recreate among the moves of annealing: what one move at a time does not reach.

Ruin and recreate is of Schrimpf, Schneider, Stamm-Wilbrandt & Dueck (2000); that short strings of
neighbours are taken out of sequences close to each other, and that good places are overlooked now
and then, of Christiaens & Vanden Berghe (2020).  Close means here: at about the same time.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hetsched.agents.annealing import Annealing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hetsched.agents.sequences import Sequences
    from hetsched.envs.instance import Instance
    from hetsched.envs.objective import Objective
    from hetsched.envs.schedule import Schedule

SHARE = 0.8  # of the time is for ruins
STRINGS, LONGEST, BLINK = 3, 3, 0.01  # strings a ruin, jobs a string, how often a place is missed
WORTH = 5.0  # moves in the time of a ruin, over the root of the number of jobs; by measurement
GOOD = 1.5  # a machine is good for a job up to so many times its fastest duration


class RuinAndRecreate(Annealing):
    """One chain of moves and ruins that can be continued, at any temperature.

    Args:
        as for :class:`Annealing`.
    """

    def __init__(
        self, instance: Instance, objective: Objective, seed: int, start: Schedule | None = None
    ) -> None:
        super().__init__(instance, objective, seed, start)
        self._orders = _orders(self._now)

    def run_mixed(self, moves: int, temperature: float, floor: float = 0.0) -> int:
        """Make ruins and moves that take about as long as so many moves; gives that number.

        Args:
            temperature, floor: as for :meth:`run`.
        """
        worth = round(WORTH * self._now.instance.num_jobs**0.5)
        ruins = int(SHARE * moves) // worth
        made = self.run(moves - ruins * worth, temperature, temperature, floor)
        return made + worth * self.ruin(ruins, temperature, temperature, floor)

    def ruin(self, ruins: int, hot: float, cold: float, floor: float = 0.0) -> int:
        """As :meth:`run`, with ruins instead of moves."""
        settings = self._orders, STRINGS, LONGEST, BLINK
        return self._change(_compiled(), ruins, hot, cold, floor, *settings)


def _orders(solution: Sequences) -> NDArray[np.float64]:
    """(orders, jobs): keys by which jobs are put back, smallest first."""
    instance, quick = solution.instance, solution.times.min(axis=1)
    good = (solution.times <= GOOD * quick[:, None]).sum(axis=1)  # machines
    weights = instance.weights
    return np.array([-weights / quick, -weights, instance.due_times, -quick, good], np.float64)


@cache
def _compiled() -> Any:
    """The inner loop; compiled at first use and kept on disk by numba."""
    from hetsched.agents.ruin_loop import ruin_loop

    return ruin_loop
