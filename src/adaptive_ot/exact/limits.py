"""Size limits of the exact solver."""

from __future__ import annotations

from typing import NamedTuple


class Limits(NamedTuple):
    """Sizes at which the exact solver changes its method. They affect its speed, never the answer.

    Tests set the limits so low that small problems take every branch.

    Attributes
    ----------
    few_pairs, few_pairs_per_node
        Negative pairs are listed, and all of them are arcs from the start, if there are at most this many in total, or
        at most this many per node.
    searched_entries
        Only matrices of at most this many entries are searched for such a list.
    all_listed, listed_per_node
        While the price rises, all pairs are listed if there are at most `all_listed`; otherwise, about
        `listed_per_node` per node at a time.
    steps_per_call, work_per_call
        Pivots, and approximate elementary steps, between two checks of the clock and of Ctrl-C.
    crowd_per_node
        If more pairs than this are watched per node, the pairs are sorted by node.
    pairs_per_block, pairs_per_thread
        Pairs in a block of rows, and the number of pairs from which a second thread pays off.
    rows_sampled
        Number of rows from which typical reduced costs are estimated.
    points_in_cells
        Point clouds in R^d are priced cell by cell if one has at least this many points times 4^d.
    coarsest_points
        The coarsest scale has at most this many points a side; problems of up to eight times as many have no scales.
    shared_pairs
        The processes of a group share the pricing of at least this many pairs.
    """

    few_pairs: int = 2**16
    few_pairs_per_node: int = 32
    searched_entries: int = 2**20
    all_listed: int = 2**14
    listed_per_node: int = 24
    steps_per_call: int = 4096
    work_per_call: int = 20_000_000
    crowd_per_node: int = 16
    pairs_per_block: int = 2**18
    pairs_per_thread: int = 2**19
    rows_sampled: int = 64
    points_in_cells: int = 512
    coarsest_points: int = 128
    shared_pairs: int = 2**22


LIMITS = Limits()
