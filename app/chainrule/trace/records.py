"""Many small frozen objects, made on first access."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class Records(Sequence[T], Generic[T]):
    """A sequence of objects, given by their fields and made together on first access.

    A dump needs the fields alone, and a frozen dataclass costs several times as much as they do.
    """

    __slots__ = ("_kind", "_objects", "fields")

    def __init__(self, kind: Callable[..., T], fields: Sequence[Mapping[str, Any]]) -> None:
        """Take a constructor, and for each object its keyword arguments, not to be changed; lists become tuples."""
        self.fields = fields
        self._kind = kind
        self._objects: tuple[T, ...] | None = None

    def _made(self) -> tuple[T, ...]:
        objects = self._objects
        if objects is None:
            # Two threads may both come here: they make equal objects.
            objects = self._objects = tuple(
                [
                    self._kind(
                        **{name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
                    )
                    for fields in self.fields
                ]
            )
        return objects

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self._made()[index]

    def __iter__(self) -> Iterator[T]:
        return iter(self._made())

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Sequence):
            return self._made() == tuple(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._made())

    def __repr__(self) -> str:
        return repr(self._made())
