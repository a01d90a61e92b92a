"""A page of a long list, and the cursor from which on the list goes on."""

from __future__ import annotations

from typing import TypeVar

from holdfast.errors import UsageError

T = TypeVar("T")


class Page(list[T]):
    """A list of at most `limit` things, and where more of them are.

    `next` is None if nothing follows. Else give it to the same call as `after=`.
    """

    def __init__(self, items: list[T], next: str | None = None) -> None:
        super().__init__(items)
        self.next = next

    def __repr__(self) -> str:
        more = "" if self.next is None else f", next={self.next!r}"
        return f"Page({super().__repr__()}{more})"


def checked_limit(what: str, limit: object) -> int:
    """Return the size of a page, or raise a UsageError."""
    if type(limit) is not int or limit < 1:
        raise UsageError(f"{what}(limit={limit!r}): a whole number above 0")
    return limit


def wrong_cursor(what: str, after: object) -> UsageError:
    """Return the error for a cursor that no page has given."""
    return UsageError(f"{what}(after={after!r:.80}): give the `next` of the page before")
