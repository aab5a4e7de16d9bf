"""The constants of the ascent, apart from it so that its port to GPUs can have them without Numba."""

from __future__ import annotations

# The first epsilon is the largest reward; each next one is smaller by a factor that depends on how hard the last was.
FIRST_FACTOR, SMALLEST_FACTOR, LARGEST_FACTOR = 3.0, 1.5, 10.0
EASY, HARD = 2, 5
LEVEL_ERROR = 1e-2

# Damping: none until a step fails, then from here on, times and over these.
FIRST_DAMPING, MORE_DAMPING, LESS_DAMPING = 1e-3, 4.0, 8.0
MOST_DAMPING = 1e8

# A step is accepted if it gains this share of what the gradient promises.
ACCEPTED_SHARE = 0.1

# No potential moves farther in one step, so that a kept kernel reaches from one point to the next.
LONGEST_STEP = 8.0

# Conjugate gradients stop at this relative residual, or at the root of the error where that is less.
LOOSEST_RESIDUAL = 0.1
MOST_SWEEPS = 300

# A direction bends too little to divide by below this part of the bend of the diagonal.
FLAT = 1e-14

# Gains below this part of the dual value are rounding.
ROUNDING = 1e-15
