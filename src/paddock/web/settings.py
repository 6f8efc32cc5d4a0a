"""The dashboard's settings: who may read, and whether actions are allowed."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

#: People do not type the token, and guesses are not slowed down: 24 characters of base64 are 144 bits.
SHORTEST_TOKEN: Final = 24


def _split(value: Any) -> Any:
    """Split `one two` in one variable."""
    return tuple(value.split()) if isinstance(value, str) else value


Words = Annotated[tuple[str, ...], BeforeValidator(_split)]


class DashboardSettings(BaseModel):
    """`[dashboard]`: who may see the dashboard and use the API. `paddock up` is open to this machine.
    Elsewhere there is no access until a token or a proxy is named here."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    token: SecretStr | None = Field(
        default=None,
        description="a user who has it may look, in a browser or with `Authorization: Bearer`; like "
        "the output of `openssl rand -base64 32`",
    )
    proxy_header: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9-]+$",
        description="the header in which an authenticating proxy names who asks, like "
        "X-Forwarded-User",
    )
    proxy_networks: Words | str = Field(
        default=(),
        description="the addresses from which that header is believed, like 10.0.3.0/24; in the "
        "environment separated by spaces",
    )
    hosts: Words | str = Field(
        default=(),
        description="the names it is reached by, like paddock.example.org; others are then refused. "
        "In the environment separated by spaces",
    )
    actions: bool = Field(
        default=False,
        description="whether those who may look may also retire runners, and pause and resume pools, "
        "accounts and dispatch",
    )

    @field_validator("token")
    @classmethod
    def _is_long(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < SHORTEST_TOKEN:
            raise ValueError(
                f"it has fewer than {SHORTEST_TOKEN} characters and could be guessed: take the output "
                "of `openssl rand -base64 32`."
            )
        return value

    @field_validator("proxy_networks")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for network in value:
            try:
                ipaddress.ip_network(network)
            except ValueError:
                raise ValueError(
                    f"`{network}` is no network: write it like 10.0.3.0/24 or 10.0.3.7."
                ) from None
        return value

    @field_validator("hosts")
    @classmethod
    def _are_lower(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(host.lower() for host in value)

    @model_validator(mode="after")
    def _proxy_is_whole(self) -> DashboardSettings:
        if (self.proxy_header is None) != (not self.proxy_networks):
            raise ValueError(
                "proxy_header and proxy_networks go together: without the second any peer could send "
                "the header, without the first no user is named."
            )
        return self

    @property
    def networks(self) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
        return tuple(ipaddress.ip_network(network) for network in self.proxy_networks)
