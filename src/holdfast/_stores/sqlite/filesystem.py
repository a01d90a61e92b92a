"""Check the file of a database: a plain file of this user, on a file system with reliable locks and
syncs."""

from __future__ import annotations

import errno
import logging
import os
import stat
from pathlib import Path

from holdfast._stores.addresses import full
from holdfast.errors import StoreFailed, StoreUnusable

log = logging.getLogger("holdfast.store")

NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "afs", "ceph", "lustre"),
        *("glusterfs", "gfs2", "ocfs2", "ncpfs", "vboxsf", "virtiofs", "davfs", "davfs2", "beegfs"),
        *("fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.ceph", "fuse.davfs2"),
        *("fuse.gcsfuse", "fuse.mountpoint-s3", "fuse.smbnetfs", "fuse.juicefs", "prl_fs"),
    }
)
"""File systems on which locks or syncs depend on another machine."""

MAGIC = b"SQLite format 3\0"
"""The first bytes of every database file."""
SMALLEST_BYTES = 512
"""The smallest page, and so the smallest file, of SQLite. SQLite would treat a file of a single
byte as a new database and overwrite it."""

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

MOUNTS = Path("/proc/self/mounts")


def resolved(path: str) -> str:
    """Return the absolute path with its folder resolved; the file itself must not be a link."""
    folder, name = os.path.split(os.path.abspath(path))
    folder = os.path.realpath(folder)
    found = _looked_at(folder)
    if found is None:
        raise StoreUnusable(f"the folder {folder} does not exist; create it: mkdir -p {folder}")
    if not stat.S_ISDIR(found.st_mode):
        raise StoreUnusable(f"{folder} is not a folder; give the path of a file in a folder")
    return os.path.join(folder, name)


def is_there(path: str) -> bool:
    """Return whether the file exists; raise StoreUnusable if that cannot be determined."""
    return _looked_at(path) is not None


def _looked_at(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnusable(
            f"{path} cannot be looked at: {error.strerror}{_way_out(error, path)}"
        ) from error


def _way_out(error: OSError, path: str) -> str:
    """Return the remedy for an error of the operating system, for the end of a message."""
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"; make it accessible to this user: namei -l {path} shows who owns what"
    return ""


def check_file(path: str) -> bool:
    """Refuse a file that must not be opened; return whether the file exists."""
    found = _looked_at(path)
    if found is None:
        return False
    if stat.S_ISLNK(found.st_mode):
        raise StoreUnusable(f"{path} is a symbolic link; give the path of the file itself")
    if not stat.S_ISREG(found.st_mode):
        raise StoreUnusable(f"{path} is not a file; give the path of a database file")
    if 0 < found.st_size < SMALLEST_BYTES:
        raise StoreUnusable(
            f"{path} is not a database: it is too short for one ({found.st_size} bytes); give another "
            "path"
        )
    if found.st_mode & 0o007:
        if found.st_size and not _begins_like_a_database(path):
            raise no_database(path)
        raise StoreUnusable(
            f"{path} is open to other users of this machine; close it: chmod 600 {path}"
        )
    return True


def _begins_like_a_database(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return True  # An unreadable file may be one.


def no_database(path: str) -> StoreUnusable:
    """Return the error for a file that is not a database, or whose beginning is damaged."""
    return StoreUnusable(
        f"{path} is not a database, or its first page is damaged; give another path, "
        "or restore a backup"
    )


def check_readable(path: str) -> None:
    """Refuse a file that this user cannot read."""
    if not os.access(path, os.R_OK):
        raise StoreUnusable(
            f"{path} cannot be read by this user; make it accessible to this user, or use the "
            f"user that owns it: ls -l {path}"
        )


def check_file_system(path: str, *, force: bool) -> str:
    """Refuse a network file system, warn about an overlay; return the type."""
    kind = file_system_of(os.path.dirname(path))
    if kind in NETWORK and not force:
        raise StoreUnusable(
            f"{path} is on a network file system ({kind}), where locks and syncs cannot be relied "
            "on; use a local disk or PostgreSQL, or take the risk with ?force_fs=1"
        )
    if kind == "overlay":
        log.warning(
            "%s is on an overlay file system: it is lost with its container; use a volume", path
        )
    return kind


def file_system_of(folder: str) -> str:
    """Return the type of the file system that a folder is on, or "" if it is unknown."""
    try:
        lines = MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        _, mount, mount_kind, *_ = line.split(" ")
        mount = mount.encode().decode("unicode_escape") if "\\" in mount else mount
        inside = mount in {"/", folder} or folder.startswith(mount + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, mount_kind
    return kind


def check_new(path: str, *, read_only: bool) -> None:
    """Refuse a path at which no file is, and none could be created."""
    if read_only:
        raise nothing_to_read(path)
    folder = os.path.dirname(path)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _not_created(path, os.strerror(errno.EACCES))


def nothing_to_read(path: str) -> StoreUnusable:
    """Return the error for a store that is to be read, and is not there."""
    return StoreUnusable(f"there is no database at {path} to read")


def _not_created(path: str, why: str | None) -> StoreUnusable:
    folder = os.path.dirname(path)
    return StoreUnusable(f"{path} cannot be created ({why}); is {folder} writable?")


def create_file(path: str) -> None:
    """Create an empty file that only this user can read. Must be called before the file is
    opened."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno in NO_SPACE:
            raise full(path) from error
        raise _not_created(path, error.strerror) from error
    os.close(handle)


def sync(path: str) -> None:
    """Sync a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise full(path) from error
        raise StoreFailed(f"{path} cannot be synced: {error.strerror}") from error
    finally:
        os.close(handle)


def open_companion(path: str, *, create: bool, read_only: bool = False) -> int | None:
    """Open a companion file of a database, or return None if it does not exist."""
    flags = (os.O_RDONLY if read_only else os.O_RDWR) | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags | (os.O_CREAT if create else 0), 0o600)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in NO_SPACE:
            raise full(path) from error
        raise StoreUnusable(
            f"{path} cannot be opened: {error.strerror}{_way_out(error, path)}"
        ) from error
