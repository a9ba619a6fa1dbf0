"""The compiled inner loop of ruin and recreate; imported only when it is used.

It keeps what the loop of annealing keeps: behind each position of a machine's sequence, the time at
which the machine is free and the cost so far.  So a place for a job is priced from there on, and
given up as soon as it cannot be the best one.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

import numba
import numpy as np

from hetsched.agents.annealing_loop import draw, late, refresh

jit = numba.njit(cache=True, nogil=True)


@jit
def best_place(data, machine, job, now, due, rate, bound, rise, peak, blink, rng):
    """(cost, position) of the cheapest place for a job on a machine; -1 if none is below a bound.

    The cost is that of the whole machine, and ``rise`` times what it finishes after ``peak``.
    Every position is overlooked with probability ``blink``.
    """
    times, release, dues, weight, setups, has_setups, factors = data
    sequences, lengths, free, cost = now[:4]
    length = lengths[machine]
    whole, end = cost[machine, length], free[machine, length]
    tail = late(end, due, rate)
    best, place, after = bound, -1, len(release)
    for at in range(length + 1):
        before = after
        if at < length:
            after = sequences[machine, at]
        if draw(rng) < blink:
            continue
        finish, own = max(free[machine, at], release[job]), 0.0
        if has_setups:
            setup = setups[before, job, machine]
            finish += setup
            own += factors[5] * setup
        finish += times[job, machine]
        if finish > dues[job]:
            own += factors[1] * weight[job] * (finish - dues[job])
        own += factors[3] * weight[job] * finish + factors[4] * (finish - release[job])
        if not has_setups and own + whole + tail > best:
            break  # a later place costs the job more, and the others no less than now
        own += cost[machine, at]
        last, possible = job, own <= best
        for p in range(at, length):
            if not possible:
                break
            other = sequences[machine, p]
            start = max(finish, release[other])
            if has_setups:
                setup = setups[last, other, machine]
                start += setup
                own += factors[5] * setup
            finish = start + times[other, machine]
            if finish > dues[other]:
                own += factors[1] * weight[other] * (finish - dues[other])
            own += factors[3] * weight[other] * finish + factors[4] * (finish - release[other])
            if finish >= free[machine, p + 1]:
                rest = whole - cost[machine, p + 1]  # what follows costs no less than now
                possible = own + rest + tail <= best
                if finish == free[machine, p + 1]:  # and no more
                    own += rest
                    finish = end
                    break
            else:
                possible = own <= best
            last = other
        if not possible:
            continue
        own += late(finish, due, rate)
        if finish > peak:
            own += rise * (finish - peak)
        if own < best:
            best, place = own, at
    return best, place


@jit
def copy_machine(source, target, machine):
    """All that is kept of a machine."""
    length = source[1][machine]
    for p in range(length):
        target[0][machine, p] = source[0][machine, p]
    target[1][machine] = length
    for p in range(length + 1):
        target[2][machine, p], target[3][machine, p] = source[2][machine, p], source[3][machine, p]
    target[4][machine], target[5][machine] = source[4][machine], source[5][machine]


@jit
def settle(data, machine, begin, now, position, due, rate):
    """Recompute what is kept of a machine whose sequence changed from a position on."""
    sequences, lengths, free, cost, totals, finishes = now
    own, finish = refresh(data, machine, begin, sequences, lengths[machine], free, cost, position)
    totals[machine], finishes[machine] = own + late(finish, due, rate), finish


@jit
def sort(jobs, count, keys):
    """Sort the first few jobs by their keys (jobs,); insertion sort, as they are few."""
    for i in range(1, count):
        job, p = jobs[i], i - 1
        while p >= 0 and keys[jobs[p]] > keys[job]:
            jobs[p + 1] = jobs[p]
            p -= 1
        jobs[p + 1] = job


@jit
def ruin_loop(
    times, fast, release, due, weight, available, machine_due, machine_weight, setups, has_setups,
    factors, sequences, lengths, best_sequences, best_lengths, best, floor, ruins, warm, cool, rng,
    orders, strings, longest, blink,
):  # fmt: skip
    """Change ``sequences`` (machines, jobs) and ``lengths`` (machines,) by accepted ruins.

    A ruin takes up to ``longest`` neighbours out of each of up to ``strings`` machines, all of
    them about the time of one job, and puts them back one by one where they cost least, in an
    order by one of ``orders`` (orders, jobs), smallest first, or at random.  The rest is as in the
    loop of annealing.  Gives (best, ruins made).
    """
    machines, jobs = sequences.shape
    data = times, release, due, weight, setups, has_setups, factors
    rates = factors[2] * machine_weight
    free, cost = np.zeros((machines, jobs + 1)), np.zeros((machines, jobs + 1))
    totals, finishes = np.zeros(machines), np.zeros(machines)
    where, position = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
    now = sequences, lengths, free, cost, totals, finishes
    for k in range(machines):
        free[k, 0] = available[k]
        settle(data, k, 0, now, position, machine_due[k], rates[k])
        for at in range(lengths[k]):
            where[sequences[k, at]] = k
    old = (
        sequences.copy(), lengths.copy(), free.copy(), cost.copy(), totals.copy(), finishes.copy()
    )  # fmt: skip
    touched, is_touched = np.empty(machines, np.int64), np.zeros(machines, np.bool_)
    removed, chance = np.empty(jobs, np.int64), np.empty(jobs)
    current = totals.sum() + factors[0] * finishes.max()
    if current < best * (1.0 - 1e-12):
        best = current
        best_sequences[:] = sequences
        best_lengths[:] = lengths
    temperature = warm
    cooling = (cool / warm) ** (1.0 / max(ruins, 1))
    for ruin in range(ruins):
        if best <= floor:
            return best, ruin
        temperature *= cooling
        seed = int(draw(rng) * jobs)
        when = free[where[seed], position[seed]]
        count, gone = 0, 0
        for string in range(1 + int(draw(rng) * strings)):
            k, at = where[seed], position[seed]
            if string > 0:
                k, at = int(draw(rng) * machines), 0
                if is_touched[k] or lengths[k] == 0:
                    continue
                while at + 1 < lengths[k] and free[k, at + 1] <= when:
                    at += 1
            copy_machine(now, old, k)
            is_touched[k], touched[count] = True, k
            count += 1
            size = min(lengths[k], 1 + int(draw(rng) * longest))
            begin = max(0, min(at - int(draw(rng) * size), lengths[k] - size))
            for p in range(begin, begin + size):
                removed[gone] = sequences[k, p]
                gone += 1
            lengths[k] -= size
            for p in range(begin, lengths[k]):
                sequences[k, p] = sequences[k, p + size]
            settle(data, k, begin, now, position, machine_due[k], rates[k])

        order = int(draw(rng) * (len(orders) + 1))
        if order < len(orders):
            sort(removed, gone, orders[order])
        else:
            for i in range(gone):
                chance[removed[i]] = draw(rng)
            sort(removed, gone, chance)
        allowed = current - temperature * np.log(1.0 - draw(rng))  # cost that Metropolis accepts
        part, peak = totals.sum(), finishes.max()
        accepted = True
        for i in range(gone):
            job, chosen, place = removed[i], -1, 0
            least = allowed - part - factors[0] * peak
            for rank in range(machines):
                k = fast[job, rank]
                if times[job, k] == np.inf:
                    break
                new, at = best_place(
                    data, k, job, now, machine_due[k], rates[k], least + totals[k], factors[0],
                    peak, blink, rng,
                )  # fmt: skip
                if at >= 0:
                    least, chosen, place = new - totals[k], k, at
            if chosen < 0:
                accepted = False
                break
            k = chosen
            if not is_touched[k]:
                copy_machine(now, old, k)
                is_touched[k], touched[count] = True, k
                count += 1
            for p in range(lengths[k], place, -1):
                sequences[k, p] = sequences[k, p - 1]
            sequences[k, place], where[job] = job, k
            lengths[k] += 1
            part -= totals[k]
            settle(data, k, place, now, position, machine_due[k], rates[k])
            part += totals[k]
            peak = max(peak, finishes[k])
        accepted = accepted and part + factors[0] * peak <= allowed
        for c in range(count):
            k = touched[c]
            is_touched[k] = False
            if not accepted:
                copy_machine(old, now, k)
                for p in range(lengths[k]):
                    where[sequences[k, p]], position[sequences[k, p]] = k, p
        if not accepted:
            continue
        current = totals.sum() + factors[0] * finishes.max()
        if current < best * (1.0 - 1e-12):  # rounding is no improvement
            best = current
            best_sequences[:] = sequences
            best_lengths[:] = lengths
    return best, ruins
