"""Many small frozen objects, made on first access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Records(Sequence[T], Generic[T]):
    """A sequence of objects, given by their fields and made together on first access.

    A dump needs the fields alone. An object shares its fields: its `__dict__` is theirs.
    """

    def __init__(self, kind: type[T], fields: Sequence[Mapping[str, Any]]) -> None:
        """Take a dataclass without slots, and the fields of each object, not to be changed."""
        self.fields = fields
        self._kind = kind

    @cached_property
    def _objects(self) -> tuple[T, ...]:
        objects = tuple([object.__new__(self._kind) for _ in self.fields])
        for each, fields in zip(objects, self.fields, strict=True):
            object.__setattr__(each, "__dict__", fields)
        return objects

    def __getitem__(self, index: Any) -> Any:
        return self._objects[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        return self._objects == tuple(other) if isinstance(other, Sequence) else NotImplemented
