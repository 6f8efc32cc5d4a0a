"""The Apps that an operator may configure, and the messages for contradictory settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from paddock.domain.github.objects import AppKey, GitHubAppId, GitHubHost
from paddock.github.apps import Apps, host_of
from paddock.github.settings import GitHubAppSettings, GitHubSettings

APP: dict[str, Any] = {
    "app_id": 12,
    "private_key_file": "/etc/paddock/app.pem",
    "webhook_secret": "hush-hush",
}


class Settings(BaseSettings):
    """As the program's settings include them."""

    model_config = SettingsConfigDict(
        env_prefix="PADDOCK_", env_nested_delimiter="_", env_nested_max_split=1
    )
    github: GitHubSettings = GitHubSettings()


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("PADDOCK_GITHUB_APP_ID", "12")
    monkeypatch.setenv("PADDOCK_GITHUB_PRIVATE_KEY_FILE", "/etc/paddock/app.pem")
    monkeypatch.setenv("PADDOCK_GITHUB_WEBHOOK_SECRET", "hush-hush")
    return monkeypatch


def secrets(app: GitHubAppSettings) -> list[str]:
    return [secret.get_secret_value() for secret in app.webhook_secret]


def test_four_variables_are_one_app(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PADDOCK_GITHUB_API_URL", "https://github.example.org/api/v3/")
    [app] = Settings().github.all_apps
    assert (app.app_id, app.private_key_file) == (12, Path("/etc/paddock/app.pem"))
    assert app.api_url == "https://github.example.org/api/v3"
    assert secrets(app) == ["hush-hush"]


def test_without_an_address_it_is_github_com(environment: pytest.MonkeyPatch) -> None:
    [app] = Settings().github.all_apps
    assert app.api_url == "https://api.github.com"


def test_two_secrets_are_valid_while_one_replaces_the_other(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("PADDOCK_GITHUB_WEBHOOK_SECRET", "old-one new-one\n")
    [app] = Settings().github.all_apps
    assert secrets(app) == ["old-one", "new-one"]


def test_nothing_configured_is_no_app() -> None:
    assert Settings().github.all_apps == ()


@pytest.mark.parametrize("name", ["APP_ID", "PRIVATE_KEY_FILE", "WEBHOOK_SECRET"])
def test_an_app_configured_in_part_says_what_is_missing(
    environment: pytest.MonkeyPatch, name: str
) -> None:
    environment.delenv(f"PADDOCK_GITHUB_{name}")
    with pytest.raises(ValidationError, match=f"also set PADDOCK_GITHUB_{name}"):
        Settings()


def test_an_address_alone_is_not_an_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_GITHUB_API_URL", "https://github.example.org/api/v3")
    with pytest.raises(ValidationError, match="also set PADDOCK_GITHUB_APP_ID"):
        Settings()


def test_apps_of_the_file_stand_beside_the_shorthand(environment: pytest.MonkeyPatch) -> None:
    settings = GitHubSettings.model_validate({**APP, "apps": [APP | {"app_id": 13}]})
    assert [app.app_id for app in settings.all_apps] == [12, 13]


@pytest.mark.parametrize(
    "url",
    [
        "api.github.com",
        "ftp://github.com",
        "https://",
        "https://user:secret@github.com",
        "https://api.github.com?x=1",
        "http://github.example.org/api/v3",
    ],
)
def test_an_address_that_would_not_work_or_not_be_safe_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        GitHubAppSettings.model_validate(APP | {"api_url": url})


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://localhost:1", "http://[::1]:1"])
def test_a_github_on_this_machine_may_speak_plain_http(url: str) -> None:
    assert GitHubAppSettings.model_validate(APP | {"api_url": url}).api_url == url


@pytest.mark.parametrize("wrong", [{"webhook_secret": ""}, {"app_id": 0}, {"secret": "x"}])
def test_a_wrong_value_is_refused_without_showing_a_secret(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as raised:
        GitHubAppSettings.model_validate(APP | wrong)
    assert "hush-hush" not in str(raised.value)


def test_a_secret_is_not_shown() -> None:
    settings = GitHubSettings.model_validate(APP | {"apps": [APP | {"app_id": 13}]})
    apps = Apps.from_settings(settings.all_apps)
    for text in (repr(settings), str(settings), repr(list(apps)), settings.model_dump_json()):
        assert "hush-hush" not in text


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://api.github.com", "github.com"),
        ("https://api.acme.ghe.com", "acme.ghe.com"),
        ("https://GitHub.Example.org/api/v3", "github.example.org"),
        ("https://github.example.org:8443/api/v3", "github.example.org:8443"),
        ("https://api.example.org", "api.example.org"),
        ("http://127.0.0.1:9000", "127.0.0.1:9000"),
        ("http://[::1]:9000", "[::1]:9000"),
    ],
)
def test_a_host_is_known_by_the_name_people_use(url: str, host: str) -> None:
    """I71"""
    assert host_of(url) == host


def test_the_same_app_id_on_two_hosts_is_two_apps() -> None:
    """I71"""
    there = APP | {"api_url": "https://github.example.org/api/v3"}
    apps = Apps.from_settings([GitHubAppSettings(**APP), GitHubAppSettings(**there)])
    assert len(apps) == 2
    found = apps[AppKey(host=GitHubHost("github.example.org"), app=GitHubAppId(12))]
    assert found.api_url == "https://github.example.org/api/v3"


def test_an_app_configured_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"App 12 on github.com is configured twice"):
        Apps.from_settings([GitHubAppSettings(**APP), GitHubAppSettings(**APP)])


def test_one_host_under_two_addresses_is_refused() -> None:
    """I71: its ids would be mixed with another's."""
    other = APP | {"app_id": 13, "host": "github.com", "api_url": "https://github.example.org"}
    with pytest.raises(ValueError, match="two addresses"):
        Apps.from_settings([GitHubAppSettings(**APP), GitHubAppSettings(**other)])


def test_an_apps_limits_are_its_own() -> None:
    apps = Apps.from_settings([GitHubAppSettings(**APP, requests_per_hour=15_000)])
    [limits] = apps.limits.values()
    assert (limits.rest_per_hour, limits.mints_per_hour) == (15_000, 10_000)


def test_a_webhook_secret_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old-one\nnew-one\n")
    app = {**APP, "webhook_secret_file": file}
    del app["webhook_secret"]
    [read] = Apps.from_settings([GitHubAppSettings(**app)])
    assert [each.get_secret_value() for each in read.webhook_secrets] == ["old-one", "new-one"]


@pytest.mark.parametrize(
    ("content", "why"), [(None, "No such file"), ("  \n", "there is no webhook")]
)
def test_a_webhook_secret_that_cannot_be_read_is_told(
    tmp_path: Path, content: str | None, why: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
    app = {**APP, "webhook_secret_file": file}
    del app["webhook_secret"]
    with pytest.raises(ValueError, match=why):
        Apps.from_settings([GitHubAppSettings(**app)])


@pytest.mark.parametrize("secrets", [{}, {"webhook_secret": "a", "webhook_secret_file": "/b"}])
def test_a_webhook_secret_has_one_place(secrets: dict[str, str]) -> None:
    app = {**APP, **secrets}
    if not secrets:
        del app["webhook_secret"]
    with pytest.raises(ValidationError, match="set one of webhook_secret and webhook_secret_file"):
        GitHubAppSettings(**app)
