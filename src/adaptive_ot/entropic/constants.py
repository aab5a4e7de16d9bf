"""The constants of the ascent, apart from it so that its port to GPUs can have them without Numba."""

from __future__ import annotations

# The first epsilon is this part of the largest reward; each next one is smaller by a factor that depends on how hard
# the last one was.
FIRST_SHARE = 1 / 12
FIRST_FACTOR, SMALLEST_FACTOR, LARGEST_FACTOR = 3.0, 1.5, 5.0
EASY, HARD = 2, 5

# A level is done when the columns are off by less than this in all, and each by less than a factor of e to this power:
# a light one may not be left behind.
LEVEL_ERROR, LEVEL_FACTOR = 1e-2, 2.0

# Damping: at first, at least if a step failed, then times and over these; less than the least is none.
FIRST_DAMPING, LEAST_DAMPING, MORE_DAMPING, LESS_DAMPING = 1e-3, 1e-4, 4.0, 8.0
MOST_DAMPING = 1e8

# A step is accepted if it gains this share of what the gradient promises.
ACCEPTED_SHARE = 0.1

# No potential moves farther in one step, so that a kept P reaches from one point to the next, unless steps of this
# length prove too short: then they grow, by this factor.
LONGEST_STEP, LONGER = 8.0, 2.0

# Conjugate gradients stop at this relative residual, or at the root of the error where that is less. If they take too
# long, the equations are solved directly, for the rest of the level; where these are too many, they go on for longer.
LOOSEST_RESIDUAL = 0.1
FEW_SWEEPS, MANY_SWEEPS = 50, 300

# A direction bends too little to divide by below this part of the bend of the diagonal.
FLAT = 1e-14

# Gains below this part of the terms of the dual value are rounding.
ROUNDING = 1e-15

# Where the mass to move is a smaller part of the weights, errors are relative to this part of them.
SMALLEST_UNIT = 1e-4

# Exponents of penalised sums stop here, and a step that goes so far is taken back.
HIGHEST = 600.0

# Less than this part of all target weight is not told from nothing: what a column has and is due is compared by its
# logarithm.
LEAST = 1e-280
