"""Sums over all pairs of two point clouds on a GPU: Triton kernels that keep no number for a pair.

A pair has the exponent t_ij = scale <u_i, w_j> + shift_j, in base 2. A program holds a tile of rows and goes through
the tiles of columns, or through those on its list. Few rows would leave most of the GPU idle, so the columns are also
split between programs, whose parts are added up afterwards, in a fixed order.

There are three precisions. In `DOUBLE`, products and sums are in float64. Otherwise a coordinate is the sum of two
float16, its leading 11 bits and the next 11, because tensor cores multiply float16 fastest: `HALF` takes only the
leading bits, as if the points were a little elsewhere, and `SINGLE` takes the products of both, which makes the
exponents about as exact as in float32. Sums of a tile are then in float32, all others in float64.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

HALF, SINGLE, DOUBLE = 0, 1, 2

# Points are padded to whole tiles of this many.
TILE = 128

# Rows and columns of a tile, warps, and stages of the pipeline of loads; with several chunks of coordinates, rows are
# loaded over and over.
SHAPES = {HALF: (128, 128, 4, 3), SINGLE: (128, 128, 8, 2), DOUBLE: (128, 32, 4, 2)}
SHAPES_FOR_CHUNKS = {HALF: (128, 128, 4, 3), SINGLE: (128, 128, 8, 3), DOUBLE: (64, 64, 4, 2)}

# Coordinates are multiplied in chunks of this many; if there are fewer, they are padded to a power of two.
MOST_COORDINATES, FEWEST_COORDINATES = 64, 16

# Values of a matrix that is multiplied with a plan are treated together in this number.
VALUES = 32

# Coordinates in float16 are at most 2 to this power; infinity, and numbers that lose digits, are far away.
LARGEST_POWER = 12

# The columns are split until there are about this many programs. Lists differ in length, so they are split into more.
PROGRAMS, PROGRAMS_FOR_LISTS = 2000, 8000

# A part has at least this many steps.
FEWEST_STEPS = 4

# Exponents below this one are zero, and that of padding.
LOWEST_EXPONENT, NO_EXPONENT = tl.constexpr(-1e29), -1e30

# 2^t = 2^k e^r with |r| <= log(2) / 2: adding MAGIC rounds t to the integer k and leaves it in the low bits.
MAGIC, LN2 = tl.constexpr(1.5 * 2.0**52), tl.constexpr(math.log(2.0))
C2, C3, C4, C5, C6 = (tl.constexpr(1 / math.factorial(k)) for k in range(2, 7))
C7, C8, C9, C10, C11 = (tl.constexpr(1 / math.factorial(k)) for k in range(7, 12))

# Rows for which one program joins the parts.
PARTS_TILE = tl.constexpr(32)

IS_SINGLE, IS_DOUBLE = tl.constexpr(SINGLE), tl.constexpr(DOUBLE)
IS_TILE, ALL_VALUES = tl.constexpr(TILE), tl.constexpr(VALUES)


class Cloud(NamedTuple):
    """Points as kernels read them, padded with zeros; `high` + `low` are the points times 2^`power`."""

    size: int
    chunk: int
    double: torch.Tensor
    high: torch.Tensor
    low: torch.Tensor
    power: int


class Scaling(NamedTuple):
    """Shifts that give rows the sums they should have, for float64 and for float32; see `rescaled`."""

    exact: torch.Tensor
    rounded: torch.Tensor
    off: torch.Tensor


class Lists(NamedTuple):
    """The tiles of columns that matter to tile k of rows: `tiles[starts[k] : starts[k + 1]]`."""

    starts: torch.Tensor
    tiles: torch.Tensor


def cloud_of(points: torch.Tensor) -> Cloud:
    """Pad the points, and split their coordinates into float16."""
    n, d = points.shape
    chunk = min(MOST_COORDINATES, max(FEWEST_COORDINATES, 1 << (d - 1).bit_length()))
    double = torch.nn.functional.pad(points, (0, -d % chunk if d else chunk, 0, -n % TILE))
    power = LARGEST_POWER - math.frexp(float(double.abs().max()))[1]
    scaled = double * 2.0**power
    high = scaled.half()
    return Cloud(n, chunk, double, high, (scaled - high).half(), power)


def log_sums(
    rows: Cloud, columns: Cloud, scale: float, shift: torch.Tensor, precision: int, lists: Lists | None = None
) -> torch.Tensor:
    """Log sum_j 2^t_ij of every row, -inf if that is 0."""
    parts = run(log_sums_kernel, rows, columns, scale, precision, lists, (padded(shift, columns, precision),))[0]
    if len(parts) == 1:
        return parts[0]
    joined = torch.empty_like(parts[0])
    launch: Any = join_kernel[(triton.cdiv(rows.size, PARTS_TILE.value),)]
    launch(parts, len(parts), parts.stride(0), joined, rows.size, num_warps=1)
    return joined


def rescaled(
    rows: Cloud,
    columns: Cloud,
    scale: float,
    shift: torch.Tensor,
    logs: torch.Tensor,
    shares: torch.Tensor | None = None,
    before: torch.Tensor | None = None,
) -> Scaling:
    """logs_i - log2 sum_j 2^t_ij of every row, about as exact as float32; all vectors are padded.

    With the shifts `before`, rows were off, as a part of what they should be: `off` has the sums of this times `shares`
    over parts of the rows.
    """
    parts = run(log_sums_kernel, rows, columns, scale, SINGLE, None, (shift,))[0]
    programs = len(logs) // PARTS_TILE.value
    exact, rounded = torch.empty_like(logs), torch.empty_like(logs, dtype=torch.float32)
    off = logs.new_empty(0 if before is None else programs)
    launch: Any = rescale_kernel[(programs,)]
    launch(parts, len(parts), parts.stride(0), logs, shares, before, exact, rounded, off, num_warps=1)
    return Scaling(exact, rounded, off)


def plan_times(
    rows: Cloud,
    columns: Cloud,
    scale: float,
    row_shift: torch.Tensor,
    shift: torch.Tensor,
    values: torch.Tensor,
    precision: int,
    lists: Lists | None = None,
    rounded: bool = False,
) -> torch.Tensor:
    """sum_j 2^(row_shift_i + t_ij) values_j of every row, with the powers rounded down to float32 if `rounded`."""
    vectors = padded(row_shift, rows, precision), padded(shift, columns, precision)
    vectors = *vectors, padded(values, columns, precision, 0.0)
    return run(plan_times_kernel, rows, columns, scale, precision, lists, vectors, rounded=rounded)[0].sum(0)


def plan_times_matrix(
    rows: Cloud, columns: Cloud, scale: float, row_shift: torch.Tensor, shift: torch.Tensor, values: torch.Tensor
) -> torch.Tensor:
    """`plan_times` in float64 for a matrix with a row of values for every column."""
    parts, vectors = [], (padded(row_shift, rows, DOUBLE), padded(shift, columns, DOUBLE))
    for some in values.split(VALUES, dim=1):
        given = values.new_zeros(len(columns.double), VALUES)
        given[: columns.size, : some.shape[1]] = some
        out = run(plan_times_matrix_kernel, rows, columns, scale, DOUBLE, None, (*vectors, given), VALUES)
        parts.append(out.sum(1)[: some.shape[1]].T)
    return torch.cat(parts, dim=1)


def judge_plan(
    rows: Cloud,
    columns: Cloud,
    scale: float,
    row_shift: torch.Tensor,
    shift: torch.Tensor,
    terms: torch.Tensor,
    floors: torch.Tensor,
    lists: Lists | None = None,
) -> tuple[torch.Tensor, ...]:
    """What `finish` wants to know, in float64, for every row: sum_j G_ij, sum_j G_ij c_ij and min_j c_ij - floor_j.

    G_ij is 2^(row_shift_i + t_ij), and c_ij is terms_j - <u_i, w_j>.
    """
    vectors = padded(row_shift, rows, DOUBLE), padded(shift, columns, DOUBLE)
    vectors = *vectors, padded(terms, columns, DOUBLE, 0.0), padded(floors, columns, DOUBLE, -math.inf)
    sums, costs, lowest = run(judge_kernel, rows, columns, scale, DOUBLE, lists, vectors, 3)
    return sums.sum(0), costs.sum(0), lowest.amin(0)


def padded(vector: torch.Tensor, cloud: Cloud, precision: int, filler: float = NO_EXPONENT) -> torch.Tensor:
    """A vector of this cloud for a kernel."""
    vector = vector.to(torch.float64 if precision == DOUBLE else torch.float32)
    return torch.nn.functional.pad(vector, (0, len(cloud.double) - cloud.size), value=filler)


def run(
    kernel: Any,
    rows: Cloud,
    columns: Cloud,
    scale: float,
    precision: int,
    lists: Lists | None,
    vectors: tuple[torch.Tensor, ...],
    results: int = 1,
    **options: Any,
) -> torch.Tensor:
    """Launch a kernel; its results for every part of the columns and every row."""
    n, depth = rows.double.shape
    tile_rows, tile_columns, warps, stages = (SHAPES_FOR_CHUNKS if depth > rows.chunk else SHAPES)[precision]
    if precision == DOUBLE:
        points = rows.double, rows.double, columns.double, columns.double
    else:
        points = rows.high, rows.low, columns.high, columns.low
        scale = math.ldexp(scale, -rows.power - columns.power)
    tiles, steps = n // tile_rows, len(columns.double) // tile_columns
    splits = max(1, min(steps // FEWEST_STEPS, (PROGRAMS_FOR_LISTS if lists else PROGRAMS) // tiles))
    out = torch.empty(results, splits, n, dtype=torch.float64, device=rows.double.device)
    starts, listed = lists or (out, out)
    kernel[(tiles, splits)](
        *points,
        int.from_bytes(struct.pack("<d", scale), "little"),
        starts,
        listed,
        steps,
        *vectors,
        out,
        splits * n,
        depth=depth,
        chunk=rows.chunk,
        precision=precision,
        listing=lists is not None,
        tile_rows=tile_rows,
        tile_columns=tile_columns,
        num_warps=warps,
        num_stages=stages,
        **options,
    )
    return out[:, :, : rows.size]


@triton.jit
def span(starts, steps, listing: tl.constexpr, tile_rows: tl.constexpr, tile_columns: tl.constexpr):
    """The first step of this program, and the one after its last."""
    begin, end = 0, steps
    if listing:
        each: tl.constexpr = IS_TILE // tile_columns
        k = tl.program_id(0) * tile_rows // IS_TILE
        begin, end = tl.load(starts + k) * each, tl.load(starts + k + 1) * each
    part = tl.cdiv(end - begin, tl.num_programs(1))
    first = begin + tl.program_id(1) * part
    return first, tl.minimum(first + part, end)


@triton.jit
def columns_of(step, tiles, listing: tl.constexpr, tile_columns: tl.constexpr):
    """The columns of a step."""
    if listing:
        each: tl.constexpr = IS_TILE // tile_columns
        step += (tl.load(tiles + step // each) - step // each) * each
    return step * tile_columns + tl.arange(0, tile_columns)


@triton.jit
def some_of(points, i, start, depth: tl.constexpr, chunk: tl.constexpr):
    """Some coordinates of a tile of points."""
    return tl.load(points + i.to(tl.int64)[:, None] * depth + start + tl.arange(0, chunk)[None, :])


@triton.jit
def number(bits, precision: tl.constexpr):
    """A number that came as the bits of a float64; Triton would take it for float32."""
    result = tl.cast(tl.cast(bits, tl.int64), tl.float64, bitcast=True)
    return result if precision == IS_DOUBLE else result.to(tl.float32)


@triton.jit
def power_of_two(t):
    """2^t; in float64, without the branches of the library, to 1e-14, and zero below 2^-1000."""
    if t.dtype == tl.float64:
        shifted = t + MAGIC
        r = (t - (shifted - MAGIC)) * LN2
        p = ((((C11 * r + C10) * r + C9) * r + C8) * r + C7) * r + C6
        p = (((((p * r + C5) * r + C4) * r + C3) * r + C2) * r + 1.0) * r + 1.0
        bits = p.to(tl.int64, bitcast=True) + (shifted.to(tl.int64, bitcast=True) << 52)
        result = tl.where(t > -1000.0, bits.to(tl.float64, bitcast=True), 0.0)
    else:
        result = tl.exp2(t)
    return result


@triton.jit
def rounded_down(plan):
    """Non-negative numbers in float32, none larger than before."""
    nearest = plan.to(tl.float32)
    bits = nearest.to(tl.int32, bitcast=True) - (nearest > plan).to(tl.int32)
    return bits.to(tl.float32, bitcast=True).to(tl.float64)


@triton.jit
def inner_products(
    row, row_rest, rows, row_rests, i, columns, column_rests, j, depth: tl.constexpr, chunk: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """The inner products of a tile of rows with a tile of columns; `row` is the first chunk of the rows."""
    if precision == IS_DOUBLE:
        products = tl.zeros((i.shape[0], j.shape[0]), tl.float64)
    else:
        products = tl.zeros((i.shape[0], j.shape[0]), tl.float32)
    for start in range(0, depth, chunk):
        if depth > chunk:
            row = some_of(rows, i, start, depth, chunk)
        column = tl.trans(some_of(columns, j, start, depth, chunk))
        if precision == IS_SINGLE:
            if depth > chunk:
                row_rest = some_of(row_rests, i, start, depth, chunk)
            column_rest = tl.trans(some_of(column_rests, j, start, depth, chunk))
            products = tl.dot(row, column_rest, products)
            products = tl.dot(row_rest, column, products)
        products = tl.dot(row, column, products, input_precision="ieee", out_dtype=products.dtype)
    return products


@triton.jit(do_not_specialize=["scale_bits", "steps", "stride"])
def log_sums_kernel(
    rows, row_rests, columns, column_rests, scale_bits, starts, tiles, steps, shift, out, stride, depth: tl.constexpr,
    chunk: tl.constexpr, precision: tl.constexpr, listing: tl.constexpr, tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
):  # fmt: skip
    """A running sum relative to a running maximum, which is whole, so that changing it loses no digit."""
    i = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    row, row_rest = some_of(rows, i, 0, depth, chunk), some_of(row_rests, i, 0, depth, chunk)
    factor = number(scale_bits, precision)
    first, last = span(starts, steps, listing, tile_rows, tile_columns)
    highest = tl.full((tile_rows,), LOWEST_EXPONENT, factor.dtype)
    sums = tl.zeros((tile_rows,), tl.float64)
    for step in range(first, last):
        j = columns_of(step, tiles, listing, tile_columns)
        t = inner_products(row, row_rest, rows, row_rests, i, columns, column_rests, j, depth, chunk, precision)
        t = t * factor + tl.load(shift + j)[None, :]
        higher = tl.maximum(highest, tl.ceil(tl.max(t, axis=1)))
        part = tl.sum(power_of_two(t - higher[:, None]), axis=1)
        sums = sums * tl.exp2(highest - higher) + part
        highest = higher
    logs = tl.where(sums > 0, highest.to(tl.float64) * LN2 + tl.log(tl.where(sums > 0, sums, 1.0)), -float("inf"))
    n = tl.num_programs(0) * tile_rows
    tl.store(out + tl.program_id(1).to(tl.int64) * n + i, logs)


@triton.jit
def joined_parts(parts, count, stride, i):
    """The log-sum-exp of the parts of some rows."""
    highest = tl.full((PARTS_TILE,), -float("inf"), tl.float64)
    for k in range(0, count):
        highest = tl.maximum(highest, tl.load(parts + k * stride + i))
    some = highest > -float("inf")
    shift, sums = tl.where(some, highest, 0.0), tl.zeros((PARTS_TILE,), tl.float64)
    for k in range(0, count):
        sums += tl.exp(tl.load(parts + k * stride + i) - shift)
    return tl.where(some, shift + tl.log(tl.where(some, sums, 1.0)), highest)


@triton.jit(do_not_specialize=["count", "stride", "n"])
def join_kernel(parts, count, stride, joined, n):
    i = tl.program_id(0) * PARTS_TILE + tl.arange(0, PARTS_TILE)
    tl.store(joined + i, joined_parts(parts, count, stride, i), mask=i < n)


@triton.jit(do_not_specialize=["count", "stride"])
def rescale_kernel(parts, count, stride, logs, shares, before, exact, rounded, off):
    i = tl.program_id(0) * PARTS_TILE + tl.arange(0, PARTS_TILE)
    scaling = tl.load(logs + i) - joined_parts(parts, count, stride, i) / LN2
    tl.store(exact + i, scaling)
    tl.store(rounded + i, scaling.to(tl.float32))
    if before is not None:
        share = tl.load(shares + i)
        lacks = tl.abs(tl.exp2(tl.load(before + i) - scaling) - 1.0)
        tl.store(off + tl.program_id(0), tl.sum(tl.where(share > 0, share * lacks, 0.0), axis=0))


@triton.jit(do_not_specialize=["scale_bits", "steps", "stride"])
def plan_times_kernel(
    rows, row_rests, columns, column_rests, scale_bits, starts, tiles, steps, row_shift, shift, values, out, stride,
    depth: tl.constexpr, chunk: tl.constexpr, precision: tl.constexpr, listing: tl.constexpr, tile_rows: tl.constexpr,
    tile_columns: tl.constexpr, rounded: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    row, row_rest = some_of(rows, i, 0, depth, chunk), some_of(row_rests, i, 0, depth, chunk)
    factor, start = number(scale_bits, precision), tl.load(row_shift + i)
    first, last = span(starts, steps, listing, tile_rows, tile_columns)
    sums = tl.zeros((tile_rows,), tl.float64)
    for step in range(first, last):
        j = columns_of(step, tiles, listing, tile_columns)
        t = inner_products(row, row_rest, rows, row_rests, i, columns, column_rests, j, depth, chunk, precision)
        t = t * factor + tl.load(shift + j)[None, :]
        plan = power_of_two(t + start[:, None])
        if rounded:
            plan = rounded_down(plan)
        sums += tl.sum(plan * tl.load(values + j)[None, :], axis=1)
    n = tl.num_programs(0) * tile_rows
    tl.store(out + tl.program_id(1).to(tl.int64) * n + i, sums)


@triton.jit(do_not_specialize=["scale_bits", "steps", "stride"])
def plan_times_matrix_kernel(
    rows, row_rests, columns, column_rests, scale_bits, starts, tiles, steps, row_shift, shift, values, out, stride,
    depth: tl.constexpr, chunk: tl.constexpr, precision: tl.constexpr, listing: tl.constexpr, tile_rows: tl.constexpr,
    tile_columns: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    row, row_rest = some_of(rows, i, 0, depth, chunk), some_of(row_rests, i, 0, depth, chunk)
    factor, start = number(scale_bits, precision), tl.load(row_shift + i)
    first, last = span(starts, steps, listing, tile_rows, tile_columns)
    sums = tl.zeros((tile_rows, ALL_VALUES), tl.float64)
    for step in range(first, last):
        j = columns_of(step, tiles, listing, tile_columns)
        t = inner_products(row, row_rest, rows, row_rests, i, columns, column_rests, j, depth, chunk, precision)
        t = t * factor + tl.load(shift + j)[None, :]
        sums = tl.dot(
            power_of_two(t + start[:, None]),
            some_of(values, j, 0, ALL_VALUES, ALL_VALUES),
            sums,
            input_precision="ieee",
            out_dtype=tl.float64,
        )
    n = tl.num_programs(0) * tile_rows
    place = out + tl.program_id(1).to(tl.int64) * n + i
    tl.store(place[:, None] + tl.arange(0, ALL_VALUES)[None, :].to(tl.int64) * stride, sums)


@triton.jit(do_not_specialize=["scale_bits", "steps", "stride"])
def judge_kernel(
    rows, row_rests, columns, column_rests, scale_bits, starts, tiles, steps, row_shift, shift, terms, floors, out,
    stride, depth: tl.constexpr, chunk: tl.constexpr, precision: tl.constexpr, listing: tl.constexpr,
    tile_rows: tl.constexpr, tile_columns: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * tile_rows + tl.arange(0, tile_rows)
    row, row_rest = some_of(rows, i, 0, depth, chunk), some_of(row_rests, i, 0, depth, chunk)
    factor, start = number(scale_bits, precision), tl.load(row_shift + i)
    first, last = span(starts, steps, listing, tile_rows, tile_columns)
    sums, costs = tl.zeros((tile_rows,), tl.float64), tl.zeros((tile_rows,), tl.float64)
    lowest = tl.full((tile_rows,), float("inf"), tl.float64)
    for step in range(first, last):
        j = columns_of(step, tiles, listing, tile_columns)
        products = inner_products(row, row_rest, rows, row_rests, i, columns, column_rests, j, depth, chunk, precision)
        t = products * factor + tl.load(shift + j)[None, :]
        plan = power_of_two(t + start[:, None])
        sums += tl.sum(plan, axis=1)
        term = tl.load(terms + j)
        above = term - tl.load(floors + j)
        costs += tl.sum(plan * (term[None, :] - products), axis=1)
        lowest = tl.minimum(lowest, tl.min(above[None, :] - products, axis=1))
    n = tl.num_programs(0) * tile_rows
    place = out + tl.program_id(1).to(tl.int64) * n + i
    tl.store(place, sums)
    tl.store(place + stride, costs)
    tl.store(place + 2 * stride, lowest)
