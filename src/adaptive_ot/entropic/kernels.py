"""Numba kernels of the oracle: exponentials and sums over blocks of rows, on one thread, without the GIL."""

from __future__ import annotations

import math

import numpy as np
from numba.extending import register_jitable

from adaptive_ot._jit import fused, kernel, reduced
from adaptive_ot.entropic.oracle import LARGEST_EXPONENT, LOST, NEGLIGIBLE, SPARSE_REACH

# Columns treated together, so that a row of exponents stays in the first cache.
CHUNK = 1024

# Row sums outside of these limits are taken again, relative to the largest exponent of the row.
SMALLEST_SUM, LARGEST_SUM = 1e-150, 1e250

# exp(x) = 2^k exp(r) with |r| <= log(2) / 2, where adding MAGIC rounds to the integer k and leaves it in the low bits.
MAGIC = 1.5 * 2.0**52
LOG2_E = 1 / math.log(2.0)
LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13 = (1 / math.factorial(k) for k in range(2, 14))


@fused
def exponentiate(t, scratch, bits):
    """Replace t by exp(t), to one unit in the last place; NumPy's own is as fast, but kernels cannot call it.

    `bits` are the bits of `scratch` as integers.
    """
    for j in range(t.size):
        scratch[j] = min(max(t[j], -LOST), LARGEST_EXPONENT) * LOG2_E + MAGIC
    for j in range(t.size):
        x = min(max(t[j], -LOST), LARGEST_EXPONENT)
        k = scratch[j] - MAGIC
        r = (x - k * LN2_HIGH) - k * LN2_LOW
        p = ((((C13 * r + C12) * r + C11) * r + C10) * r + C9) * r + C8
        p = (((((p * r + C7) * r + C6) * r + C5) * r + C4) * r + C3) * r + C2
        t[j] = (p * r + 1.0) * r + 1.0 if x > -LOST else 0.0
    for j in range(t.size):
        bits[j] = (bits[j] + 1023) << 52
    for j in range(t.size):
        t[j] *= scratch[j]


@reduced
def total(t):
    result = 0.0
    for j in range(t.size):
        result += t[j]
    return result


@reduced
def dot(t, a):
    result = 0.0
    for j in range(t.size):
        result += t[j] * a[j]
    return result


@reduced
def add_multiple(to, factor, t):
    for j in range(t.size):
        to[j] += factor * t[j]


@reduced
def scale_by(t, factor):
    for j in range(t.size):
        t[j] *= factor


@fused
def exponents(out, costs, h, minus, inverse_epsilon):
    """h_j - C_j / epsilon - minus."""
    for j in range(out.size):
        out[j] = h[j] - costs[j] * inverse_epsilon - minus


@kernel
def row_of_exponentials(costs, inverse_epsilon, h, guess, out, scratch, bits):
    """Fill `out` with exp(h_j - C_j / epsilon - shift) and return its sum and the shift, which is `guess` if that fits.

    The sum is 0 and the shift -inf if no pair is allowed.
    """
    shift = guess
    for _ in range(2):
        if math.isfinite(shift):
            row_sum = 0.0
            for start in range(0, out.size, CHUNK):
                part = out[start : start + CHUNK]
                exponents(part, costs[start : start + CHUNK], h[start : start + CHUNK], shift, inverse_epsilon)
                exponentiate(part, scratch[: part.size], bits[: part.size])
                row_sum += total(part)
            if SMALLEST_SUM < row_sum < LARGEST_SUM:
                return row_sum, shift
        shift = -np.inf
        for j in range(out.size):
            shift = max(shift, h[j] - costs[j] * inverse_epsilon)
    out[:] = 0.0
    return 0.0, -np.inf


@kernel
def row_potential(log_sum, total, cap, dummy, softness):
    """`RowRule.potential` of one row."""
    high, low = max(log_sum, dummy), min(log_sum, dummy)
    if high == -np.inf:
        return cap
    return min(cap, (total - high - math.log1p(math.exp(low - high))) / (1 + softness))


@kernel
def update_rows(costs, top, inverse_epsilon, h, rule, log_sums, potential, columns, entries, counts, cut):
    """Update a block of rows from their costs.

    `log_sums` holds a guess of their log-sum-exp and receives the true one, `entries`, if it has rows, the rows of P,
    and `counts` how many of each are above the cut.
    """
    m = h.size
    totals, references, cap, dummy, softness = rule.total, rule.reference, rule.cap, rule.dummy, rule.softness
    scratch = np.empty(min(m, CHUNK))
    bits = scratch.view(np.int64)
    here = np.empty(m if entries.shape[0] == 0 else 0)
    for k in range(costs.shape[0]):
        i = top + k
        row = here if entries.shape[0] == 0 else entries[k]
        row_sum, shift = row_of_exponentials(costs[k], inverse_epsilon, h, log_sums[i], row, scratch, bits)
        log_sums[i] = shift + math.log(row_sum) if row_sum > 0 else -np.inf
        potential[i] = row_potential(log_sums[i], totals[i], cap, dummy, softness)
        if row_sum > 0:
            scale_by(row, 1 / row_sum)
            add_multiple(columns, math.exp(potential[i] + references[i] + log_sums[i]), row)
        counts[i] = count_above(row, cut)


@reduced
def count_above(row, cut):
    result = 0
    for j in range(row.size):
        result += row[j] > cut
    return result


@register_jitable
def smallest_entry(rule):
    """The entry of P below which pairs are negligible."""
    return math.exp(-2 * SPARSE_REACH - NEGLIGIBLE) * rule.smallest_share


@kernel
def compress(rows, cut, indices, values):
    """Write the entries of `rows` above the cut one after the other."""
    filled = 0
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            if rows[i, j] > cut:
                indices[filled], values[filled] = j, rows[i, j]
                filled += 1


@kernel
def update_listed_rows(
    ends, indices, costs, top, bottom, inverse_epsilon, h, rule, log_sums, potential, columns, values
):
    """`update_rows` for the stored pairs of a sparse cost; `values` receives P."""
    totals, references, cap, dummy, softness = rule.total, rule.reference, rule.cap, rule.dummy, rule.softness
    for i in range(top, bottom):
        largest = -np.inf
        for k in range(ends[i], ends[i + 1]):
            values[k] = h[indices[k]] - costs[k] * inverse_epsilon
            largest = max(largest, values[k])
        row_sum = 0.0
        for k in range(ends[i], ends[i + 1]):
            values[k] = math.exp(values[k] - largest) if largest > -np.inf else 0.0
            row_sum += values[k]
        log_sums[i] = largest + math.log(row_sum) if row_sum > 0 else -np.inf
        potential[i] = row_potential(log_sums[i], totals[i], cap, dummy, softness)
        if row_sum > 0:
            moved = math.exp(potential[i] + references[i] + log_sums[i])
            for k in range(ends[i], ends[i + 1]):
                values[k] /= row_sum
                columns[indices[k]] += moved * values[k]


@kernel
def sweep(kept, top, bottom, a, rule, factors, log_sums, potential, out):
    """Out += P^T (weights * (P a)) over the rows top:bottom of a kept P.

    The weights are `factors` if there are any; otherwise they update the rows, whose log-sum-exp is found anew.
    """
    # Arrays are taken out of their tuples, and functions get numbers only: Numba counts references to every argument,
    # which in a loop costs more than the loop.
    matrix, ends, indices, values, start = kept.matrix, kept.ends, kept.indices, kept.values, kept.log_sums
    totals, references, cap, dummy, softness = rule.total, rule.reference, rule.cap, rule.dummy, rule.softness
    dense = matrix.shape[0] > 0
    for i in range(top, bottom):
        product = 0.0
        if dense:
            product = dot(matrix[i], a)
        else:
            for k in range(ends[i], ends[i + 1]):
                product += values[k] * a[indices[k]]
        if factors.size:
            weight = factors[i] * product
        elif product > 0:
            log_sums[i] = start[i] + math.log(product)
            potential[i] = row_potential(log_sums[i], totals[i], cap, dummy, softness)
            weight = math.exp(potential[i] + references[i] + start[i])
        else:
            log_sums[i], weight = -np.inf, 0.0
            potential[i] = row_potential(-np.inf, totals[i], cap, dummy, softness)
        if dense:
            add_multiple(out, weight, matrix[i])
        else:
            for k in range(ends[i], ends[i + 1]):
                out[indices[k]] += weight * values[k]


@kernel
def add_gram(ends, indices, values, factors, growth, out):
    """Out += G^T W G for the plan G_ij = P_ij growth_j of a sparse P, with W = diag(factors)."""
    for i in range(factors.size):
        for k in range(ends[i], ends[i + 1]):
            left = factors[i] * values[k] * growth[indices[k]]
            for l in range(ends[i], ends[i + 1]):
                out[indices[k], indices[l]] += left * values[l] * growth[indices[l]]


@kernel
def sweep_costs(costs, top, inverse_epsilon, h, a, factors, log_sums, out):
    """`sweep` with factors for P that is made anew from the costs of a block of rows."""
    scratch = np.empty(min(h.size, CHUNK))
    bits = scratch.view(np.int64)
    row = np.empty(h.size)
    for k in range(costs.shape[0]):
        i = top + k
        if factors[i] != 0:
            row_of_exponentials(costs[k], inverse_epsilon, h, log_sums[i], row, scratch, bits)
            add_multiple(out, factors[i] * dot(row, a), row)


@kernel
def finish_rows(
    costs, top, inverse_epsilon, h, scaling, units, clipped, most, factors, plan, row_factors, rows, columns, lowest
):
    """Plan, marginals and c-transform over a block of rows; returns their part of <C, G>.

    The plan is units_i exp(scaling_i + h_j - C_ij / epsilon), scaled down to `most`, times the `factors` of columns; it
    is written to `plan`, if that has rows.
    """
    m = h.size
    scratch = np.empty(min(m, CHUNK))
    bits = scratch.view(np.int64)
    here = np.empty(m if plan.shape[0] == 0 else 0)
    value = 0.0
    for k in range(costs.shape[0]):
        i = top + k
        row = here if plan.shape[0] == 0 else plan[k]
        for start in range(0, m, CHUNK):  # as a function of its own, shared with the above, this is a tenth slower
            part = row[start : start + CHUNK]
            exponents(part, costs[k, start : start + CHUNK], h[start : start + CHUNK], -scaling[i], inverse_epsilon)
            exponentiate(part, scratch[: part.size], bits[: part.size])
        row_sum = units[i] * total(row)
        row_factors[i] = most[i] / row_sum if row_sum > most[i] else 1.0
        multiply(row, units[i] * row_factors[i], factors)
        rows[i] = total(row)
        value += price(row, costs[k])
        add_multiple(columns, 1.0, row)
        lower_to(lowest, costs[k], clipped[i])
    return value


@reduced
def multiply(row, factor, factors):
    for j in range(row.size):
        row[j] *= factor * factors[j]


@reduced
def price(row, costs):
    result = 0.0
    for j in range(row.size):
        result += row[j] * costs[j] if row[j] > 0 else 0.0  # a forbidden pair costs inf and carries nothing
    return result


@reduced
def lower_to(lowest, costs, potential):
    for j in range(lowest.size):
        lowest[j] = min(lowest[j], costs[j] - potential)
