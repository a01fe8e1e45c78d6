"""The distribution of a lookup join's input: which one is done, and why. Pure.

`plan_shuffle` goes by these rules, the first that applies. A shuffle is a wish (FLIP-462 has it as a hint): what cannot be done
is done otherwise, and the reason says so.

====  ==============================================================================================  ========
rule  when                                                                                            shuffle
====  ==============================================================================================  ========
1     it is not asked for                                                                             none
2     the source has no partitioner of its own: it is no `SupportsLookupCustomShuffle`                hash
3     the join keys do not cover the source's bucket keys: the partitioner is not defined for them    hash
4     updates must be resolved, and may find other rows in another micro-batch                        hash
5     a key of the stream may have values that the source's type has not                              hash
6     the partitioner is None: the source wants its input distributed as it is                        none
7     the partitioner is not deterministic, and the input has updates, whose order it would lose      hash
8     otherwise                                                                                       custom
====  ==============================================================================================  ========

Hash: by the join keys, so that all rows of a key are in one task, in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from fluss_lab.errors import InvalidRequestError
from fluss_lab.lookup.key_cast import KeyCasts
from fluss_lab.lookup.lookup_interfaces import InputDataPartitioner, LookupTableSource, SupportsLookupCustomShuffle
from fluss_lab.lookup.portable import faults_named

ShuffleKind: TypeAlias = Literal["none", "hash", "custom"]
NONE: Final = "none"
HASH: Final = "hash"
CUSTOM: Final = "custom"


@dataclass(frozen=True, slots=True)
class StreamTraits:
    """What is known of a join's input.

    Attributes:
        is_updating: It has updates and deletes: a changelog, by its ``_change_type``.
        is_moving: Rows are looked up as they are at each micro-batch, so that a row and its later retraction may find
            different ones.
        updates_matter: Such updates are to be resolved: ``table.optimizer.non-deterministic-update.strategy`` is
            ``TRY_RESOLVE``.
    """

    is_updating: bool = False
    is_moving: bool = False
    updates_matter: bool = False


@dataclass(frozen=True, slots=True)
class ShufflePlan:
    """How a join's input is distributed.

    Attributes:
        kind: ``none``: as it is; ``hash``: by the join keys; ``custom``: by the source's partitioner.
        reason: Why, in a short sentence without a stop.
        tasks: Among how many tasks; None without a shuffle.
        partitioner: The source's, of a custom shuffle only.
        is_deterministic: Whether it says that it gives equal keys equal partitions.
    """

    kind: ShuffleKind
    reason: str
    tasks: int | None = None
    partitioner: InputDataPartitioner | None = None
    is_deterministic: bool = True

    @property
    def text(self) -> str:
        """Return what `explain` shows."""
        return f"{'no' if self.kind == 'none' else self.kind} shuffle: {self.reason}"


def plan_shuffle(
    source: LookupTableSource, keys: Sequence[str], casts: KeyCasts, traits: StreamTraits, *, tasks: int | None
) -> ShufflePlan:
    """Return how the input of a join with a source is distributed.

    Args:
        source: With whose rows.
        keys: The source's columns that the stream's are equal to.
        casts: Of the stream's keys to these.
        traits: Of the stream.
        tasks: Among how many tasks a shuffle is asked for; at least 1. None: none is.

    Raises:
        InvalidRequestError: Fewer than one task.
        InvalidError: The source, or its partitioner, raised; the text names its class.
    """
    if tasks is None:
        return ShufflePlan(NONE, "not asked for")
    if isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1:
        raise InvalidRequestError(f"lookup join with {source.name}: tasks: expected at least 1, found {tasks!r}")
    if not isinstance(source, SupportsLookupCustomShuffle):
        return ShufflePlan(HASH, f"{source.name} has no partitioner of its own", tasks)
    with faults_named(source, "bucket_keys"):
        bucket_keys = source.bucket_keys()
    if not set(bucket_keys) <= set(keys):
        covered = f"the join keys ({', '.join(keys)}) do not cover the bucket keys ({', '.join(bucket_keys)})"
        return ShufflePlan(HASH, covered, tasks)
    if traits.is_updating and traits.is_moving and traits.updates_matter:
        return ShufflePlan(HASH, "updates may find other rows later, and are to be resolved (TRY_RESOLVE)", tasks)
    if casts.lossy:
        return ShufflePlan(HASH, f"the type of {', '.join(casts.lossy)} has not all values of the stream's", tasks)
    with faults_named(source, "get_partitioner"):
        partitioner = source.get_partitioner()
    if partitioner is None:
        return ShufflePlan(NONE, f"{source.name} wants its input distributed as it is")
    name = type(partitioner).__qualname__
    with faults_named(partitioner, "is_deterministic"):
        is_deterministic = partitioner.is_deterministic()
    if traits.is_updating and not is_deterministic:
        return ShufflePlan(HASH, f"{name} is not deterministic, and the input has updates", tasks)
    count = f"{tasks} task{'' if tasks == 1 else 's'}"
    return ShufflePlan(CUSTOM, f"{name}, {count}", tasks, partitioner, is_deterministic)
