"""The compiled inner loop of simulated annealing; imported only when it is used.

For every machine the loop keeps, behind each position of its sequence, the time at which the
machine is free and the cost so far.  A proposal is priced from the first position it changes, and
given up as soon as its cost passes what the acceptance draw, made beforehand, allows: costs only
grow along a sequence.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

import numba
import numpy as np

jit = numba.njit(cache=True, nogil=True)


@jit
def draw(rng):
    """Uniform in [0, 1): xorshift64* (Vigna 2016) on the one number in ``rng``."""
    x = rng[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    rng[0] = x
    return np.float64((x * np.uint64(2685821657736338717)) >> np.uint64(11)) * 2.0**-53


@jit
def late(finish, due, rate):
    """Cost of a machine that finishes after its due time."""
    return rate * (finish - due) if finish > due else 0.0


@jit
def price(data, machine, last, jobs, begin, end, free, cost, limit):
    """(cost, finish) with jobs[begin:end] behind a prefix; infinity once it passes the limit."""
    times, release, due, weight, setups, has_setups, factors = data
    for at in range(begin, end):
        job = jobs[at]
        start = max(free, release[job])
        if has_setups:
            setup = setups[last, job, machine]
            start += setup
            cost += factors[5] * setup
        free = start + times[job, machine]
        if free > due[job]:
            cost += factors[1] * weight[job] * (free - due[job])
        cost += factors[3] * weight[job] * free + factors[4] * (free - release[job])
        if cost > limit:
            return np.inf, free
        last = job
    return cost, free


@jit
def refresh(data, machine, begin, sequences, length, frees, costs, position):
    """Recompute what is kept of a machine behind a position; gives (cost, finish).

    Without the tardiness of the machine, as ``price``.
    """
    # The step is written out as in ``price``: a function for both takes 2.4 times as long.
    times, release, due, weight, setups, has_setups, factors = data
    last = sequences[machine, begin - 1] if begin > 0 else len(release)
    free, cost = frees[machine, begin], costs[machine, begin]
    for at in range(begin, length):
        job = sequences[machine, at]
        start = max(free, release[job])
        if has_setups:
            setup = setups[last, job, machine]
            start += setup
            cost += factors[5] * setup
        free = start + times[job, machine]
        if free > due[job]:
            cost += factors[1] * weight[job] * (free - due[job])
        cost += factors[3] * weight[job] * free + factors[4] * (free - release[job])
        frees[machine, at + 1], costs[machine, at + 1] = free, cost
        position[job] = at
        last = job
    return cost, free


@jit
def copy(target, at, sequences, machine, begin, end):
    """``target[at:] = sequences[machine, begin:end]``; numba's own slices cost more."""
    for offset in range(end - begin):
        target[at + offset] = sequences[machine, begin + offset]


LEVELLING = 0.5  # how much the squared finish times weigh beside the makespan


@jit
def anneal_loop(
    times, fast, release, due, weight, available, machine_due, machine_weight, setups, has_setups,
    factors, sequences, lengths, best_sequences, best_lengths, best, floor, moves, warm, cool, rng,
    focus, near,
):  # fmt: skip
    """Change ``sequences`` (machines, jobs) and ``lengths`` (machines,) by accepted moves.

    Copies what is cheaper than ``best`` to ``best_sequences`` and ``best_lengths``, and stops
    early at a cost of ``floor``.  The temperature falls from ``warm`` to ``cool``, in units of
    cost.  ``focus`` above 1 prefers machines that are fast for the job, and a share of ``near``
    stays on its machine.  Gives (best, moves made).
    """
    machines, jobs = sequences.shape
    data = times, release, due, weight, setups, has_setups, factors
    rates = factors[2] * machine_weight
    free, cost = np.zeros((machines, jobs + 1)), np.zeros((machines, jobs + 1))
    where, position = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
    totals, finishes = np.zeros(machines), np.zeros(machines)
    for k in range(machines):
        free[k, 0] = available[k]
        own, finish = refresh(data, k, 0, sequences, lengths[k], free, cost, position)
        totals[k], finishes[k] = own + late(finish, machine_due[k], rates[k]), finish
        for at in range(lengths[k]):
            where[sequences[k, at]] = k
    critical = np.argmax(finishes)
    makespan = finishes[critical]
    current = totals.sum() + factors[0] * makespan
    # The makespan alone tells good moves from bad ones on the last machine only; so acceptance
    # also feels the mean squared finish time, over the first makespan.
    levelling = LEVELLING * factors[0] / (machines * max(makespan, 1e-300))
    first, second = np.empty(jobs + 1, np.int64), np.empty(jobs + 1, np.int64)
    temperature = warm
    cooling = (cool / warm) ** (1.0 / max(moves, 1))
    if current < best * (1.0 - 1e-12):
        best = current
        best_sequences[:] = sequences
        best_lengths[:] = lengths
    for move in range(moves):
        if best <= floor:
            return best, move
        temperature *= cooling
        job = int(draw(rng) * jobs)
        a, i = where[job], position[job]
        b = a if draw(rng) < near else fast[job, int(machines * draw(rng) ** focus)]
        if times[job, b] == np.inf:
            continue
        length_a, length_b = lengths[a], lengths[b]
        exchange = draw(rng) < 0.5
        if exchange:
            if length_b == 0:
                continue
            j = int(draw(rng) * length_b)
            other = sequences[b, j]
            if other == job or times[other, a] == np.inf:
                continue
        elif a == b:
            if length_a == 1:
                continue
            j = int(draw(rng) * (length_a - 1))
            if j >= i:  # anywhere but where it is
                j += 1
        else:
            j = int(draw(rng) * (length_b + 1))
        allowed = -temperature * np.log(1.0 - draw(rng))  # rise that Metropolis accepts
        rest = makespan  # of the machines that are not touched
        if factors[0] > 0.0 and critical in (a, b):
            rest = 0.0
            for k in range(machines):
                if k != a and k != b:
                    rest = max(rest, finishes[k])
        slack = allowed - factors[0] * (rest - makespan)  # rise of the machines' own costs

        if a == b:
            low = min(i, j)
            copy(first, low, sequences, a, low, length_a)
            if exchange:
                first[i] = other
            elif i < j:
                copy(first, i, sequences, a, i + 1, j + 1)
            else:
                copy(first, j + 1, sequences, a, j, i)
            first[j] = job
            before = totals[a]
        else:
            low = i
            second[j] = job
            if exchange:
                first[i] = other
                copy(first, i + 1, sequences, a, i + 1, length_a)
                copy(second, j + 1, sequences, b, j + 1, length_b)
            else:
                copy(first, i, sequences, a, i + 1, length_a)
                copy(second, j + 1, sequences, b, j, length_b)
                length_a -= 1
                length_b += 1
            before = totals[a] + totals[b]
        last = sequences[a, low - 1] if low > 0 else jobs
        cost_a, finish_a = price(
            data, a, last, first, low, length_a, free[a, low], cost[a, low], before + slack
        )
        if cost_a == np.inf:
            continue
        cost_a += late(finish_a, machine_due[a], rates[a])
        change, after = cost_a - before, max(rest, finish_a)
        if a != b:
            last = sequences[b, j - 1] if j > 0 else jobs
            cost_b, finish_b = price(
                data, b, last, second, j, length_b, free[b, j], cost[b, j], slack - change
            )
            if cost_b == np.inf:
                continue
            cost_b += late(finish_b, machine_due[b], rates[b])
            change, after = change + cost_b, max(after, finish_b)
        change += factors[0] * (after - makespan)
        felt = change
        if levelling > 0.0:
            felt += levelling * (finish_a * finish_a - finishes[a] * finishes[a])
            if a != b:
                felt += levelling * (finish_b * finish_b - finishes[b] * finishes[b])
        if felt > allowed:
            continue

        for at in range(low, length_a):
            sequences[a, at] = first[at]
        lengths[a] = length_a
        refresh(data, a, low, sequences, length_a, free, cost, position)
        totals[a], finishes[a] = cost_a, finish_a
        if a != b:
            for at in range(j, length_b):
                sequences[b, at] = second[at]
            lengths[b] = length_b
            refresh(data, b, j, sequences, length_b, free, cost, position)
            totals[b], finishes[b] = cost_b, finish_b
            where[job] = b
            if exchange:
                where[other] = a
        makespan = after
        if finishes[a] == makespan:
            critical = a
        elif finishes[b] == makespan:
            critical = b
        elif finishes[critical] != makespan:
            critical = np.argmax(finishes)
        current += change
        if current < best * (1.0 - 1e-12):  # rounding is no improvement
            best = current
            best_sequences[:] = sequences
            best_lengths[:] = lengths
    return best, moves
