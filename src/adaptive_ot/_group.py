"""The processes of a torch.distributed group that work on one problem.

The first process leads: it runs the solver, and the solver calls all processes, its own included, for their shares of
an answer. Nobody else decides anything, so processes cannot come to different decisions.

Messages go from one process to another. So the leader can tell which process is lost, and can tell all others to stop.
Only vectors that all processes need, or have a part of, are broadcast and reduced.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from adaptive_ot import errors
from adaptive_ot.errors import AdaptiveOTError, InvalidInput, MissingDependency, ProcessLost

# JSON values and NumPy arrays by name.
Message = dict[str, Any]

# Bytes of the first part of a message; most have no other.
FIRST_PART = 1024

# Where the leader works alone, it says so this often: nobody waits longer than the timeout of the group.
SECONDS_BETWEEN_SIGNS = 1.0

# What the messages of torch say beside the reason: a place in its source, and general advice.
PLACE_AND_ADVICE = re.compile(r"^\[[^]]*\] |\. .*")

# Environment variables that torchrun sets.
ADDRESS = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


# What `reaching_cpus` has made, by group.
ON_GLOO: MutableMapping[Any, Any] = WeakKeyDictionary()


@contextmanager
def process_group(*, gpus: bool = True) -> Iterator[None]:
    """Connect the processes that torchrun started, and their GPUs; a single process needs no connection."""
    if started_together() == 1:
        yield
        return
    import torch
    from torch import distributed

    if distributed.is_initialized():
        yield
        return
    missing = [name for name in ADDRESS if name not in os.environ]
    if missing:
        given = f"WORLD_SIZE without {', '.join(missing)}"
        raise InvalidInput("the environment", "must be that of torchrun", given, "Start it with torchrun.")
    gpus = gpus and torch.cuda.is_available()
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo")
    try:
        yield
    finally:
        distributed.destroy_process_group()


def started_together() -> int:
    """The number of processes that torchrun started."""
    number = os.environ.get("WORLD_SIZE", "")
    return int(number) if number.isdecimal() else 1


class Shares(NamedTuple):
    """The share of one process in an answer, or the whole answer.

    Arrays to be joined in the order of the processes, arrays to be added, and arrays of which the lowest entries count.
    """

    joined: tuple[np.ndarray, ...] = ()
    added: tuple[np.ndarray, ...] = ()
    lowest: tuple[np.ndarray, ...] = ()


class Team:
    """The processes of a group; those of rank 1 and above `serve` the one of rank 0, which is `leading`."""

    def __init__(self, group: Any) -> None:
        try:
            from torch import distributed
        except ImportError:
            raise MissingDependency("torch", "torch") from None
        if not isinstance(group, distributed.ProcessGroup):
            rule, remedy = "must be a group that this process belongs to", "Pass torch.distributed.group.WORLD."
            raise InvalidInput("group", rule, type(group).__name__, remedy)
        self.group, self.rank = reaching_cpus(group), distributed.get_rank(group)
        self.ranks = distributed.get_process_group_ranks(group)  # as all processes of the job are numbered
        self.service: Any = None
        self.last_sign = 0.0

    @classmethod
    def of_all(cls) -> Team | None:
        """All processes that torchrun started and a `process_group` connects; None for a single one."""
        if started_together() == 1:
            return None
        from torch import distributed

        return cls(distributed.group.WORLD)

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def leads(self) -> bool:
        return self.rank == 0

    # Before there is a leader: every process takes part in the same way.

    def agree(self, look: Callable[[], Message], combine: Callable[[list[Message]], Message]) -> Message:
        """What `combine` makes, in the leader, of what `look` returns in every process; in all of them.

        An error in one process is raised in all of them.
        """
        outcome = attempt(look)
        mine: Message = {"failure": failure(outcome)} if isinstance(outcome, Exception) else outcome
        if self.leads:
            try:
                pieces = [mine, *self._replies()]
                failures = [piece.get("failure") for piece in pieces]
                answer = {"call": "agreed", "failures": failures, **({} if any(failures) else combine(pieces))}
            except BaseException as error:
                self._dismiss(error)
                raise
            self._tell([answer] * (self.size - 1))
        else:
            self._send(mine, 0)
            answer = self._receive(0)
            if answer["call"] == "stop":
                raise revived(answer["failure"], 0)
        self._raise_first(answer["failures"], outcome)
        return answer

    def exchange(self, look: Callable[[], Message]) -> list[Message]:
        """What `look` returns in every process, as JSON."""
        return self.agree(look, lambda pieces: {"together": pieces})["together"]

    def gather(self, look: Callable[[], Message]) -> list[Message]:
        """What `look` returns in every process, in the leader; an empty list elsewhere."""
        outcome = attempt(look)
        if not self.leads:
            self._send({"failure": failure(outcome)} if isinstance(outcome, Exception) else outcome, 0)
            return []
        replies = self._replies()
        return [*successes([outcome]), *successes(replies, 1)]

    # The leader.

    @contextmanager
    def leading(self, service: Any) -> Iterator[None]:
        """Call the other processes, which `serve` meanwhile. If the leader fails, all others raise the same error."""
        self.service = service
        try:
            yield
        except BaseException as error:
            self._dismiss(error)
            raise
        self._tell([{"call": "done"}] * (self.size - 1))

    def call(
        self,
        name: str,
        everyone: Mapping[str, Any] | None = None,
        parts: Sequence[dict[str, Any]] | None = None,
    ) -> Shares:
        """The joint answer of a method of all services, given `everyone` the same and each process its part."""
        everyone = everyone or {}
        parts = [{}] * self.size if parts is None else parts
        arrays = {key: value for key, value in everyone.items() if isinstance(value, np.ndarray)}
        plain = {key: value for key, value in everyone.items() if key not in arrays}
        shapes = {key: (array.dtype.str, array.shape) for key, array in arrays.items()}
        try:
            self._tell(
                [{"call": name, "plain": plain, "shapes": shapes, **part} for part in parts[1:]], arrays.values()
            )
            own = attempt(lambda: getattr(self.service, name)(**everyone, **parts[0]))
        except BaseException:  # Ctrl-C, too: a process that is not listened to does not hear that it should stop
            with suppress(ProcessLost):
                self._replies()
            raise
        replies = self._replies()
        (own,), others = successes([own]), successes(replies, 1)
        if own.added or own.lowest:
            self._tell([{"call": "reduce"}] * (self.size - 1))
        added, lowest = self._reduced(own)
        joined = zip(own.joined, *(other.values() for other in others), strict=True)
        return Shares(tuple(map(np.concatenate, joined)), added, lowest)

    def sign(self) -> None:
        """Tell the others, who wait, that the leader is still working."""
        now = time.monotonic()
        if now - self.last_sign > SECONDS_BETWEEN_SIGNS:
            self._tell([{"call": "wait"}] * (self.size - 1))
            self.last_sign = now

    def _dismiss(self, error: BaseException) -> None:
        """Have all others raise the error; those that are lost do not hear it."""
        with suppress(ProcessLost):
            self._tell([{"call": "stop", "failure": failure(error)}] * (self.size - 1))

    # The others.

    def serve(self, service: Any) -> None:
        """Answer the calls of the leader until it is done."""
        pending = Shares()
        while True:
            message = self._receive(0)
            name = message.pop("call")
            if name == "done":
                return
            if name == "stop":
                raise revived(message["failure"], 0)
            if name == "reduce":
                self._reduced(pending)
            elif name != "wait":
                shapes = message.pop("shapes").items()
                shared = {key: self._broadcast(np.empty(shape, dtype)) for key, (dtype, shape) in shapes}
                given = message.pop("plain") | message | shared
                own = attempt(lambda name=name, given=given: getattr(service, name)(**given))
                if isinstance(own, Exception):
                    self._send({"failure": failure(own)}, 0)
                else:
                    pending = own
                    self._send({str(k): array for k, array in enumerate(own.joined)}, 0)

    # Messages.

    def _raise_first(self, failures: Sequence[Mapping[str, Any] | None], own: Any) -> None:
        """Raise the first error of any process, in all of them; an error of them all names none."""
        for rank, found in enumerate(failures):
            if found is not None:
                if isinstance(own, Exception) and not isinstance(own, AdaptiveOTError):
                    raise own  # with its own traceback
                everywhere = all(each == found for each in failures)
                raise revived(found, rank, named=not everywhere) from (own if isinstance(own, Exception) else None)

    def _replies(self) -> list[Message]:
        """A message from each of the others. All are listened to, so that those that are not lost can listen."""
        outcomes = [attempt(lambda rank=rank: self._receive(rank)) for rank in range(1, self.size)]
        lost = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        if lost:
            raise lost[0]
        return outcomes

    def _tell(self, messages: Sequence[Mapping[str, Any]], to_all: Iterable[np.ndarray] = ()) -> None:
        """Send each of the others its message, and all of them some arrays; also those behind one that is lost."""
        sent = [attempt(lambda each=each: self._begin_to_send(each[1], each[0])) for each in enumerate(messages, 1)]
        outcomes = [attempt(lambda each=each: finish_sending(*each)) for each in enumerate(sent, 1)]
        outcomes += [attempt(lambda array=array: self._broadcast(array)) for array in to_all]
        successes(outcomes)

    def _send(self, message: Mapping[str, Any], rank: int) -> None:
        finish_sending(rank, self._begin_to_send(message, rank))

    def _begin_to_send(self, message: Mapping[str, Any], rank: int) -> list[Any]:
        from torch import distributed

        content = packed(message)
        first = np.zeros(FIRST_PART, np.uint8)
        first[: min(FIRST_PART, content.size)] = content[:FIRST_PART]
        parts = [first, content[FIRST_PART:]] if content.size > FIRST_PART else [first]
        with connected(rank):
            return [distributed.isend(as_tensor(part), self.ranks[rank], self.group) for part in parts]

    def _receive(self, rank: int) -> Message:
        from torch import distributed

        def get(size: int) -> np.ndarray:
            with connected(rank):
                part = as_tensor(np.empty(size, np.uint8))
                distributed.recv(part, self.ranks[rank], self.group)
                return part.numpy()

        content = get(FIRST_PART)
        rest = int(content[:8].view(np.int64)[0]) - FIRST_PART
        return unpacked(np.concatenate([content, get(rest)]) if rest > 0 else content)

    def _broadcast(self, array: np.ndarray) -> np.ndarray:
        """The array of the leader."""
        if self.size == 1:
            return array
        from torch import distributed

        tensor = as_tensor(array)
        with connected():
            distributed.broadcast(tensor, self.ranks[0], self.group)
        return tensor.numpy()

    def _reduced(self, own: Shares) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """In the leader, the sums and the lowest entries over all processes."""
        if self.size == 1:
            return own.added, own.lowest
        from torch import distributed

        ways = distributed.ReduceOp.SUM, distributed.ReduceOp.MIN
        results = []
        for arrays, way in zip((own.added, own.lowest), ways, strict=True):
            tensors = [as_tensor(array.copy()) for array in arrays]
            with connected():
                for tensor in tensors:
                    distributed.reduce(tensor, self.ranks[0], way, self.group)
            results.append(tuple(tensor.numpy() for tensor in tensors))
        return results[0], results[1]


def as_tensor(array: np.ndarray) -> Any:
    """A tensor of the same numbers, and of the same memory if it can be written to."""
    import torch

    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


def reaching_cpus(group: Any) -> Any:
    """The group, or where it only connects GPUs, as NCCL does, one of the same processes on Gloo.

    All that is sent lies in the memory of CPUs, whatever device the kernels use.
    """
    from torch import distributed

    if "cpu:" in str(distributed.get_backend_config(group)):
        return group
    if group not in ON_GLOO:
        ranks = distributed.get_process_group_ranks(group)
        ON_GLOO[group] = distributed.new_group(ranks, backend="gloo", use_local_synchronization=True)
    return ON_GLOO[group]


def finish_sending(rank: int, parts: Sequence[Any] | Exception) -> None:
    """Wait until all parts of a message are on their way, if they could be sent at all."""
    if isinstance(parts, Exception):
        raise parts
    with connected(rank):
        for part in parts:
            part.wait()


@contextmanager
def connected(rank: int | None = None) -> Iterator[None]:
    """Report a broken connection, or one that timed out, to this process or to any."""
    try:
        yield
    except ProcessLost:
        raise
    except RuntimeError as error:
        raise ProcessLost(rank, re.sub(PLACE_AND_ADVICE, "", str(error).splitlines()[0])) from None


def attempt(work: Callable[[], Any]) -> Any:
    """The result, or the exception."""
    try:
        return work()
    except Exception as error:
        return error


def successes(outcomes: Sequence[Any], first: int = 0) -> Sequence[Any]:
    """These outcomes, of the processes from the rank `first` on; raises the first error among them."""
    for rank, outcome in enumerate(outcomes, first):
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, dict) and "failure" in outcome:
            raise revived(outcome["failure"], rank, named=True)
    return outcomes


def failure(error: BaseException) -> Message:
    """An exception as JSON; those of the library can be `revived`."""
    arguments = error.args if isinstance(error, AdaptiveOTError) else ()
    plain = all(each is None or isinstance(each, str | int | float) for each in arguments)
    return {
        "type": type(error).__name__,
        "arguments": [*arguments] if plain else None,
        "text": f"{type(error).__name__}: {error}" if str(error) else type(error).__name__,
    }


def revived(found: Mapping[str, Any], rank: int, named: bool = False) -> AdaptiveOTError:
    """The exception that a process failed with, which is `named` in the message where that helps."""
    kind, arguments = getattr(errors, found["type"], None), found["arguments"]
    if not (isinstance(kind, type) and issubclass(kind, AdaptiveOTError) and arguments):
        return ProcessLost(rank, found["text"])
    if issubclass(kind, InvalidInput) and named:
        arguments = [*arguments[:2], f"{arguments[2]}, in process {rank} of the group", *arguments[3:]]
    return kind(*arguments)


def packed(message: Mapping[str, Any]) -> np.ndarray:
    """A message as bytes: its length, that of its header, the header, and the arrays."""
    arrays = {key: np.ascontiguousarray(value) for key, value in message.items() if isinstance(value, np.ndarray)}
    plain = {key: value for key, value in message.items() if key not in arrays}
    kinds = [(key, array.dtype.str, message[key].shape) for key, array in arrays.items()]
    header = np.frombuffer(json.dumps([plain, kinds]).encode(), np.uint8)
    content = [array.reshape(-1).view(np.uint8) for array in arrays.values()]
    sizes = np.array([16 + header.size + sum(each.size for each in content), header.size])
    return np.concatenate([sizes.view(np.uint8), header, *content])


def unpacked(content: np.ndarray) -> Message:
    """The message in these bytes."""
    at = 16 + int(content[8:16].view(np.int64)[0])
    message, kinds = json.loads(content[16:at].tobytes())
    for key, dtype, shape in kinds:
        size = math.prod(shape) * np.dtype(dtype).itemsize
        message[key] = content[at : at + size].copy().view(dtype).reshape(shape)
        at += size
    return message
