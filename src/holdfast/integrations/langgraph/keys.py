"""The keys of the rows of checkpoints in a memory.

n/T.N            the names of a thread and of one of its namespaces
c/T.N/C          one checkpoint
w/T.N/C/K        the writes of one task after it
e/T/H            one value of the thread, by its digest
p/…/2            a part of one of these, if it is large
r/T              exists while rows of the thread are removed or replaced (see shelf.py)

T and N are digests, since ids of threads are arbitrary strings. C is the complement of the id, so
that the newest checkpoint sorts first. Ids that are not UUIDs have no complement: C is a digest
then, sorts before all others, and the row has the id.
"""

from __future__ import annotations

import base64
import hashlib
from typing import NamedTuple
from uuid import UUID

_DIGITS = "-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
"""64 digits in the order of their code points."""
_VALUE = {digit: value for value, digit in enumerate(_DIGITS)}
_LENGTH = 22
ORDERED, UNORDERED = "u", "a"
"""The prefixes of ids in keys."""
_MAX = 64**_LENGTH - 1


class Place(NamedTuple):
    """A namespace of a thread."""

    thread: str
    ns: str

    @property
    def folder(self) -> str:
        """The part T.N of keys; the root namespace has no N."""
        return f"{thread_digest(self.thread)}.{digest(self.ns, 11) if self.ns else ''}"

    @property
    def name(self) -> str:
        """The key of the row with the two names."""
        return f"n/{self.folder}"

    @property
    def checkpoints(self) -> str:
        """The key prefix of its checkpoints."""
        return f"c/{self.folder}/"

    def checkpoint(self, checkpoint_id: str) -> str:
        """The key of a checkpoint."""
        return self.checkpoints + newest_first(checkpoint_id)

    def writes(self, checkpoint_id: str) -> str:
        """The key prefix of the writes after a checkpoint."""
        return f"w/{self.folder}/{newest_first(checkpoint_id)}/"

    def task(self, checkpoint_id: str, task_id: str) -> str:
        """The key of a task's writes."""
        return self.writes(checkpoint_id) + digest(task_id, 16)


def digest(text: str | bytes, length: int) -> str:
    """Return the first characters of a digest, six bits each."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()[:length]


def thread_digest(thread: str) -> str:
    """Return the digest of a thread in keys."""
    return digest(thread, 16)


def elements(thread: str) -> str:
    """Return the key prefix of a thread's values."""
    return f"e/{thread_digest(thread)}/"


def rewriting(thread: str) -> str:
    """Return the key of the row that exists while rows of a thread are removed or replaced."""
    return f"r/{thread_digest(thread)}"


def newest_first(checkpoint_id: str) -> str:
    """Return the form of an id in keys."""
    number = _number(checkpoint_id)
    if number is None:
        return UNORDERED + digest(checkpoint_id, _LENGTH)
    left, digits = _MAX - number, ""
    for _ in range(_LENGTH):
        left, value = divmod(left, 64)
        digits = _DIGITS[value] + digits
    return ORDERED + digits


def is_ordered(form: str) -> bool:
    """Return whether this form of an id can be compared with others."""
    return form.startswith(ORDERED)


def id_of(key: str) -> str | None:
    """Return the id in the key of a checkpoint; None if only its row has it."""
    form = key.rpartition("/")[2]
    if not is_ordered(form):
        return None
    number = 0
    for digit in form[1:]:
        number = number * 64 + _VALUE[digit]
    return str(UUID(int=_MAX - number))


def _number(checkpoint_id: str) -> int | None:
    try:
        found = UUID(checkpoint_id)
    except ValueError:
        return None
    return found.int if str(found) == checkpoint_id else None
