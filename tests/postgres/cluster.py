"""A primary and its streaming replica on loopback, and the loss of the primary.

    with Cluster(synchronous=True) as cluster:
        store = holdfast.open(cluster.url("runs"))     # both hosts, the one that can be written
        ...
        cluster.fail_over()                            # SIGKILL, then the replica is promoted

An asynchronous replica can be held back (`hold_back`): what is committed from then on is surely
not on it, and lost when the primary is.
"""

from __future__ import annotations

import os
import signal
from types import TracebackType
from typing import Self

from tests.crash.harness import wait_for
from tests.postgres.server import USER, Server

REPLICA = "replica"
KEPT_MB = "256"


class Cluster:
    """Two servers; `primary` is the one that can be written to."""

    def __init__(self, *, synchronous: bool, quorum: str = f"FIRST 1 ({REPLICA})") -> None:
        self.synchronous = synchronous
        self.quorum = quorum
        self.primary = Server({"wal_keep_size": KEPT_MB, "wal_sender_timeout": "0"})
        self.replica = Server({"wal_receiver_timeout": "0", "wal_retrieve_retry_interval": "100ms"})
        self._held: list[int] = []

    def __enter__(self) -> Self:
        try:
            self.primary.create().start()
            self._copy()
            self.replica.start()
            self._await_streaming()
            if self.synchronous:
                self.configure(synchronous_standby_names=self.quorum)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove both."""
        self.release()
        self.primary.remove()
        self.replica.remove()

    def url(self, database: str = "postgres") -> str:
        """Return a URL that names both, and takes the one that can be written to."""
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in (self.primary, self.replica))
        return f"postgresql://{USER}@{hosts}/{database}?target_session_attrs=read-write"

    def database(self, name: str) -> str:
        """Create a database on both, and return the URL that names both."""
        self.primary.database(name)
        self.catch_up()
        return self.url(name)

    def configure(self, **settings: str) -> None:
        """Change settings of the primary while it runs."""
        for name, value in settings.items():
            self.primary.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self.primary.execute("SELECT pg_reload_conf()")
        for name, value in settings.items():
            self._await_setting(name, value)
        if self.synchronous and "synchronous_standby_names" in settings:
            wait_for(lambda: self._replication()[0] in {"sync", "quorum"}, "a synchronous replica")

    def _await_setting(self, name: str, value: str) -> None:
        shown = f"SELECT current_setting('{name}')"
        wait_for(lambda: self.primary.execute(shown) == [(value,)], f"{name}={value}")

    # -- the replica ---------------------------------------------------------------------------

    def _copy(self) -> None:
        self.replica.program(
            "pg_basebackup", "-D", str(self.replica.data), "-d", self.primary.url(),
            "--checkpoint=fast", "--no-sync", "--write-recovery-conf",
        )  # fmt: skip
        self.replica.data.chmod(0o700)
        source = f"{self.primary.url()}?application_name={REPLICA}"
        with (self.replica.data / "postgresql.auto.conf").open("a") as file:
            file.write(f"\nprimary_conninfo = '{source}'\n")

    def _replication(self) -> tuple[str, str]:
        rows = self.primary.execute("SELECT sync_state, state FROM pg_stat_replication")
        return rows[0] if rows else ("", "")

    def _await_streaming(self) -> None:
        wait_for(lambda: self._replication()[1] == "streaming", "the replica streams")

    def catch_up(self) -> None:
        """Wait until the replica has replayed all that is committed now."""
        [(end,)] = self.primary.execute("SELECT pg_current_wal_lsn()")
        reached = f"SELECT pg_last_wal_replay_lsn() >= '{end}'"
        wait_for(lambda: self.replica.execute(reached) == [(True,)], "the replica has it all")

    def hold_back(self) -> None:
        """From now on nothing reaches the replica, although it is connected."""
        self.catch_up()
        self._held = self.primary.processes("walsender")
        assert self._held, "no replica is connected"
        for pid in self._held:
            os.kill(pid, signal.SIGSTOP)

    def release(self) -> None:
        """Let what was held back through."""
        for pid in self._held:
            if pid in self.primary.processes("walsender"):
                os.kill(pid, signal.SIGCONT)
        self._held = []

    # -- losing the primary --------------------------------------------------------------------

    def kill_primary(self) -> None:
        """Kill every process of the primary at once."""
        self.primary.kill()
        self._held = []

    def promote(self) -> None:
        """Make the replica the primary; returns when it can be written to."""
        assert self.replica.execute("SELECT pg_promote(true, 60)") == [(True,)]
        writable = "SELECT NOT pg_is_in_recovery()"
        wait_for(lambda: self.replica.execute(writable) == [(True,)], "the replica is promoted")

    def fail_over(self) -> None:
        """Lose the primary, and promote the replica."""
        self.kill_primary()
        self.promote()
