"""Access tokens of the page, the API and the metrics of a store, and their roles.

A token is 256 random bits. It is shown once; the file beside the store keeps only its hash, with a
name, a role and an expiry time. The file belongs to its owner (0600), and a symbolic link is never
followed. A file that others can read or write is refused: a user who can write it can grant himself
access.

The token that `holdfast ui` creates at its start is in no file and is valid until the process ends.
"""

from __future__ import annotations

import builtins
import contextlib
import datetime as dt
import fcntl
import hashlib
import hmac
import os
import re
import secrets
import stat
import time
from collections.abc import Generator
from enum import IntEnum
from pathlib import Path

import msgspec

from holdfast._stores.addresses import full
from holdfast._stores.contract import Store
from holdfast._stores.sqlite import filesystem
from holdfast.errors import UsageError

PREFIX = "hft_"
"""Not `hf_`, which is the prefix of idempotency keys; those are sent to other services."""
SECRET_BYTES = 32
SECRET_MAX_CHARS = 200
NAME_MAX_CHARS = 64
DAY_S = 86_400.0
EXPIRES_S = 30 * DAY_S
EXPIRES_MAX_S = 366 * DAY_S
FILE_MAX_BYTES = 1 << 20
_NAME = re.compile(r"[\w@.+-]+( [\w@.+-]+)*")


class Role(IntEnum):
    """The role of a token; each role includes the roles below it."""

    VIEWER = 1
    """Read runs."""
    OPERATOR = 2
    """Decide about runs."""
    ADMIN = 3
    """Change settings of many runs: queue limits, schedules."""

    @classmethod
    def named(cls, name: str) -> Role:
        """Return a role by its name."""
        try:
            return cls[name.upper()]
        except KeyError:
            known = ", ".join(role.word for role in cls)
            raise UsageError(f"there is no role {name!r}; the roles are: {known}") from None

    @property
    def word(self) -> str:
        """The name of the role."""
        return self.name.lower()


class Unusable(UsageError):
    """The token file cannot be trusted. `why` is the reason without the file's path, for
    unauthenticated clients."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.why = f"the token file {why}"


class Token(msgspec.Struct, frozen=True):
    """A token, without its secret."""

    name: str
    role: str
    hash: str
    created_at: dt.datetime
    expires_at: dt.datetime

    def holds(self, now_s: float | None = None) -> bool:
        """Return whether it has not expired."""
        return self.expires_at.timestamp() > (time.time() if now_s is None else now_s)


class _File(msgspec.Struct):
    version: int = 1
    tokens: list[Token] = []


class Tokens:
    """The tokens of a store: those in its file, and those of this process."""

    def __init__(self, path: str | Path | None) -> None:
        self.path = None if path is None else Path(path)
        self._own: dict[str, Token] = {}
        self._read: tuple[tuple[int, ...], list[Token]] | None = None

    @classmethod
    def of(cls, store: Store) -> Tokens:
        """Return the tokens of a store: beside a SQLite file, in the user's folder for a server."""
        if store.url.startswith("memory:"):
            return cls(None)
        if store.path is not None:
            return cls(f"{store.path}-tokens")
        name = hashlib.sha256(store.store_id.encode()).hexdigest()[:32]
        return cls(_folder() / f"{name}.tokens")

    # -- reading -------------------------------------------------------------------------------

    def verify(self, secret: str) -> Token | None:
        """Return the token of a secret, or None. Every hash is compared completely, so that the
        duration reveals nothing."""
        if not secret or len(secret) > SECRET_MAX_CHARS or not secret.isascii():
            return None
        given = _hash(secret)
        found: Token | None = None
        for token in self._all():
            if hmac.compare_digest(token.hash, given):
                found = token
        return found if found is not None and found.holds() else None

    def current(self, token: Token) -> Token | None:
        """Return the current state of a verified token; None if it has expired or was revoked."""
        same = [it for it in self._all() if hmac.compare_digest(it.hash, token.hash)]
        return same[0] if same and same[0].holds() else None

    def list(self) -> builtins.list[Token]:
        """Return the tokens of the file, including expired ones."""
        return self._load()

    # -- changing ------------------------------------------------------------------------------

    def create(self, name: str, role: str, expires_s: float = EXPIRES_S) -> str:
        """Create a token, and return its secret, which is not stored."""
        secret, token = _made(name, role, expires_s)
        with self._changing() as tokens:
            if any(known.name == name and known.holds() for known in tokens):
                raise UsageError(
                    f"there is a token {name!r} already; holdfast tokens rotate gives it a new secret"
                )
            tokens[:] = [known for known in tokens if known.name != name]
            tokens.append(token)
        return secret

    def create_here(self, name: str, role: str, expires_s: float = EXPIRES_S) -> str:
        """Create a token that only this process knows."""
        secret, token = _made(name, role, expires_s)
        self._own[token.hash] = token
        return secret

    def revoke(self, name: str) -> Token:
        """Remove a token, and end its sessions."""
        with self._changing() as tokens:
            token = _named(tokens, name)
            tokens.remove(token)
        return token

    def rotate(self, name: str) -> str:
        """Give a token a new secret with the same lifetime; the old secret stops working now."""
        with self._changing() as tokens:
            old = _named(tokens, name)
            life_s = (old.expires_at - old.created_at).total_seconds()
            secret, token = _made(name, old.role, life_s)
            tokens[tokens.index(old)] = token
        return secret

    # -- the file ------------------------------------------------------------------------------

    def _all(self) -> builtins.list[Token]:
        return [*self._own.values(), *self._load()]

    def _load(self) -> builtins.list[Token]:
        """Return the tokens of the file; read it again when it has changed."""
        if self.path is None:
            return []
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _refused(self.path, error) from None
        try:
            facts = os.fstat(handle)
            _check(self.path, facts)
            mark = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
            if self._read is None or self._read[0] != mark:
                self._read = (mark, _parsed(self.path, os.read(handle, FILE_MAX_BYTES)))
        finally:
            os.close(handle)
        return list(self._read[1])

    @contextlib.contextmanager
    def _changing(self) -> Generator[builtins.list[Token]]:
        """Yield the list of tokens, and replace the file with the changed list."""
        if self.path is None:
            raise UsageError("a memory: store has no token file; holdfast ui creates its own token")
        if not self.path.parent.exists():
            self.path.parent.mkdir(mode=0o700, parents=True)
        with _locked(self.path):
            tokens = self._load()
            yield tokens
            _write(self.path, msgspec.json.encode(_File(tokens=tokens)))
            self._read = None


def _folder() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    folder = Path(base).expanduser() / "holdfast"
    if folder.is_symlink() or (folder.exists() and folder.stat().st_uid != os.getuid()):
        raise UsageError(f"{folder} is not your own folder, so tokens are not stored there")
    return folder


def _made(name: str, role: str, expires_s: float) -> tuple[str, Token]:
    if len(name) > NAME_MAX_CHARS or not _NAME.fullmatch(name):
        raise UsageError(
            f"the name of a token must have 1 to {NAME_MAX_CHARS} letters, digits, spaces and @ . + - _, "
            f"not {name[:80]!r}"
        )
    if not 0 < expires_s <= EXPIRES_MAX_S:
        raise UsageError(f"a token is valid for at most {EXPIRES_MAX_S / DAY_S:.0f} days")
    secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    now = dt.datetime.now(dt.UTC)
    until = now + dt.timedelta(seconds=expires_s)
    return secret, Token(name, Role.named(role).word, _hash(secret), now, until)


def _named(tokens: list[Token], name: str) -> Token:
    for token in tokens:
        if token.name == name:
            return token
    known = ", ".join(token.name for token in tokens) or "none"
    raise UsageError(f"there is no token {name!r}; known tokens: {known}")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _check(path: Path, facts: os.stat_result) -> None:
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid():
        raise Unusable(path, "is not owned by this user, so it is not trusted")
    if stat.S_IMODE(facts.st_mode) & 0o077:
        raise Unusable(path, "can be read or written by others, so it is not trusted: chmod 600")


def _refused(path: Path, error: OSError) -> Unusable:
    why = "it is a symbolic link" if path.is_symlink() else error.strerror
    return Unusable(path, f"cannot be read: {why}")


def _parsed(path: Path, text: bytes) -> list[Token]:
    try:
        found = msgspec.json.decode(text, type=_File).tokens
        for token in found:
            Role.named(token.role)
            if token.expires_at.tzinfo is None:
                raise UsageError("a time without a zone")
    except (msgspec.MsgspecError, UnicodeDecodeError, UsageError) as error:
        raise Unusable(path, f"is damaged ({error}); remove it and create new tokens") from None
    return found


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        handle = os.open(f"{path}.lock", flags, 0o600)
    except OSError as error:
        raise _refused(path.with_name(f"{path.name}.lock"), error) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(path: Path, text: bytes) -> None:
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        fresh.replace(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        if error.errno in filesystem.NO_SPACE:
            raise full(str(path)) from error
        raise Unusable(path, f"cannot be written: {error.strerror}") from error
    filesystem.sync(str(path.parent))
