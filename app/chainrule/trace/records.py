"""Many small frozen objects, made on first access."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Records(Sequence[T], Generic[T]):
    """A sequence of objects, given by their fields and made together on first access.

    A dump needs the fields alone, and a frozen dataclass costs several times as much as they do.
    """

    def __init__(self, kind: Callable[..., T], fields: Sequence[Mapping[str, Any]]) -> None:
        """Take a constructor, and for each object its keyword arguments, not to be changed; lists become tuples."""
        self.fields = fields
        self._kind = kind

    @cached_property
    def _objects(self) -> tuple[T, ...]:
        return tuple(
            [
                self._kind(
                    **{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
                )
                for fields in self.fields
            ]
        )

    def __getitem__(self, index: Any) -> Any:
        return self._objects[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        return self._objects == tuple(other) if isinstance(other, Sequence) else NotImplemented
