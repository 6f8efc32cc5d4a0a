"""Settings: all mistakes are reported at once, each in a sentence that names its place."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.domain.recovery.thresholds import Thresholds
from paddock.settings import LogFormat, LogLevel, Settings, SettingsError, load


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PADDOCK_"):
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "paddock.toml"


def mistakes(file: Path | None = None, **options: object) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load(file, **options)
    return caught.value.mistakes


def test_nothing_has_to_be_set() -> None:
    settings = load()
    assert settings.database_url is None
    assert settings.listen_address == ("127.0.0.1", 8787)
    assert (settings.log_level, settings.log_format) == (LogLevel.INFO, LogFormat.CONSOLE)


def test_options_come_before_the_environment_before_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('data_dir = "/file"\nlisten = "0.0.0.0:1"\nlog_level = "debug"\n')
    monkeypatch.setenv("PADDOCK_LISTEN", "0.0.0.0:2")
    monkeypatch.setenv("PADDOCK_LOG_LEVEL", "error")
    settings = load(file, data_dir=Path("/option"), listen=None)
    assert settings.data_dir == Path("/option")
    assert settings.listen == "0.0.0.0:2"
    assert settings.log_level is LogLevel.ERROR


def test_the_file_can_be_named_in_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('listen = "0.0.0.0:1"\n')
    monkeypatch.setenv("PADDOCK_CONFIG", str(file))
    assert load().listen == "0.0.0.0:1"


def test_an_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_DATABASE_URL", "")
    assert load().database_url is None


def test_all_mistakes_are_told_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text('log_format = "xml"\nlitsen = "127.0.0.1:1"\n')
    monkeypatch.setenv("PADDOCK_LOG_LEVEL", "loud")
    told = mistakes(file, listen="nowhere")
    assert len(told) == 4
    assert "--listen: `nowhere` is no address: write host:port, like 127.0.0.1:8787." in told
    assert f"`litsen` in {file} is no setting: did you mean `listen`?" in told
    assert any(text.startswith("PADDOCK_LOG_LEVEL in the environment: ") for text in told)
    assert any(text.startswith(f"`log_format` in {file}: ") for text in told)


def test_a_variable_that_is_nearly_a_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_DATABSE_URL", "postgresql://h/d")
    assert mistakes() == (
        "PADDOCK_DATABSE_URL in the environment is no setting: did you mean PADDOCK_DATABASE_URL?",
    )


def test_what_kubernetes_adds_for_a_service_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PORT", "SERVICE_HOST", "SERVICE_PORT", "PORT_8787_TCP", "PORT_8787_TCP_ADDR"):
        monkeypatch.setenv(f"PADDOCK_{name}", "10.0.0.1")
    assert isinstance(load(), Settings)


def test_a_password_is_shown_neither_in_settings_nor_in_mistakes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PADDOCK_DATABASE_URL", "postgresql://u:hush@h/d")
    assert "hush" not in repr(load())
    monkeypatch.setenv("PADDOCK_DATABASE_URL", "postgresql://u:sec/ret@h/d")
    (told,) = mistakes()
    assert told.startswith("PADDOCK_DATABASE_URL in the environment: The host and port")
    assert "ret@" not in told


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:8787", ("::1", 8787)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_addresses(listen: str, address: tuple[str, int]) -> None:
    assert load(listen=listen).listen_address == address


@pytest.mark.parametrize("listen", ["", "8787", ":8787", "localhost", "localhost:http", "h:65536"])
def test_no_addresses(listen: str) -> None:
    assert "is no address" in mistakes(listen=listen)[0]


def test_a_file_that_is_not_there(file: Path) -> None:
    (told,) = mistakes(file)
    assert told == (
        f"The settings file {file} cannot be read (No such file or directory): check --config and "
        "PADDOCK_CONFIG."
    )


def test_a_file_that_is_not_toml(file: Path) -> None:
    file.write_text("listen = \n")
    (told,) = mistakes(file)
    assert told.startswith(f"The settings file {file} is not TOML: ")
    assert "line 1" in told


def test_a_list_in_the_environment_that_is_not_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_GITHUB_APPS", "hush")
    (told,) = mistakes()
    assert "is not JSON" in told
    assert "hush" not in told


def test_recovery_waits_as_its_table_does_unless_it_is_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert load().recovery.thresholds == Thresholds()
    monkeypatch.setenv("PADDOCK_RECOVERY_SILENT", "90")
    assert load().recovery.thresholds == replace(Thresholds(), silent=90.0)


def test_rules_can_be_tried_out_one_by_one_or_all_together(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('[recovery]\ndry_run_rules = ["silent", "zombie"]\n')
    recovery = load(file).recovery
    assert [recovery.dry(rule) for rule in ("silent", "zombie", "surplus")] == [True, True, False]
    monkeypatch.setenv("PADDOCK_RECOVERY_DRY_RUN_RULES", "surplus silent")
    assert load().recovery.dry("surplus")
    monkeypatch.setenv("PADDOCK_RECOVERY_DRY_RUN", "true")
    assert load().recovery.dry("zombie")


def test_all_mistakes_in_recovery_are_told_at_once(file: Path) -> None:
    file.write_text(
        '[recovery]\ndry_run_rules = ["zombi"]\nsilent = 0\nsuspcet = 1\npull = "nan"\n'
    )
    told = mistakes(file)
    assert f"`recovery.dry_run_rules` in {file}: `zombi` is no rule: write `zombie`." in told
    assert f"`recovery.silent` in {file}: Input should be greater than 0." in told
    assert f"`recovery.suspcet` in {file} is no setting: did you mean `recovery.suspect`?" in told
    assert any(text.startswith(f"`recovery.pull` in {file}: ") for text in told)
    assert len(told) == 4
