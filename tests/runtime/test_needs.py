"""An integration says what to install, and from which version on."""

from importlib import metadata

import pytest

from holdfast.integrations._needs import needs

REQUIRES = [
    "msgspec<1,>=0.19",
    "agentic<3,>=2.9; extra == 'dev'",
    "Agentic_Core[fast]<2,>=1.10.2; extra == 'agentic-kit'",
    "loose; extra == 'agentic-kit'",
]


@pytest.fixture
def installed(monkeypatch):
    """Distributions that are there, by name. Holdfast asks for REQUIRES."""
    there: dict[str, str] = {"holdfast": "1"}

    def version(name: str) -> str:
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return there[name]

    def requires(name: str) -> list[str]:
        version(name)
        return REQUIRES

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "requires", requires)
    return there


def test_what_is_missing_is_named(installed):
    with pytest.raises(ModuleNotFoundError) as raised:
        needs("agentic-core", extra="agentic-kit")
    assert str(raised.value) == (
        "holdfast.integrations.agentic_kit needs agentic-core 1.10.2 or later: "
        "pip install -e '.[agentic-kit]' in a clone"
    )
    assert raised.value.name == "agentic-core"


@pytest.mark.parametrize("version", ["1.9.9", "1.10.1", "0.99", "1.10", "1"])
def test_what_is_too_old_is_named(installed, version):
    installed["agentic-core"] = version
    with pytest.raises(ImportError, match=r"needs agentic-core 1\.10\.2 or later") as raised:
        needs("agentic-core", extra="agentic-kit")
    assert str(raised.value).endswith(f"(found {version})")
    assert not isinstance(raised.value, ModuleNotFoundError)


@pytest.mark.parametrize("version", ["1.10.2", "1.10.2.0", "1.10.10", "1.11rc1", "2.0", "1!1.10.2"])
def test_what_is_new_enough_is_let_be(installed, version):
    installed["agentic-core"] = version
    needs("agentic-core", extra="agentic-kit")


def test_the_range_of_another_extra_does_not_count(installed):
    installed["agentic"] = "1"
    needs("agentic", extra="agentic-kit")
    with pytest.raises(ImportError):
        needs("agentic", extra="dev")


@pytest.mark.parametrize("holdfast", [True, False])
def test_without_a_range_only_the_package_is_named(installed, holdfast):
    if not holdfast:
        del installed["holdfast"]
    with pytest.raises(ModuleNotFoundError) as raised:
        needs("loose", extra="agentic-kit")
    assert "agentic_kit needs loose: pip install -e '.[agentic-kit]' in a clone" in str(
        raised.value
    )


def test_it_reads_what_the_installed_package_really_says():
    asked = "opentelemetry-api"
    needs(asked, extra="otel")
    assert any(asked in line and "otel" in line for line in metadata.requires("holdfast") or [])
