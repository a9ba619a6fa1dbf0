"""The compiled inner loop of simulated annealing; imported only when it is used."""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

import numba
import numpy as np


@numba.njit(cache=True, fastmath=False)
def machine_cost(
    machine, sequence, length, times, release, due, weight, available, machine_due,
    machine_weight, setups, has_setups, factors,
):  # fmt: skip
    """(cost of all terms but the makespan, finish time) of one machine's sequence."""
    jobs = times.shape[0]
    free, last, cost = available[machine], jobs, 0.0
    for position in range(length):
        job = sequence[position]
        start = max(free, release[job])
        if has_setups:
            setup = setups[last, job, machine]
            start += setup
            cost += factors[5] * setup
        free = start + times[job, machine]
        if free > due[job]:
            cost += factors[1] * weight[job] * (free - due[job])
        cost += factors[3] * weight[job] * free + factors[4] * (free - release[job])
        last = job
    if free > machine_due[machine]:
        cost += factors[2] * machine_weight[machine] * (free - machine_due[machine])
    return cost, free


@numba.njit(cache=True)
def remove(sequence, length, position):
    for at in range(position, length - 1):
        sequence[at] = sequence[at + 1]


@numba.njit(cache=True)
def insert(sequence, length, position, job):
    for at in range(length, position, -1):
        sequence[at] = sequence[at - 1]
    sequence[position] = job


@numba.njit(cache=True, nogil=True)
def anneal_loop(
    times, release, due, weight, available, machine_due, machine_weight, setups, has_setups,
    factors, sequences, lengths, moves, seed, hot, cold,
):  # fmt: skip
    """Improve ``sequences`` (machines, jobs) and ``lengths`` (machines,) in place."""
    np.random.seed(seed)  # numba's own generator, not numpy's
    machines, jobs = sequences.shape
    costs, finishes = np.zeros(machines), np.zeros(machines)
    for machine in range(machines):
        costs[machine], finishes[machine] = machine_cost(
            machine, sequences[machine], lengths[machine], times, release, due, weight, available,
            machine_due, machine_weight, setups, has_setups, factors,
        )  # fmt: skip
    current = costs.sum() + factors[0] * finishes.max()
    best = current
    best_sequences, best_lengths = sequences.copy(), lengths.copy()
    first, second = np.empty(jobs + 1, np.int64), np.empty(jobs + 1, np.int64)
    temperature = hot * max(current, 1e-300)
    cooling = (cold / hot) ** (1.0 / max(moves, 1))
    for _ in range(moves):
        temperature *= cooling
        a = np.random.randint(machines)
        while lengths[a] == 0:
            a = np.random.randint(machines)
        i = np.random.randint(lengths[a])
        job = sequences[a, i]
        b = np.random.randint(machines)
        exchange = np.random.random() < 0.5 and lengths[b] > 0
        first[: lengths[a]] = sequences[a, : lengths[a]]
        length_a, length_b = lengths[a], lengths[b]
        if exchange:
            j = np.random.randint(lengths[b])
            other = sequences[b, j]
            if other == job or times[job, b] == np.inf or times[other, a] == np.inf:
                continue
            if a == b:
                first[i], first[j] = other, job
            else:
                second[: lengths[b]] = sequences[b, : lengths[b]]
                first[i], second[j] = other, job
        else:
            if times[job, b] == np.inf:
                continue
            remove(first, length_a, i)
            if a == b:
                insert(first, length_a - 1, np.random.randint(length_a), job)
            else:
                second[: lengths[b]] = sequences[b, : lengths[b]]
                insert(second, length_b, np.random.randint(length_b + 1), job)
                length_a -= 1
                length_b += 1
        cost_a, finish_a = machine_cost(
            a, first, length_a, times, release, due, weight, available, machine_due,
            machine_weight, setups, has_setups, factors,
        )  # fmt: skip
        delta = cost_a - costs[a]
        cost_b, finish_b = 0.0, 0.0
        if a != b:
            cost_b, finish_b = machine_cost(
                b, second, length_b, times, release, due, weight, available, machine_due,
                machine_weight, setups, has_setups, factors,
            )  # fmt: skip
            delta += cost_b - costs[b]
        if factors[0] != 0.0:
            before, after = 0.0, 0.0
            for machine in range(machines):
                before = max(before, finishes[machine])
                finish = finishes[machine]
                if machine == a:
                    finish = finish_a
                elif machine == b:
                    finish = finish_b
                after = max(after, finish)
            delta += factors[0] * (after - before)
        if delta > 0.0 and np.random.random() >= np.exp(-delta / temperature):
            continue
        sequences[a, :length_a] = first[:length_a]
        lengths[a], costs[a], finishes[a] = length_a, cost_a, finish_a
        if a != b:
            sequences[b, :length_b] = second[:length_b]
            lengths[b], costs[b], finishes[b] = length_b, cost_b, finish_b
        current += delta
        if current < best * (1.0 - 1e-12):  # rounding is no improvement
            best = current
            best_sequences[:] = sequences
            best_lengths[:] = lengths
    sequences[:] = best_sequences
    lengths[:] = best_lengths
