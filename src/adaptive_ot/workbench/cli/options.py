"""Options that several commands share, and error messages that name them as they are typed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from adaptive_ot import AtMost, ChiSquareBall, Equal, FixedMass, InvalidInput, Marginals, SoftKL


def _whole(_: Any, tokens: Any) -> int:
    """Left alone, cyclopts would round fractions."""
    text = tokens[0].value
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"it must be a whole number; got {text!r}.") from None


Whole = Annotated[int, Parameter(converter=_whole)]
Flag = Annotated[bool, Parameter(negative=())]
Words = Annotated[list[str] | None, Parameter(negative=())]
Output = Annotated[Path, Parameter(alias="-o")]
OptionalOutput = Annotated[Path | None, Parameter(alias="-o")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The transport model: adaptive, if nothing is set.

    Parameters
    ----------
    equal
        Balanced transport: move everything.
    mass
        Partial transport: move exactly this much mass.
    tau
        Unbalanced transport: marginals may differ from the weights, at this price of divergence; needs entropy.
    """

    equal: Flag = False
    mass: float | None = None
    tau: float | None = None

    def marginals(self, epsilon: float | None, rho: float | None = None) -> Marginals:
        """The model, at most one, and one that can be solved with this entropy or without entropy."""
        models = {"equal": self.equal or None, "mass": self.mass, "tau": self.tau, "rho": rho}
        asked = [f"--{name}" for name, value in models.items() if value is not None]
        if len(asked) > 1:
            remedy = "Choose one of them, or none for adaptive transport."
            raise InvalidInput(asked[0], "does not go with another model", " ".join(asked), remedy)
        if self.tau is not None and epsilon is None:
            raise InvalidInput("--tau", "needs --epsilon", "none", "Give a small --epsilon, or another model.")
        if rho is not None and epsilon is not None:
            raise InvalidInput("--rho", "does not go with --epsilon", epsilon, "Omit --epsilon, or use --tau.")
        if self.equal:
            return Equal()
        if self.mass is not None:
            return FixedMass(self.mass)
        if self.tau is not None:
            return SoftKL(self.tau)
        return AtMost() if rho is None else ChiSquareBall(rho)


def configuration(options: Any, **files: Path | None) -> dict[str, Any]:
    """The options and input files of a command as a report keeps them; omitted ones are left out."""
    kept = {name: value for name, value in asdict(options).items() if name not in ("output", "report", "json")}
    given = {name: value for name, value in (files | kept).items() if value is not None}
    return {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}


@contextmanager
def named(*options: str, **shown: str) -> Iterator[None]:
    """Let error messages about arguments name what the user typed.

    Parameters
    ----------
    *options
        Arguments that are options of the same name.
    **shown
        Arguments that have another name on the command line.

    Examples
    --------
    >>> with named("test_crops", settings="--set"):
    ...     raise InvalidInput("test_crops", "must be one", "ten", "Choose one.")
    Traceback (most recent call last):
    adaptive_ot.errors.InvalidInput: --test-crops must be one; got ten. Choose one.
    """
    names = {option: f"--{option.replace('_', '-')}" for option in options} | shown
    try:
        yield
    except InvalidInput as error:
        word, *rest = error.argument.split(" ", 1)  # as in "output 'runs/1'"
        name = " ".join([names.get(word, word), *rest])
        raise InvalidInput(name, error.rule, error.given, error.remedy) from None
