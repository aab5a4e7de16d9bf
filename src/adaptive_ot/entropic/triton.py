"""Many small dense problems on a GPU: one program of one kernel solves one problem from start to end.

This is `ascent`, and `certify` of the entropic solver, in a second text with the same constants and tests; see there
for the mathematics. Triton compiles neither NumPy's functions nor early returns, and only one loop with one place that
makes P leaves P in registers, where conjugate gradients read nothing from memory. The two texts differ in safeguards:
here conjugate gradients go on where they take long (a direct solve would need more registers than there are), no step
exceeds `LONGEST_OF_ALL`, damping has a fixed least value, and weights are not cut off. Launches and host
synchronisation would cost more than the arithmetic of problems this small. All arithmetic is in float64, whatever the
type of the costs.

Columns and rows beyond the problem (tiles are powers of two) have infinite costs and no weight, like those forbidden by
the caller, and so need no masks of their own.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import torch
import triton
import triton.language as tl

from adaptive_ot.entropic import constants as c
from adaptive_ot.entropic import oracle

# Tiles have powers of two of rows and columns, no fewer and no more than these: registers hold no more.
SMALLEST_TILE, LARGEST_TILE = 16, 128

# Entries of P held by a warp, and how many warps at most: more of them wait for each other.
ENTRIES_PER_WARP, MOST_WARPS = 1024, 8

# Registers of a multiprocessor. Left to itself, the compiler would rather spill P than use more than half of them.
REGISTERS = 2**16

# Columns of P per thread. Triton spreads a tile over lanes along its last axis first. As a matrix, P would leave every
# thread with one column, and with a copy of nearly all of every vector of rows. So a tile has three axes, the columns
# two: lanes along the last, registers along the one before, and the rest of the lanes and all warps along the rows, so
# that scalar products of columns stay within a warp.
COLUMNS_PER_THREAD = tl.constexpr(4)

# Kernels see only globals that are `constexpr`.
FIRST_SHARE, LEVEL_ERROR, LEVEL_FACTOR = map(tl.constexpr, (c.FIRST_SHARE, c.LEVEL_ERROR, c.LEVEL_FACTOR))
FIRST_FACTOR, SMALLEST_FACTOR = map(tl.constexpr, (c.FIRST_FACTOR, c.SMALLEST_FACTOR))
LARGEST_FACTOR, EASY, HARD = map(tl.constexpr, (c.LARGEST_FACTOR, c.EASY, c.HARD))
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = map(tl.constexpr, (c.FIRST_DAMPING, c.LEAST_DAMPING, c.MOST_DAMPING))
MORE_DAMPING, LESS_DAMPING = map(tl.constexpr, (c.MORE_DAMPING, c.LESS_DAMPING))
ACCEPTED_SHARE, LONGEST_STEP, LONGER = map(tl.constexpr, (c.ACCEPTED_SHARE, c.LONGEST_STEP, c.LONGER))
LOOSEST, MOST_SWEEPS, FLAT = map(tl.constexpr, (c.LOOSEST_RESIDUAL**2, c.MANY_SWEEPS, c.FLAT))
ROUNDING, NOTHING, INFINITY = map(tl.constexpr, (c.ROUNDING, oracle.NOTHING, math.inf))
REACH = tl.constexpr(oracle.DENSE_REACH)
LONGEST_OF_ALL = tl.constexpr(oracle.DENSE_REACH / 2)  # P reaches back if such a step fails

# The results for a problem, apart from the plan: these numbers, then the marginals and the potentials.
NUMBERS = ("value", "regularised_value", "mass", "gap", "violation", "passes", "error", "stalled")
NUMBER_COUNT = tl.constexpr(len(NUMBERS))


def solve_batch(
    costs: torch.Tensor,
    weights: torch.Tensor,
    entropy: str,
    epsilon: float,
    tolerance: float,
    max_passes: int,
    num_warps: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Solve all problems of `costs` (problems x sources x targets) in one launch, without host synchronisation.

    `weights` are those of the sources, then the targets, of every problem, in float64; none may have a side that weighs
    nothing. Returns the plans, in the type of the costs, and a row of float64 for each problem: `NUMBERS`, source and
    target marginals, source and target potentials. Runs on the device of the costs: a GPU, or the CPU if Triton's
    interpreter was chosen before this module was imported.
    """
    batch, n, m = costs.shape
    if max(n, m) > LARGEST_TILE:
        raise ValueError(f"problems may have at most {LARGEST_TILE} sources and targets, not {n} x {m}")
    rows, columns = (max(SMALLEST_TILE, triton.next_power_of_2(size)) for size in (n, m))
    warps = num_warps or min(MOST_WARPS, max(1, rows * columns // ENTRIES_PER_WARP))
    plans = torch.empty_like(costs, memory_format=torch.contiguous_format)
    found = torch.empty(batch, len(NUMBERS) + 2 * (n + m), dtype=torch.float64, device=costs.device)
    if batch > 0:
        launch: Any = solve_kernel[(batch,)]
        launch(
            *(costs.contiguous(), weights.contiguous(), plans, found),
            *(n, m, max_passes),
            *(int.from_bytes(struct.pack("<d", number), "little") for number in (epsilon, tolerance)),
            entropy=entropy,
            tile_rows=rows,
            tile_columns=columns,
            num_warps=warps,
            maxnreg=min(255, REGISTERS // (32 * warps)),
        )
    return plans, found


@triton.jit
def double(number):
    """A constant as a scalar in float64; a bare literal would pass through float32 in `tl.minimum` and its like."""
    return tl.full((), number, tl.float64)


@triton.jit
def down(rows):
    """A vector of rows, to be combined with a tile."""
    return tl.expand_dims(tl.expand_dims(rows, 1), 1)


@triton.jit
def across(columns):
    """A vector of columns, to be combined with a tile."""
    return tl.expand_dims(columns, 0)


@triton.jit
def row_totals(tile):
    return tl.sum(tl.sum(tile, axis=1), axis=1)


@triton.jit
def total(columns):
    """The sum of a vector of columns."""
    return tl.sum(tl.sum(columns, axis=0), axis=0)


@triton.jit
def largest(columns):
    return tl.max(tl.max(columns, axis=0), axis=0)


@triton.jit
def load_costs(costs, i, j, n, m):
    """A tile of costs in float64, infinite outside of the problem."""
    inside = down(i < n) & across(j < m)
    return tl.load(costs + down(i) * m + across(j), mask=inside, other=INFINITY).to(tl.float64)


@triton.jit
def make_stochastic(costs, i, j, n, m, h, epsilon):
    """P for the column scalings h, from memory, and the log-sum-exp of its rows before they were scaled to 1."""
    exponents = across(h) - load_costs(costs, i, j, n, m) * (1.0 / epsilon)
    shift = tl.max(tl.max(exponents, axis=1), axis=1)
    shift = tl.where(shift > -INFINITY, shift, 0.0)
    matrix = tl.exp(exponents - down(shift))
    sums = row_totals(matrix)
    some = sums > 0
    sums = tl.where(some, sums, 1.0)
    return matrix * down(1.0 / sums), tl.where(some, shift + tl.log(sums), -INFINITY)


@triton.jit
def row_potential(log_sums, row_total, dummy, augmented: tl.constexpr):
    """`RowRule.potential`; no difference of infinities can arise, as only the augmented form has a dummy."""
    if augmented:
        high, low = tl.maximum(log_sums, dummy), tl.minimum(log_sums, dummy)
        potential = row_total - high - tl.log(1.0 + tl.exp(low - high))
    else:
        potential = tl.minimum(row_total - log_sums, 0.0)
    return potential


@triton.jit
def update_rows(matrix, made_h, made_log_sums, h, row_total, reference, dummy, augmented: tl.constexpr):
    """Optimal rows for the column scalings h: log-sum-exps, potentials, and the columns of the plan."""
    growth = tl.exp(h - made_h)
    product = row_totals(matrix * across(growth))
    some = product > 0
    log_sums = tl.where(some, made_log_sums + tl.log(tl.where(some, product, 1.0)), -INFINITY)
    potential = row_potential(log_sums, row_total, dummy, augmented)
    moved = tl.where(some, tl.exp(potential + reference + made_log_sums), 0.0)
    return log_sums, potential, growth * tl.sum(matrix * down(moved), axis=0)


@triton.jit
def log_sum_with(dummy, h):
    """The log-sum-exp of the column scalings and that of the dummy target."""
    highest = tl.maximum(dummy, largest(h))
    return highest + tl.log(total(tl.exp(h - highest)) + tl.exp(dummy - highest))


@triton.jit
def free_columns(gamma, columns, nu, augmented: tl.constexpr):
    """Which potentials may move: those of columns with weight that are not held by the bound of zero."""
    free = nu > 0
    if not augmented:
        free = free & ((gamma < 0) | (columns > nu))
    return free


@triton.jit
def log_ratio(nu, columns, free):
    """log(nu / c) of the free columns."""
    return tl.log(tl.where(free, nu, 1.0) / tl.where(free, tl.maximum(columns, 1e-200 * nu), 1.0))


@triton.jit
def judge(
    gamma, h, log_sums, potential, columns, mu, nu, source_reference, dummy, log_total, augmented: tl.constexpr
):  # fmt: skip
    """`evaluate` once the rows are updated: dual value, columns, the part of the dummy source, error and factor."""
    supply = total(nu)
    value = tl.sum(mu * potential, axis=0) + total(nu * gamma)
    spill = tl.zeros_like(nu)
    if augmented:
        log_sum = log_sum_with(dummy, h)
        spill = supply * tl.exp(h - log_sum)
        value += supply * (log_total - log_sum)
    else:
        value -= tl.sum(tl.exp(potential + source_reference + log_sums), axis=0)
    columns += spill
    free = free_columns(gamma, columns, nu, augmented)
    error = total(tl.abs(tl.where(free, nu - columns, 0.0))) / supply
    return value, columns, spill, error, largest(tl.abs(log_ratio(nu, columns, free)))


@triton.jit
def newton_step(
    matrix, made_h, made_log_sums, gamma, potential, columns, spill, error, damping, mu, nu, source_reference,
    target_reference, augmented: tl.constexpr,
):  # fmt: skip
    """The damped Newton step by conjugate gradients, two sweeps over P an iteration, and the number of iterations."""
    supply = total(nu)
    free = free_columns(gamma, columns, nu, augmented)
    full = mu > 0
    if not augmented:
        full = full & (potential < 0)
    factors = tl.where(full, 1.0 / tl.where(full, mu, 1.0), 0.0)
    factors = factors * tl.exp(2.0 * (potential + source_reference + made_log_sums))
    growth = tl.exp(gamma + target_reference - made_h)
    ratio = log_ratio(nu, columns, free)
    columns = tl.where(free, tl.maximum(columns, 1e-200 * nu), 1.0)
    diagonal = (1.0 + damping) * columns
    inverse = 1.0 / diagonal  # divisions in float64 are slow
    spill_share = spill * (1.0 / supply)
    residual = columns * ratio
    d = tl.zeros_like(nu)
    z = residual * inverse
    direction = z
    size = total(residual * z)
    goal = size * tl.minimum(double(LOOSEST), error)
    sweeps = tl.full((), 0, tl.int32)
    flat = size < 0  # never at first
    while (size > goal) & (sweeps < MOST_SWEEPS) & (flat == 0):
        sent = factors * row_totals(matrix * across(growth * direction))
        product = growth * tl.sum(matrix * down(sent), axis=0)
        if augmented:
            product += spill * total(spill_share * direction)
        product = tl.where(free, diagonal * direction - product, 0.0)
        sweeps += 1
        bend = total(direction * product)
        flat = bend <= FLAT * total(direction * diagonal * direction)
        length = tl.where(flat, 0.0, size / tl.where(flat, 1.0, bend))
        d += length * direction
        residual -= length * product
        z = residual * inverse
        before = size
        size = total(residual * z)
        direction = z + (size / before) * direction
    return tl.where(largest(tl.abs(d)) == 0, z, d), sweeps


@triton.jit
def log_weights(weights):
    return tl.where(weights > 0, tl.log(tl.where(weights > 0, weights, 1.0)), NOTHING)


@triton.jit
def form(mu, nu, log_total, entropy: tl.constexpr):
    """`dual_of`: row totals, references of sources and targets, and the constant of the value."""
    constant = double(0.0)
    if entropy == "augmented":
        row_total = tl.zeros_like(mu) + log_total
        source_reference = tl.where(mu > 0, log_weights(mu) - log_total, NOTHING)
        target_reference = log_weights(nu)
    elif entropy == "product":
        row_total = tl.zeros_like(mu)
        source_reference, target_reference = log_weights(mu), log_weights(nu)
        constant = tl.sum(mu, axis=0) * total(nu)
    else:
        row_total = log_weights(mu)
        source_reference = tl.where(mu > 0, tl.zeros_like(mu), NOTHING)
        target_reference = tl.where(nu > 0, tl.zeros_like(nu), NOTHING)
    return row_total, source_reference, target_reference, constant


@triton.jit
def certify(
    costs, plans, found, i, j, n, m, epsilon, gamma, potential, lowest_cost, regularised_value, passes, error, stalled,
    mu, nu, source_reference, target_reference, dummy, log_total, augmented: tl.constexpr,
):  # fmt: skip
    """Store the plan at the end of the ascent, scaled down to the weights, its marginals, potentials and gap."""
    cost = load_costs(costs, i, j, n, m)
    h = gamma + target_reference
    plan = tl.exp(down(potential + source_reference) + across(h) - cost * (1.0 / epsilon))
    sums = row_totals(plan)
    plan *= down(tl.where(sums > mu, mu / tl.where(sums > mu, sums, 1.0), 1.0))
    sums_down = tl.sum(plan, axis=0)
    plan *= across(tl.where(sums_down > nu, nu / tl.where(sums_down > nu, sums_down, 1.0), 1.0))
    rows, columns = row_totals(plan), tl.sum(plan, axis=0)
    value = tl.sum(row_totals(plan * tl.where(plan > 0, cost, 0.0)), axis=0)
    f = epsilon * potential
    clipped = tl.minimum(f, 0.0)
    lowest = tl.minimum(tl.min(cost - down(clipped), axis=0), 0.0)
    bound = tl.sum(mu * clipped, axis=0) + total(nu * lowest)
    if augmented:
        gamma += log_total - log_sum_with(dummy, h)
    g = tl.where(nu > 0, epsilon * gamma, lowest)
    excess = tl.maximum(tl.max(rows - mu, axis=0), largest(columns - nu))

    tl.store(plans + down(i) * m + across(j), plan, mask=down(i < n) & across(j < m))
    tl.store(found, value)
    tl.store(found + 1, regularised_value)
    tl.store(found + 2, tl.sum(rows, axis=0))
    tl.store(found + 3, tl.maximum(value - bound, 0.0))
    tl.store(found + 4, tl.maximum(excess, 0.0))
    tl.store(found + 5, passes.to(tl.float64))
    tl.store(found + 6, error)
    tl.store(found + 7, stalled.to(tl.float64))
    found += NUMBER_COUNT
    tl.store(found + i, rows, mask=i < n)
    tl.store(found + n + j, columns, mask=j < m)
    f = tl.where(mu > 0, f, tl.maximum(f, tl.minimum(lowest_cost, 0.0)))
    tl.store(found + n + m + i, f, mask=i < n)
    tl.store(found + 2 * n + m + j, g, mask=j < m)


@triton.jit(do_not_specialize=["n", "m", "max_passes", "epsilon_bits", "tolerance_bits"])
def solve_kernel(
    costs, weights, plans, found, n, m, max_passes, epsilon_bits, tolerance_bits, entropy: tl.constexpr,
    tile_rows: tl.constexpr, tile_columns: tl.constexpr,
):  # fmt: skip
    """`ascend`, `climb` and `evaluate` as one loop over the points where the dual is evaluated; then `certify`.

    A round evaluates the dual at `ahead`, which is accepted or not, and finds the next such point: by a step from the
    current point or, where that is good enough, by going to the next epsilon, whose first point is always accepted. So
    P is made and used in one place, and the compiler has one tile to keep.
    """
    b = tl.program_id(0).to(tl.int64)
    lanes: tl.constexpr = tile_columns // COLUMNS_PER_THREAD
    i = tl.arange(0, tile_rows)
    j = tl.arange(0, COLUMNS_PER_THREAD)[:, None] * lanes + tl.arange(0, lanes)[None, :]
    costs += b * n * m
    weights += b * (n + m)
    mu = tl.load(weights + i, mask=i < n, other=0.0)
    nu = tl.load(weights + n + j, mask=j < m, other=0.0)
    # Numbers come as the bits of a float64: Triton would take them for float32.
    epsilon = tl.cast(tl.cast(epsilon_bits, tl.int64), tl.float64, bitcast=True)
    tolerance = tl.cast(tl.cast(tolerance_bits, tl.int64), tl.float64, bitcast=True)
    supply = total(nu)
    weight = tl.sum(mu, axis=0) + supply
    log_total = tl.log(weight)

    augmented: tl.constexpr = entropy == "augmented"
    dummy = tl.log(tl.sum(mu, axis=0))
    row_total, source_reference, target_reference, constant = form(mu, nu, log_total, entropy)
    lowest_cost = tl.min(tl.min(tl.min(load_costs(costs, i, j, n, m), axis=2), axis=1), axis=0)

    # P, and where it was made.
    matrix = tl.zeros((tile_rows, COLUMNS_PER_THREAD, lanes), tl.float64)
    made_h = tl.zeros_like(nu)
    made_log_sums = tl.zeros_like(mu)
    made_epsilon = double(0.0)

    # The current point, of which nothing is known yet.
    gamma, columns, spill = tl.zeros_like(nu), tl.zeros_like(nu), tl.zeros_like(nu)
    potential = tl.zeros_like(mu)
    value, error, off = double(0.0), double(0.0), double(0.0)

    # The level: its epsilon, that of the last one with its potentials times epsilon, and how far the next one is.
    level = tl.maximum(epsilon, -FIRST_SHARE * lowest_cost)
    earlier, g_earlier = level, tl.zeros_like(nu)
    factor = double(FIRST_FACTOR)

    # The climb at this level; `passes` counts the earlier ones.
    passes, climbed = tl.full((), 0, tl.int32), tl.full((), 0, tl.int32)
    sweeps, steps = tl.full((), 0, tl.int32), tl.full((), 0, tl.int32)
    damping = double(0.0)
    wanted, longest = double(0.0), double(LONGEST_STEP)
    ahead = tl.zeros_like(nu)
    opening = epsilon == epsilon
    stalled = epsilon != epsilon
    going = epsilon == epsilon

    while going:
        # Evaluate the dual at `ahead`.
        h = ahead + target_reference
        if (made_epsilon != level) | (largest(tl.abs(h - made_h)) > REACH):
            matrix, made_log_sums = make_stochastic(costs, i, j, n, m, h, level)
            made_h = h
            made_epsilon = level
        trial_log_sums, trial_potential, trial_columns = update_rows(
            matrix, made_h, made_log_sums, h, row_total, source_reference, dummy, augmented
        )
        trial_value, trial_columns, trial_spill, trial_error, trial_off = judge(
            ahead, h, trial_log_sums, trial_potential, trial_columns, mu, nu, source_reference, dummy, log_total,
            augmented,
        )  # fmt: skip
        climbed += sweeps + 1

        # Accept it, or have more damping.
        free = free_columns(gamma, columns, nu, augmented)
        promised = total(tl.where(free, nu - columns, 0.0) * (ahead - gamma))
        gained = trial_value - value
        terms = tl.sum(mu * tl.abs(potential), axis=0) + total(nu * tl.abs(gamma))
        noise = ROUNDING * (terms + 10.0 * weight)
        good = (gained > 0) & (gained >= ACCEPTED_SHARE * tl.abs(promised))
        rounding = tl.maximum(tl.abs(promised), -gained) <= noise
        good = opening | good | (rounding & (trial_error < error))
        stalled = (good == 0) & (damping >= MOST_DAMPING)
        easy = good & (gained >= 0.5 * promised) & (opening == 0)
        longer = tl.where(wanted > longest, tl.minimum(LONGER * longest, LONGEST_OF_ALL), LONGEST_STEP)
        longest = tl.where(easy, longer, tl.where(good & (opening == 0), longest, LONGEST_STEP))
        less = tl.where(damping > LEAST_DAMPING, damping / LESS_DAMPING, 0.0)
        less = tl.where(gained >= 0.5 * promised, less, damping)
        more = tl.maximum(MORE_DAMPING * damping, double(FIRST_DAMPING))
        damping = tl.where(opening, FIRST_DAMPING, tl.where(good, less, tl.where(stalled, damping, more)))
        steps = tl.where(opening, 0, steps + good.to(tl.int32))
        gamma = tl.where(good, ahead, gamma)
        columns = tl.where(good, trial_columns, columns)
        if augmented:
            spill = tl.where(good, trial_spill, spill)
        potential = tl.where(good, trial_potential, potential)
        value = tl.where(good, trial_value, value)
        error = tl.where(good, trial_error, error)
        off = tl.where(good, trial_off, off)

        # Where to next?
        last = level == epsilon
        goal = tl.where(last, tolerance, tl.maximum(tolerance, double(LEVEL_ERROR)))
        budget = tl.where(last, max_passes - passes, (max_passes - passes) // 2)
        climbing = ((error > goal) | ((off > LEVEL_FACTOR) & (last == 0))) & (climbed < budget) & (stalled == 0)
        going = climbing | (level != epsilon)
        opening = climbing == 0
        if climbing:
            d, sweeps = newton_step(
                matrix, made_h, made_log_sums, gamma, potential, columns, spill, error, damping, mu, nu,
                source_reference, target_reference, augmented,
            )  # fmt: skip
            wanted = largest(tl.abs(d))
            ahead = gamma + tl.minimum(tl.maximum(d, -longest), longest)
        else:
            passes += climbed
            climbed *= 0
            sweeps *= 0
            factor = tl.where(steps <= EASY, tl.minimum(1.5 * factor, LARGEST_FACTOR), factor)
            factor = tl.where(steps > HARD, tl.maximum(factor / 1.5, SMALLEST_FACTOR), factor)
            following = tl.where(passes < max_passes // 2, tl.maximum(epsilon, level / factor), epsilon)
            g = level * gamma
            later = level < earlier
            slope = tl.where(later, (following - level) / tl.where(later, level - earlier, 1.0), 0.0)
            ahead = (g + (g - g_earlier) * slope) / following
            g_earlier = g
            earlier = level
            level = following
        if not augmented:
            ahead = tl.minimum(ahead, 0.0)

    certify(
        costs, plans + b * n * m, found + b * (NUMBER_COUNT + 2 * (n + m)), i, j, n, m, epsilon, gamma, potential,
        lowest_cost, epsilon * (value + constant), passes, error, stalled, mu, nu, source_reference, target_reference,
        dummy, log_total, augmented,
    )  # fmt: skip
