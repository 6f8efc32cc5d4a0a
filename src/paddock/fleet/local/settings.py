"""`[local]`: runners as processes of this machine."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from paddock.fleet.local.installation import Installation

NO_CGROUP = "none"


class LocalSettings(BaseModel):
    """`[local]`, for `paddock up`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    runner: Path | None = Field(
        default=None,
        description="where actions/runner is installed (the directory with `bin/Runner.Listener`, or "
        "with `github-act-runner`, in it); needed for the jobs of a real GitHub, and used for those "
        "of the demonstration",
    )
    cgroup: str | None = Field(
        default=None,
        description="a cgroup that is paddock's to divide between runners; unset: one within its own, "
        "where the system allows that; `none`: runners have no limits",
    )

    @field_validator("runner")
    @classmethod
    def _is_installed(cls, value: Path | None) -> Path | None:
        if value is not None:
            Installation(value)
        return value

    @field_validator("cgroup")
    @classmethod
    def _is_a_cgroup(cls, value: str | None) -> str | None:
        if value not in (None, NO_CGROUP) and not Path(value).is_dir():
            raise ValueError(f"there is no directory `{value}`.")
        return value
