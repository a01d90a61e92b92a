"""Tokens in their file: private, hashed, and refused when others could have touched them."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from holdfast._operator.web.access_tokens import Role, Tokens
from holdfast._stores.contract import Store
from holdfast.errors import UsageError
from tests.model.memory_store import MemoryStore


def test_a_token_is_256_random_bits_and_is_shown_once(tmp_path: Path):
    tokens = Tokens(tmp_path / "t")
    secrets = {tokens.create(f"t{n}", "viewer") for n in range(20)}
    assert len(secrets) == 20
    assert all(secret.startswith("hft_") and len(secret) == 4 + 43 for secret in secrets)
    text = (tmp_path / "t").read_text()
    assert not any(secret[3:] in text for secret in secrets)


def test_a_token_is_verified_with_its_role_until_its_time_is_over(tmp_path: Path):
    tokens = Tokens(tmp_path / "t")
    secret = tokens.create("kim", "operator", 3600)
    found = tokens.verify(secret)
    assert found is not None
    assert (found.name, Role.named(found.role)) == ("kim", Role.OPERATOR)
    assert found.holds()
    assert not found.holds(found.expires_at.timestamp())
    assert tokens.verify(secret + "x") is None
    assert tokens.verify("") is None
    assert tokens.verify("hf_é") is None


def test_roles_stand_above_each_other():
    assert Role.VIEWER < Role.OPERATOR < Role.ADMIN
    with pytest.raises(UsageError, match="no role 'root'"):
        Role.named("root")


@pytest.mark.parametrize("name", ["", " ", "a\nb", "a\x1b[31m", "x" * 65, "a  b", "<b>", "a/b"])
def test_a_name_that_could_disguise_itself_is_refused(tmp_path: Path, name: str):
    with pytest.raises(UsageError, match="the name of a token must"):
        Tokens(tmp_path / "t").create(name, "viewer")


@pytest.mark.parametrize("seconds", [0, -1, 367 * 86_400])
def test_every_token_ends(tmp_path: Path, seconds: float):
    with pytest.raises(UsageError, match="is valid for at most 366 days"):
        Tokens(tmp_path / "t").create("kim", "viewer", seconds)


def test_a_name_is_given_once(tmp_path: Path):
    tokens = Tokens(tmp_path / "t")
    tokens.create("kim", "viewer")
    with pytest.raises(UsageError, match="there is a token 'kim' already"):
        tokens.create("kim", "admin")


def test_revoked_and_rotated_secrets_end_at_once_in_every_process(tmp_path: Path):
    one, other = Tokens(tmp_path / "t"), Tokens(tmp_path / "t")
    secret = one.create("kim", "viewer")
    found = other.verify(secret)
    assert found is not None
    fresh = one.rotate("kim")
    assert other.verify(secret) is None
    assert other.current(found) is None
    assert other.verify(fresh) is not None
    one.revoke("kim")
    assert other.verify(fresh) is None
    with pytest.raises(UsageError, match="no token 'kim'"):
        one.revoke("kim")


def test_several_processes_change_the_file_together(tmp_path: Path):
    def work(number: int) -> None:
        Tokens(tmp_path / "t").create(f"t{number}", "viewer")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Tokens(tmp_path / "t").list()) == 16


# -- faults 111, 112 ---------------------------------------------------------------------------


def test_fault_111_the_file_is_private_whatever_the_umask(tmp_path: Path):
    before = os.umask(0)
    try:
        Tokens(tmp_path / "t").create("kim", "viewer")
    finally:
        os.umask(before)
    for file in tmp_path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file


@pytest.mark.parametrize("mode", [0o644, 0o660, 0o604, 0o620])
def test_fault_111_a_file_that_others_can_touch_is_not_believed(tmp_path: Path, mode: int):
    tokens = Tokens(tmp_path / "t")
    secret = tokens.create("kim", "viewer")
    (tmp_path / "t").chmod(mode)
    with pytest.raises(UsageError, match="chmod 600"):
        Tokens(tmp_path / "t").verify(secret)


def test_fault_112_a_symbolic_link_is_not_followed(tmp_path: Path):
    real = Tokens(tmp_path / "real")
    secret = real.create("kim", "admin")
    (tmp_path / "t").symlink_to(tmp_path / "real")
    with pytest.raises(UsageError, match="it is a symbolic link"):
        Tokens(tmp_path / "t").verify(secret)
    with pytest.raises(UsageError, match="it is a symbolic link"):
        Tokens(tmp_path / "t").create("lee", "admin")
    assert [token.name for token in real.list()] == ["kim"]


def test_fault_112_nor_is_one_in_the_place_of_the_lock(tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "t.lock").symlink_to(victim)
    with pytest.raises(UsageError, match="it is a symbolic link"):
        Tokens(tmp_path / "t").create("kim", "viewer")
    assert victim.read_text() == "precious"


def test_a_damaged_file_lets_nobody_in(tmp_path: Path):
    tokens = Tokens(tmp_path / "t")
    secret = tokens.create("kim", "viewer")
    (tmp_path / "t").write_text("{")
    with pytest.raises(UsageError, match="is damaged"):
        Tokens(tmp_path / "t").verify(secret)


# -- where it is -------------------------------------------------------------------------------


def test_it_stands_beside_a_sqlite_file(store: Store, tmp_path: Path):
    assert Tokens.of(store).path == tmp_path / "runs.db-tokens"


def test_for_a_server_it_is_in_the_users_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class Server:
        url = "postgresql://kim@db/runs"
        path = None
        store_id = "5f3c"

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    tokens = Tokens.of(Server())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tokens.create("kim", "viewer")
    folder = tmp_path / "config" / "holdfast"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert tokens.path is not None
    assert tokens.path.parent == folder
    assert "kim@db" not in tokens.path.name


def test_a_store_in_memory_has_only_tokens_of_this_process():
    tokens = Tokens.of(MemoryStore())
    assert tokens.verify(tokens.create_here("kim", "viewer")) is not None
    assert tokens.list() == []
    with pytest.raises(UsageError, match="has no token file"):
        tokens.create("kim", "viewer")


def test_a_token_of_this_process_is_in_no_file(tmp_path: Path):
    tokens = Tokens(tmp_path / "t")
    secret = tokens.create_here("kim", "operator")
    assert tokens.verify(secret) is not None
    assert Tokens(tmp_path / "t").verify(secret) is None
    assert not (tmp_path / "t").exists()
