"""The Apps this paddock acts as, found by host and id.

An id is unique only on its host (I71), so an App is never looked up by its number alone, and an
installation's requests go to its App's host (I18).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from paddock.domain.github.budgets import BudgetLimits
from paddock.domain.github.objects import AppKey, GitHubAppId, GitHubHost
from paddock.github.settings import GitHubAppSettings


def host_of(api_url: str) -> GitHubHost:
    """The name of a GitHub host, from the address of its API.

    `api.github.com` belongs to github.com, `api.TENANT.ghe.com` to a tenant with data residency; an
    Enterprise Server's API is under the server's own name.
    """
    parts = urlsplit(api_url)
    name = (parts.hostname or "").lower()
    if name == "api.github.com" or (name.startswith("api.") and name.endswith(".ghe.com")):
        name = name.removeprefix("api.")
    if ":" in name:
        name = f"[{name}]"
    return GitHubHost(f"{name}:{parts.port}" if parts.port else name)


@dataclass(frozen=True, slots=True, kw_only=True)
class GitHubApp:
    host: GitHubHost
    app_id: GitHubAppId
    api_url: str
    private_key_file: Path
    #: All secrets that may sign a webhook now; more than one while a secret is being changed.
    webhook_secrets: tuple[SecretStr, ...]
    limits: BudgetLimits

    @property
    def key(self) -> AppKey:
        return AppKey(host=self.host, app=self.app_id)


class Apps:
    """All Apps. Raises `ValueError` with a sentence for the user if they contradict each other."""

    def __init__(self, apps: Iterable[GitHubApp]) -> None:
        self._apps: dict[AppKey, GitHubApp] = {}
        self._urls: dict[GitHubHost, str] = {}
        for app in apps:
            if app.key in self._apps:
                raise ValueError(f"{app.key} is configured twice; remove one of the two")
            if self._urls.setdefault(app.host, app.api_url) != app.api_url:
                raise ValueError(
                    f"{app.host} is configured with two addresses, {self._urls[app.host]} and"
                    f" {app.api_url}; give all its Apps the same api_url"
                )
            self._apps[app.key] = app

    @classmethod
    def from_settings(cls, settings: Iterable[GitHubAppSettings]) -> Apps:
        return cls(
            GitHubApp(
                host=GitHubHost(app.host) if app.host else host_of(app.api_url),
                app_id=GitHubAppId(app.app_id),
                api_url=app.api_url,
                private_key_file=app.private_key_file,
                webhook_secrets=app.webhook_secret or _secrets_in(app.webhook_secret_file),
                limits=BudgetLimits(
                    points_per_minute=app.points_per_minute,
                    rest_per_hour=app.requests_per_hour,
                    mints_per_hour=app.mints_per_hour,
                ),
            )
            for app in settings
        )

    def __getitem__(self, key: AppKey) -> GitHubApp:
        try:
            return self._apps[key]
        except KeyError:
            raise ValueError(f"{key} is not configured; add it to [[github.apps]]") from None

    def __contains__(self, key: AppKey) -> bool:
        return key in self._apps

    def __iter__(self) -> Iterator[GitHubApp]:
        return iter(self._apps.values())

    def __len__(self) -> int:
        return len(self._apps)

    @property
    def limits(self) -> dict[AppKey, BudgetLimits]:
        return {key: app.limits for key, app in self._apps.items()}

    @property
    def hosts(self) -> dict[GitHubHost, str]:
        """Every host with the address of its API."""
        return dict(self._urls)


def _secrets_in(file: Path | None) -> tuple[SecretStr, ...]:
    assert file is not None  # the settings' validation ensures this
    try:
        secrets = file.read_text("utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ValueError(f"the webhook secret in {file} cannot be read: {why}") from error
    if not secrets:
        raise ValueError(f"there is no webhook secret in {file}")
    return tuple(map(SecretStr, secrets))
