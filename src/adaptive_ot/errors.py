"""The exceptions that adaptive-ot raises on purpose.

::

    AdaptiveOTError
    ├── InvalidInput        (also a ValueError)    an argument breaks a rule
    │   └── OutOfRange      (also an IndexError)   a batch has no such problem
    ├── DataError           (also a ValueError)    an image of a dataset cannot be used
    ├── Infeasible          (also a ValueError)    no plan satisfies the constraints
    ├── NotConverged        (also a RuntimeError)  a solver stopped early; has the best solution
    ├── ProcessLost         (also a RuntimeError)  another process of a group failed or stopped
    └── MissingDependency   (also an ImportError)  an optional package is not installed
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adaptive_ot.batch import SolutionBatch
    from adaptive_ot.solution import Solution


class AdaptiveOTError(Exception):
    """Base class of all exceptions that the library raises on purpose."""


class InvalidInput(AdaptiveOTError, ValueError):
    """An argument breaks a rule.

    Parameters
    ----------
    argument
        Name of the argument as the user wrote it.
    rule
        The rule that the argument must satisfy.
    given
        The value that was given instead.
    remedy
        How to fix the problem.

    Examples
    --------
    >>> print(InvalidInput("cost", "must not contain NaN", "NaN at (0, 3)", "Mask it with +inf."))
    cost must not contain NaN; got NaN at (0, 3). Mask it with +inf.
    """

    def __init__(self, argument: str, rule: str, given: object, remedy: str) -> None:
        given = str(given).rstrip(". ")
        super().__init__(argument, rule, given, remedy)  # all of them, so that unpickling restores them
        self.argument = argument
        self.rule = rule
        self.given = given
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.argument} {self.rule}; got {self.given}. {self.remedy}"


class OutOfRange(InvalidInput, IndexError):
    """The index of a problem that a batch does not have.

    Examples
    --------
    >>> import adaptive_ot as aot
    >>> aot.solve([[[-1.0]], [[2.0]]])[2]
    Traceback (most recent call last):
    adaptive_ot.errors.OutOfRange: index must be from -2 to 1 in a batch of 2; got 2. Problems count from 0.
    """


class DataError(AdaptiveOTError, ValueError):
    """An image of a dataset cannot be used.

    Examples
    --------
    >>> print(DataError("amazon/bike/frame_0001.jpg", "the file is truncated"))
    The image 'amazon/bike/frame_0001.jpg' cannot be used: the file is truncated. Remove it, or leave out such images
    with --on-bad-image skip.
    """

    def __init__(self, path: str, reason: str) -> None:
        reason = reason.rstrip(". ")
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"The image {self.path!r} cannot be used: {self.reason}. Remove it, or leave out such images with "
            "--on-bad-image skip."
        )


class Infeasible(AdaptiveOTError, ValueError):
    """Forbidden pairs leave no plan that satisfies the constraints.

    Parameters
    ----------
    mass
        The mass that the plan should move.
    most_mass
        The largest mass that can move, or None if too little mass is not the reason.
    problem
        Index of the first infeasible problem of a batch.

    Examples
    --------
    >>> print(Infeasible(1.0, 0.75))
    No plan moves a mass of 1: only 0.75 can move over the allowed pairs. Use AtMost(), or a smaller FixedMass.
    """

    def __init__(self, mass: float, most_mass: float | None, problem: int | None = None) -> None:
        super().__init__(mass, most_mass, problem)
        self.mass = mass
        self.most_mass = most_mass
        self.problem = problem

    def __str__(self) -> str:
        where = "" if self.problem is None else f"Problem {self.problem} of the batch: "
        if self.most_mass is None:
            return (
                f"{where}No plan of mass {self.mass:.12g} over the allowed pairs has its marginals inside the balls. "
                "Use a larger rho, or AtMost()."
            )
        return (
            f"{where}No plan moves a mass of {self.mass:.12g}: only {self.most_mass:.12g} can move over the allowed "
            "pairs. Use AtMost(), or a smaller FixedMass."
        )


class NotConverged(AdaptiveOTError, RuntimeError):
    """A solver stopped before it could certify its solution; ``solution`` is the best one it found."""

    def __init__(self, message: str, solution: Solution | SolutionBatch) -> None:
        super().__init__(message, solution)
        self.message = message
        self.solution: Any = solution

    def __str__(self) -> str:
        return self.message


class ProcessLost(AdaptiveOTError, RuntimeError):
    """Another process of a group failed, stopped, or did not answer in time.

    Examples
    --------
    >>> print(ProcessLost(2, "connection reset by peer"))
    Process 2 of the group is lost: connection reset by peer. Look for its own error first; if it is only slow, give
    init_process_group a longer timeout.
    """

    def __init__(self, rank: int | None, reason: str) -> None:
        reason = reason.rstrip(". ")
        super().__init__(rank, reason)
        self.rank = rank
        self.reason = reason

    def __str__(self) -> str:
        which = "A process" if self.rank is None else f"Process {self.rank}"
        return (
            f"{which} of the group is lost: {self.reason}. Look for its own error first; if it is only "
            "slow, give init_process_group a longer timeout."
        )


class MissingDependency(AdaptiveOTError, ImportError):
    """An optional package is not installed.

    Examples
    --------
    >>> print(MissingDependency("matplotlib", "plot"))
    This needs matplotlib: pip install "adaptive-ot[plot]"
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(package, extra)
        self.package = package
        self.extra = extra

    def __str__(self) -> str:
        return f'This needs {self.package}: pip install "adaptive-ot[{self.extra}]"'
