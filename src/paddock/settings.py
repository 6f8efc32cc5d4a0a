"""The settings: `PADDOCK_*` in the environment, or a TOML file with the same names in lower case.

All mistakes are reported at once, each in a sentence that names the place. An unknown name in the file
is refused, and so is a variable that is nearly a setting's name: a typing error would otherwise look
like a setting that does not work. Other unknown variables are ignored, because Kubernetes sets some
(`PADDOCK_PORT`, `PADDOCK_SERVICE_HOST`) in every Pod of a namespace with a Service called paddock.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings.exceptions import SettingsError as UnreadableSettings

from paddock.dispatch.sealing import read_key
from paddock.domain.limits import Limits
from paddock.domain.pods.quantities import mebibytes, milli
from paddock.domain.recovery.table import RULES
from paddock.domain.recovery.thresholds import Thresholds, counted, reasons
from paddock.fleet.kube.settings import KubeSettings
from paddock.fleet.local.settings import LocalSettings
from paddock.github.settings import GitHubSettings
from paddock.listener import ListenerLimits
from paddock.ports.errors import StoreError
from paddock.store.data_directory import default_data_dir
from paddock.store.errors import check_url
from paddock.web.settings import DashboardSettings

_PREFIX = "PADDOCK_"
# Read separately, outside the settings.
_OTHER_VARIABLES = ("PADDOCK_CONFIG", "PADDOCK_DEBUG")
# How similar two names must be to count as a typing error: DATABSE_URL and DATABASE_URL have 0.96.
_ALIKE = 0.87


class SettingsError(Exception):
    """All mistakes in the settings, one sentence each."""

    def __init__(self, *mistakes: str) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    CONSOLE = "console"
    JSON = "json"


class FleetKind(StrEnum):
    LOCAL = "local"
    KUBE = "kube"


class AccountSettings(BaseModel):
    """`[accounts]`: what an account may use when it is first seen. Afterwards it is changed with
    `paddock accounts limits` and `weight`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    max_runners: Annotated[int, Field(ge=0, description="runners at once")] | None = None
    max_vcpu: str | None = Field(default=None, description="CPUs at once, like 64")
    max_memory: str | None = Field(default=None, description="memory at once, like 256Gi")
    weight: int = Field(
        default=1, ge=1, le=1000, description="its share of scarce runners beside the others"
    )

    @field_validator("max_vcpu")
    @classmethod
    def _is_cpus(cls, value: str | None) -> str | None:
        if value is not None:
            milli(value)
        return value

    @field_validator("max_memory")
    @classmethod
    def _is_memory(cls, value: str | None) -> str | None:
        if value is not None:
            mebibytes(value)
        return value

    @property
    def limits(self) -> Limits:
        return Limits(
            runners=self.max_runners,
            vcpu_milli=None if self.max_vcpu is None else milli(self.max_vcpu),
            memory_mib=None if self.max_memory is None else mebibytes(self.max_memory),
        )


def _threshold(name: str) -> Any:
    """A setting for a threshold, with the default and the reason from the table of thresholds."""
    default: float = getattr(Thresholds(), name)
    unit = "times" if counted(name) else "seconds"
    return Field(
        default=default,
        gt=0,
        allow_inf_nan=False,
        description=f"{unit}; {reasons()[name]}",
    )


class RecoverySettings(BaseModel):
    """`[recovery]`: how long its rules wait (`paddock rules` names them), how much a round may do, and
    what is only tried."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    dry_run: bool = Field(
        default=False, description="decide and record, but do nothing that a rule decides"
    )
    dry_run_rules: tuple[str, ...] | str = Field(
        default=(),
        description="rules that only record what they would do; in the environment separated by spaces",
    )
    actions_per_round: int = Field(
        default=50,
        gt=0,
        description="actions of all rules together; a round is seconds long, so more than this at "
        "once is a mistake rather than a leak",
    )
    actions_per_rule: int = Field(
        default=20,
        gt=0,
        description="actions of one rule in a round; one rule that is wrong leaves the others room",
    )
    questions_per_round: int = Field(
        default=30,
        gt=0,
        description="questions to GitHub and to logs in a round, oldest suspects first; at a round "
        "every five seconds it is what a quota of 15,000 an hour leaves beside the rest",
    )

    fresh: float = _threshold("fresh")
    recheck: float = _threshold("recheck")
    absent_reads: int = _threshold("absent_reads")
    boot: float = _threshold("boot")
    pull: float = _threshold("pull")
    unschedulable: float = _threshold("unschedulable")
    silent: float = _threshold("silent")
    stale_claim: float = _threshold("stale_claim")
    undelivered: float = _threshold("undelivered")
    start: float = _threshold("start")
    suspect: float = _threshold("suspect")
    suspects: int = _threshold("suspects")
    waiting: float = _threshold("waiting")
    never_registered: float = _threshold("never_registered")
    zombie: float = _threshold("zombie")
    surplus: float = _threshold("surplus")
    no_job: float = _threshold("no_job")
    unassigned: float = _threshold("unassigned")
    refusals: int = _threshold("refusals")
    linger: float = _threshold("linger")
    removals: int = _threshold("removals")
    removed: float = _threshold("removed")
    adopt: float = _threshold("adopt")
    supply_grace: float = _threshold("supply_grace")
    verdict: float = _threshold("verdict")
    in_progress: float = _threshold("in_progress")
    unheard: float = _threshold("unheard")
    job_expired: float = _threshold("job_expired")
    job_end: float = _threshold("job_end")

    @field_validator("dry_run_rules")
    @classmethod
    def _are_rules(cls, value: tuple[str, ...] | str) -> tuple[str, ...]:
        names = tuple(value.split()) if isinstance(value, str) else value
        known = [rule.name for rule in RULES]
        for name in names:
            if name not in known:
                meant = "".join(difflib.get_close_matches(name, known, n=1))
                hint = f"write `{meant}`." if meant else "`paddock rules` lists them."
                raise ValueError(f"`{name}` is no rule: {hint}")
        return names

    @property
    def thresholds(self) -> Thresholds:
        return Thresholds(**{name: getattr(self, name) for name in reasons()})

    def dry(self, rule: str) -> bool:
        """Whether the rule only records what it would do."""
        return self.dry_run or rule in self.dry_run_rules


class Settings(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_ignore_empty=True,
        # PADDOCK_GITHUB_APP_ID is `app_id` in `[github]`.
        env_nested_delimiter="_",
        env_nested_max_split=1,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    database_url: SecretStr | None = Field(
        default=None, description="a PostgreSQL 15 or newer; unset: paddock runs its own"
    )
    data_dir: Path = Field(
        default_factory=default_data_dir,
        description="where paddock's own PostgreSQL keeps its data",
    )
    database_wait: float = Field(
        default=30.0,
        ge=0,
        description="for how many seconds `serve`, `up` and `migrate` try a database that is away "
        "again; other commands give up within 5",
    )
    listen: str = Field(default="127.0.0.1:8787", description="the address HTTP is served at")
    pods_listen: str | None = Field(
        default=None,
        description="a second address that answers only what Pods ask, for a network that lets jobs "
        "reach nothing else here",
    )
    vitals_listen: str | None = Field(
        default=None,
        description="a third that takes only vitals, for a network that cuts jobs off from dispatch",
    )
    max_connections: int = Field(
        default=ListenerLimits().connections,
        ge=64,
        description="connections that each address serves at once; 10,000 Pods that wait at one "
        "replica, and half as many again",
    )
    max_waiting_per_peer: int = Field(
        default=ListenerLimits().waiting_per_peer,
        ge=16,
        description="connections of one peer address on which no request is being answered; a proxy "
        "keeps some hundreds idle. Held polls do not count, so any number of Pods may share an address",
    )
    pods_certificate_file: Path | None = Field(
        default=None,
        description="a certificate and its intermediates, in PEM: `pods_listen` and `vitals_listen` "
        "are then served over TLS, and on a cluster `listen` answers nothing that Pods ask; read again "
        "when it changes",
    )
    pods_key_file: Path | None = Field(default=None, description="its private key, in PEM")
    sealing_keys: SecretStr | None = Field(
        default=None,
        description="what JITs are sealed with: 32 bytes in base64; several, separated by spaces, "
        "while one replaces another: the first seals, all open",
    )
    fleet: FleetKind | None = Field(
        default=None,
        description="where runners live: `kube`, or, for `paddock up`, `local`; unset: `paddock serve` "
        "takes webhooks in and gives out no runners",
    )
    github: GitHubSettings = GitHubSettings()
    accounts: AccountSettings = AccountSettings()
    dashboard: DashboardSettings = DashboardSettings()
    recovery: RecoverySettings = RecoverySettings()
    kube: KubeSettings = KubeSettings()
    local: LocalSettings = LocalSettings()
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.CONSOLE

    @field_validator("database_url")
    @classmethod
    def _is_a_database_url(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            try:
                check_url(value.get_secret_value())
            except StoreError as error:
                raise ValueError(error.message) from None
        return value

    @field_validator("sealing_keys")
    @classmethod
    def _are_keys(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            for key in value.get_secret_value().split():
                read_key(key)
        return value

    @field_validator("listen", "pods_listen", "vitals_listen")
    @classmethod
    def _is_an_address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        host, _, port = value.rpartition(":")
        if not host or not port.isdigit() or not 0 <= int(port) < 65536:
            raise ValueError(f"`{value}` is no address: write host:port, like 127.0.0.1:8787.")
        return value

    @property
    def sealing(self) -> list[bytes]:
        """The keys; the first one seals."""
        keys = self.sealing_keys.get_secret_value() if self.sealing_keys else ""
        return [read_key(key) for key in keys.split()]

    @property
    def listen_address(self) -> tuple[str, int]:
        return _address(self.listen)

    @property
    def pods_address(self) -> tuple[str, int] | None:
        return _address(self.pods_listen) if self.pods_listen else None

    @property
    def vitals_address(self) -> tuple[str, int] | None:
        return _address(self.vitals_listen) if self.vitals_listen else None


def _address(value: str) -> tuple[str, int]:
    host, _, port = value.rpartition(":")
    return host.strip("[]"), int(port)


#: Tables such as `[github]`, whose settings are variables such as PADDOCK_GITHUB_APP_ID.
_TABLES: Mapping[str, type[BaseModel]] = {
    "github": GitHubSettings,
    "accounts": AccountSettings,
    "dashboard": DashboardSettings,
    "recovery": RecoverySettings,
    "kube": KubeSettings,
    "local": LocalSettings,
}


def load(config: Path | None = None, **options: Any) -> Settings:
    """The settings. The command line takes precedence over the environment, and that over the file."""
    file = config or (Path(name) if (name := os.environ.get("PADDOCK_CONFIG")) else None)
    from_file = _read(file) if file else {}
    given = {name: value for name, value in options.items() if value is not None}

    class WithFile(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            """No `.env`: a file in the current directory must not choose the database."""
            return init_settings, env_settings, InitSettingsSource(settings_cls, from_file)

    mistakes = _nearly_settings()
    try:
        settings = WithFile(**given)
    except ValidationError as error:
        mistakes += [_sentence(mistake, file, given) for mistake in error.errors()]
    except UnreadableSettings:
        # pydantic's message names a class. Only tables and lists are JSON in the environment, and only
        # `github` has such.
        mistakes.append(
            f"{_variable('github')}* in the environment holds a list that is not JSON: write "
            "`[[github.apps]]` in a settings file instead."
        )
    if mistakes:
        raise SettingsError(*mistakes)
    return settings


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SettingsError(
            f"The settings file {file} cannot be read ({error.strerror}): check --config and "
            "PADDOCK_CONFIG."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"The settings file {file} is not TOML: {error}.") from error


def _nearly_settings() -> list[str]:
    known = [*map(_variable, _names()), *_OTHER_VARIABLES]
    return [
        f"{name} in the environment is no setting: did you mean {meant}?"
        for name in sorted(os.environ)
        if name.startswith(_PREFIX) and name not in known
        # Variables with a table's prefix are always read, and refused if unknown.
        if not name.startswith(tuple(_variable(f"{table}.") for table in _TABLES))
        for meant in difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
    ]


def _names() -> list[str]:
    within = (f"{table}.{name}" for table, model in _TABLES.items() for name in model.model_fields)
    return [*(name for name in Settings.model_fields if name not in _TABLES), *within]


def _variable(name: str) -> str:
    return _PREFIX + name.replace(".", "_").upper()


def _sentence(mistake: ErrorDetails, file: Path | None, options: dict[str, Any]) -> str:
    name = ".".join(str(part) for part in mistake["loc"])
    place = _place(mistake["loc"], file, options)
    if mistake["type"] == "extra_forbidden":
        meant = "".join(difflib.get_close_matches(name, _names(), n=1))
        if meant and place.endswith("environment"):
            meant = _variable(meant)
        hint = f"did you mean `{meant}`?" if meant else "remove it, or correct its name."
        return f"{place} is no setting: {hint}"
    # The message never contains the value, which may be a secret.
    why = str(mistake["ctx"]["error"]) if mistake["type"] == "value_error" else mistake["msg"]
    return f"{place}: {why.rstrip('.')}."


def _place(loc: tuple[int | str, ...], file: Path | None, options: dict[str, Any]) -> str:
    """Where the mistake is: an option, a variable or a place in the file."""
    if loc[0] in options:
        return f"--{str(loc[0]).replace('_', '-')}"
    # `github.app_id` is one variable; everything within `github.apps` is one other variable.
    variable = _variable(".".join(str(part) for part in loc[:2]))
    if os.environ.get(variable):
        return f"{variable} in the environment"
    if file is None:
        return f"{variable}_* in the environment"
    return f"`{'.'.join(str(part) for part in loc)}` in {file}"
