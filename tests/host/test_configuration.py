"""The host's file: what it says, and what is refused before it protects nothing."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest

from paddock.host.anchor import render
from paddock.host.configuration import (
    Configuration,
    ConfigurationRefused,
    Network,
    ServiceSettings,
    read,
)


def _read(tmp_path: Path, text: str) -> Configuration:
    path = tmp_path / "host.toml"
    path.write_text(text)
    return read(path)


def test_all_that_can_be_set(tmp_path: Path) -> None:
    found = _read(
        tmp_path,
        """
        node = "mac-7"
        [network]
        vms = ["192.168.65.0/24"]
        resolvers = ["192.168.65.1"]
        allowed = ["10.0.5.7:443", "[fd00::7]:443"]
        blocked = ["10.0.0.0/8"]
        interfaces = ["bridge101"]
        rules = "/etc/paddock/own.pf"
        [launch]
        program = ["/usr/local/bin/machines", "--node", "mac-7"]
        [kubernetes]
        server = "https://10.0.0.1:6443/"
        authority = "/etc/paddock/ca.crt"
        token = "/etc/paddock/token"
        """,
    )
    assert found.network.allowed == (
        ServiceSettings(address="10.0.5.7", port=443),
        ServiceSettings(address="fd00::7", port=443),
    )
    assert found.program == ("/usr/local/bin/machines", "--node", "mac-7")
    assert found.cluster is not None
    assert found.cluster.server == "https://10.0.0.1:6443"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("node = 3", "node: 3 is no text"),
        ('node = "Mac 7"', "'Mac 7' cannot be the name of a Node"),
        ('node = "m"\nnetwork = 3', r"network is a table: write \[network\]"),
        ('node = "m"\n[network]\nvm = []', "network.vm is not a setting that is known"),
        ('node = "m"\n[network]\nvms = []', "rules for no virtual machine protect nothing"),
        ('node = "m"\n[network]\nvms = ["192.168.64.1/24"]', "has host bits set"),
        ('node = "m"\n[network]\nallowed = ["10.0.0.1"]', "is not an address and a port"),
        ('node = "m"\n[network]\nallowed = ["paddock:443"]', "does not appear to be an IPv4"),
        ('node = "m"\n[network]\nrules = "own.pf"', "'own.pf' is not a whole path"),
        ('node = "m"\n[network]\ninterfaces = ["any; pass"]', "is no interface, like bridge100"),
        ('node = "m"\n[launch]\nprogram = ["machines"]', "the whole path of a program"),
        ('node = "m"\n[kubernetes]\nserver = "http://x"', "an address like https://"),
        (
            'node = "m"\n[kubernetes]\nserver = "https://x"\nauthority = "/ca"',
            "give `token`, or `certificate` and `key`",
        ),
        ("node = ", "is no TOML"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationRefused, match=complaint) as refused:
        _read(tmp_path, text)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationRefused, match=r"nothing.toml cannot be read: No such file"):
        read(tmp_path / "nothing.toml")


def test_the_label_of_every_rule_changes_with_any_of_them() -> None:
    """By the labels it is seen whether exactly these rules are in force."""
    first, second = render(Network()), render(Network(), "pass in quick from any to any")
    assert not first.labels & second.labels
    assert render(Network()).text == first.text
    assert all(len(label) < 64 for label in first.labels)


def test_what_is_allowed_comes_before_what_is_blocked() -> None:
    """The first rule that matches decides."""
    text = render(
        Network(allowed=(ServiceSettings(address="10.0.5.7", port=443),)), "pass in from any"
    ).text
    order = [text.index(part) for part in ("pass in from any", "to 10.0.5.7", "block return")]
    assert order == sorted(order)


@pytest.mark.parametrize("metadata", ["169.254.169.254", "168.63.129.16", "192.0.0.192"])
def test_metadata_of_clouds_is_blocked_unless_said_otherwise(metadata: str) -> None:
    [blocked] = (each for name, each in render(Network()).tables.items() if name == "blocked_dst")
    address = ipaddress.ip_address(metadata)
    assert any(address in ipaddress.ip_network(each) for each in blocked)


def test_ipv6_is_blocked_where_machines_addresses_are_not_named() -> None:
    """Vmnet gives machines such addresses too, and no table would have them."""
    assert "block return in quick on bridge100 inet6 all" in render(Network()).text
    named = Network(vms=("192.168.64.0/24", "fd00:1::/64"))
    assert "inet6" not in render(named).text
