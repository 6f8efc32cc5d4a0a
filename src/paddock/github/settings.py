"""The GitHub part of the settings: which Apps, on which hosts.

Four environment variables configure one App; `[[github.apps]]` in the settings file configures several
Apps or hosts. Secrets are wrapped as they are read, so that printed settings, or errors about them,
show none.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    SecretStr,
    model_validator,
)

GITHUB_COM_API: Final = "https://api.github.com"
_SHORTHAND: Final = ("app_id", "private_key_file", "webhook_secret")


def _check_api_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(
            f"not an address like {GITHUB_COM_API} or https://github.example.org/api/v3"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("the address may have no user, password, query or fragment")
    if parts.scheme == "http" and not _loopback(parts.hostname):
        raise ValueError("tokens would cross the network in clear text; use https")
    return url.rstrip("/")


def _loopback(hostname: str) -> bool:
    if hostname == "localhost":
        return True
    try:
        return ipaddress.ip_address(hostname).is_loopback
    except ValueError:
        return False


def _split_secrets(value: Any) -> Any:
    """`old new` in one variable: both are valid while a secret is being changed."""
    return value.split() if isinstance(value, str) else value


ApiUrl = Annotated[str, AfterValidator(_check_api_url)]
Secrets = Annotated[tuple[SecretStr, ...], BeforeValidator(_split_secrets), Field(min_length=1)]


class GitHubAppSettings(BaseModel):
    """One App. The limits are GitHub's documented ones; raise them for an Enterprise Cloud account,
    lower them where other programs use the same App."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    app_id: PositiveInt = Field(description="the App's id at GitHub")
    private_key_file: Path = Field(
        description="its private key, RSA in PEM; read again for every JWT, so it can be replaced"
    )
    webhook_secret: Secrets = Field(
        default=(), description="what signs its webhooks; several while it is being changed"
    )
    webhook_secret_file: Path | None = Field(
        default=None,
        description="a file with it instead, so that this one holds no secret; several are separated "
        "by white space; read at the start",
    )
    api_url: ApiUrl = Field(
        default=GITHUB_COM_API, description="the address of its host's API, https unless loopback"
    )
    # A changed host name gives all accounts and jobs new identities.
    host: Annotated[str, Field(pattern=r"^[a-z0-9.:\[\]-]+$")] | None = Field(
        default=None,
        description="the name ids are kept under; unset: that of `api_url`. Set it where the "
        "address may change",
    )
    points_per_minute: PositiveInt = Field(
        default=900, description="GitHub's secondary limit: a read costs 1, a write 5"
    )
    requests_per_hour: PositiveInt = Field(
        default=5_000, description="the hourly quota of an installation"
    )
    mints_per_hour: PositiveInt = Field(
        default=10_000, description="the hourly quota of an installation for generate-jitconfig"
    )

    @model_validator(mode="after")
    def _one_place_for_secrets(self) -> GitHubAppSettings:
        if bool(self.webhook_secret) == (self.webhook_secret_file is not None):
            raise ValueError("set one of webhook_secret and webhook_secret_file")
        return self


class GitHubSettings(BaseModel):
    """`[github]`. The fields other than `apps` are the shorthand for a single App."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    apps: tuple[GitHubAppSettings, ...] = Field(
        default=(), description="several Apps or hosts: `[[github.apps]]` in the file"
    )
    api_url: ApiUrl | None = Field(
        default=None, description=f"the address of the single App's API; unset: {GITHUB_COM_API}"
    )
    app_id: PositiveInt | None = Field(default=None, description="the single App's id at GitHub")
    private_key_file: Path | None = Field(
        default=None, description="the single App's private key, RSA in PEM"
    )
    webhook_secret: Secrets | None = Field(
        default=None,
        description="what signs the single App's webhooks; several, separated by spaces, while it "
        "is being changed",
    )

    @model_validator(mode="after")
    def _whole_or_absent(self) -> GitHubSettings:
        missing = [name for name in _SHORTHAND if getattr(self, name) is None]
        if missing == list(_SHORTHAND) and self.api_url is None:
            return self
        if missing:
            names = ", ".join(f"PADDOCK_GITHUB_{name.upper()}" for name in missing)
            raise ValueError(f"a GitHub App is configured in part; also set {names}")
        return self

    @property
    def all_apps(self) -> tuple[GitHubAppSettings, ...]:
        if self.app_id is None:
            return self.apps
        assert self.private_key_file is not None
        assert self.webhook_secret is not None
        single = GitHubAppSettings(
            app_id=self.app_id,
            private_key_file=self.private_key_file,
            webhook_secret=self.webhook_secret,
            api_url=self.api_url or GITHUB_COM_API,
        )
        return (single, *self.apps)
