"""The host's own file, `/etc/paddock/host.toml`: its node name, what its virtual machines may reach,
what launchd starts, and how reports reach the cluster."""

from __future__ import annotations

import ipaddress
import re
import socket
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from paddock.host.special_ranges import SPECIAL_RANGES

DEFAULT_FILE: Final = Path("/etc/paddock/host.toml")
#: vmnet's default network for virtual machines behind NAT.
_VMNET: Final = ("192.168.64.0/24",)
#: vmnet's own resolver and DHCP server: the first address of its network.
_RESOLVERS: Final = ("192.168.64.1",)
#: vmnet's name for the bridge of its first network.
_BRIDGES: Final = ("bridge100",)
#: A Node's name is a DNS subdomain.
_NODE: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_INTERFACE: Final = re.compile(r"[a-z]{1,14}[0-9]{1,5}")

T = TypeVar("T")


class ConfigurationRefused(Exception):
    """The host's file is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """An address of the internal network that virtual machines may reach, over TCP."""

    address: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    vms: tuple[str, ...] = _VMNET
    resolvers: tuple[str, ...] = _RESOLVERS
    #: At least paddock's server, if its address is one of `blocked`.
    allowed: tuple[ServiceSettings, ...] = ()
    blocked: tuple[str, ...] = tuple(SPECIAL_RANGES)
    #: The machines' bridges. vmnet gives machines IPv6 addresses that are not known in advance.
    interfaces: tuple[str, ...] = _BRIDGES
    #: The operator's own rules, which go before ours.
    rules: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Either `token`, or `certificate` and `key`; each is a file."""

    server: str
    authority: Path
    token: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    node: str
    network: Network = Network()
    #: The program that runs Pods as virtual machines. It is started once the rules are in force.
    program: tuple[str, ...] = ()
    cluster: Cluster | None = None


def read(path: Path) -> Configuration:
    """Raises ConfigurationRefused."""
    try:
        given = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationRefused(f"{path} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationRefused(f"{path} is no TOML: {error}.") from error
    try:
        return _configuration(_Table(given))
    except (TypeError, ValueError) as error:
        raise ConfigurationRefused(f"{path}: {error}.") from error


class _Table:
    """A table in which an unknown key is an error: a misspelt rule would protect nothing."""

    def __init__(self, given: Mapping[str, Any], name: str = "") -> None:
        self._given = dict(given)
        self._name = name

    def take(self, key: str, convert: Callable[[Any], T], default: T) -> T:
        value = self._given.pop(key, None)
        if value is None:
            return default
        try:
            return convert(value)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self._path(key)}: {error}") from None

    def table(self, key: str) -> _Table | None:
        value = self._given.pop(key, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise TypeError(f"{self._path(key)} is a table: write [{self._path(key)}]")
        return _Table(value, self._path(key))

    def end(self) -> None:
        for key in self._given:
            raise ValueError(f"{self._path(key)} is not a setting that is known")

    def _path(self, key: str) -> str:
        return f"{self._name}.{key}" if self._name else key


def _configuration(table: _Table) -> Configuration:
    node = table.take("node", _text, socket.gethostname().lower())
    if not _NODE.fullmatch(node):
        raise ValueError(f"node: {node!r} cannot be the name of a Node")
    network, launch, cluster = (table.table(key) for key in ("network", "launch", "kubernetes"))
    table.end()
    program: tuple[str, ...] = ()
    if launch is not None:
        program = launch.take("program", _texts, ())
        launch.end()
        if program and not program[0].startswith("/"):
            raise ValueError("launch.program begins with the whole path of a program")
    return Configuration(
        node=node,
        network=Network() if network is None else _network(network),
        program=program,
        cluster=None if cluster is None else _cluster(cluster),
    )


def _network(table: _Table) -> Network:
    network = Network(
        vms=table.take("vms", _networks, _VMNET),
        resolvers=table.take("resolvers", _addresses, _RESOLVERS),
        allowed=table.take("allowed", _services, ()),
        blocked=table.take("blocked", _networks, tuple(SPECIAL_RANGES)),
        interfaces=table.take("interfaces", _interfaces, _BRIDGES),
        rules=table.take("rules", _path, None),
    )
    table.end()
    if not network.vms:
        raise ValueError("network.vms is empty, and rules for no virtual machine protect nothing")
    return network


def _cluster(table: _Table) -> Cluster:
    server = table.take("server", _text, "")
    authority = table.take("authority", _path, None)
    token = table.take("token", _path, None)
    certificate = table.take("certificate", _path, None)
    key = table.take("key", _path, None)
    table.end()
    if not server.startswith("https://"):
        raise ValueError("kubernetes.server is an address like https://10.0.0.1:6443")
    if authority is None:
        raise ValueError("kubernetes.authority is missing: the file that the server is known by")
    if (certificate is None) != (key is None) or (token is None) == (certificate is None):
        raise ValueError("kubernetes: give `token`, or `certificate` and `key`")
    return Cluster(
        server=server.rstrip("/"),
        authority=authority,
        token=token,
        certificate=certificate,
        key=key,
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no text")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is no list")
    return tuple(_text(each) for each in value)


def _path(value: Any) -> Path | None:
    path = Path(_text(value))
    if not path.is_absolute():
        raise ValueError(f"{value!r} is not a whole path")
    return path


def _networks(value: Any) -> tuple[str, ...]:
    return tuple(str(ipaddress.ip_network(each)) for each in _texts(value))


def _interfaces(value: Any) -> tuple[str, ...]:
    found = _texts(value)
    for each in found:
        if not _INTERFACE.fullmatch(each):
            raise ValueError(f"{each!r} is no interface, like bridge100")
    return found


def _addresses(value: Any) -> tuple[str, ...]:
    return tuple(str(ipaddress.ip_address(each)) for each in _texts(value))


def _services(value: Any) -> tuple[ServiceSettings, ...]:
    found = []
    for each in _texts(value):
        address, _, port = each.rpartition(":")
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise ValueError(f"{each!r} is not an address and a port, like 10.0.0.1:443")
        known = ipaddress.ip_address(address.removeprefix("[").removesuffix("]"))
        found.append(ServiceSettings(address=str(known), port=int(port)))
    return tuple(found)
