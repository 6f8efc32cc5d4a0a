"""TLS between Pods and server, as the chart sets it up."""

from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from paddock.fleet.kube.setup import placement
from paddock.fleet.kube.shapes import manifest
from paddock.settings import Settings, load
from paddock.web.tls import CertificateFiles, load_certificate
from tests.support.chart import LEAST, VALUES, Json, generated, merged, named, notes, rendered
from tests.support.kube import order, template
from tests.support.tls import handshake

pytestmark = pytest.mark.usefixtures("helm")

GENERATED = merged(LEAST, dispatch={"tls": {"mode": "generated"}})
SERVICE = "paddock.paddock.svc"


def settings(objects: list[Json], directory: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    file = directory / "paddock.toml"
    file.write_text(named(objects, "ConfigMap")["data"]["paddock.toml"])
    monkeypatch.setenv("PADDOCK_DATABASE_URL", "postgresql://paddock@db/paddock")
    return load(file)


def secret(objects: list[Json]) -> Json:
    return named(objects, "Secret", "paddock-tls")


def written(made: Json, directory: Path) -> CertificateFiles:
    for name, content in made["data"].items():
        (directory / name).write_bytes(base64.b64decode(content))
    return CertificateFiles(certificate=directory / "tls.crt", key=directory / "tls.key")


def mounted(objects: list[Json]) -> dict[str, tuple[str, str]]:
    """The Secret's keys by the path at which the server has them."""
    spec = named(objects, "Deployment")["spec"]["template"]["spec"]
    [volume] = [each for each in spec["volumes"] if each["name"] == "tls"]
    [mount] = [each for each in spec["containers"][0]["volumeMounts"] if each["name"] == "tls"]
    return {
        f"{mount['mountPath']}/{item['path']}": (volume["secret"]["secretName"], item["key"])
        for item in volume["secret"]["items"]
    }


def test_without_tls_pods_are_told_http(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = rendered(LEAST)
    read = settings(objects, tmp_path, monkeypatch)
    assert read.kube.server_url == f"http://{SERVICE}:8788"
    assert read.pods_certificate_file is None
    assert "over plain HTTP" in notes(LEAST, tmp_path)


@pytest.mark.parametrize(
    ("name", "secret_name", "urls"),
    [
        ("secret", "dispatch", (f"https://{SERVICE}:8788", f"https://{SERVICE}:8789")),
        (
            "cert-manager",
            "paddock-tls",
            ("https://10.1.2.3:8788", "https://paddock.example.org:8789"),
        ),
    ],
)
def test_the_server_has_the_certificate_and_pods_the_authority(
    name: str,
    secret_name: str,
    urls: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    objects = rendered(VALUES[name])
    read = settings(objects, tmp_path, monkeypatch)
    assert (read.kube.server_url, read.kube.vitals_url) == urls
    assert mounted(objects) == {
        str(read.pods_certificate_file): (secret_name, "tls.crt"),
        str(read.pods_key_file): (secret_name, "tls.key"),
    }
    assert read.kube.server_ca == "authority"
    assert "over plain HTTP" not in notes(VALUES[name], tmp_path)


def test_cert_manager_is_asked_for_every_name_that_pods_use() -> None:
    certificate = named(rendered(VALUES["cert-manager"]), "Certificate", "paddock-tls")
    spec = certificate["spec"]
    assert spec["secretName"] == "paddock-tls"
    assert {SERVICE, f"{SERVICE}.cluster.local", "paddock.example.org"} <= set(spec["dnsNames"])
    assert spec["ipAddresses"] == ["10.1.2.3"]
    assert spec["issuerRef"] == {"name": "authority", "kind": "Issuer", "group": "cert-manager.io"}
    assert "server auth" in spec["usages"]


def test_a_generated_certificate_is_one_that_the_agent_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the Service's name and by an address; with the checks of the newest Python."""
    values = merged(
        GENERATED,
        runners={"serverUrl": "https://10.1.2.3:8788"},
        dispatch={"tls": {"names": ["extra.example.org", "fd00::7"]}},
    )
    objects = generated(values, tmp_path)
    files = written(secret(objects), tmp_path)
    found = load_certificate(files)
    assert {SERVICE, "extra.example.org", "10.1.2.3", "fd00::7"} <= found.names
    assert found.not_after > datetime.now(UTC) + timedelta(days=3600)
    authority = named(objects, "ConfigMap", "paddock-server-ca")
    assert authority["metadata"]["namespace"] == "paddock-runners"
    client = ssl.create_default_context(cadata=authority["data"]["ca.crt"])
    client.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
    for name in (SERVICE, "10.1.2.3", "fd00::7"):
        handshake(client, found.context, name)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(client, found.context, "paddock.elsewhere.svc")
    read = settings(objects, tmp_path, monkeypatch)
    assert read.kube.server_ca == "paddock-server-ca"
    assert set(mounted(objects)) == {str(read.pods_certificate_file), str(read.pods_key_file)}


def test_the_key_of_a_generated_authority_is_kept_nowhere(tmp_path: Path) -> None:
    made = secret(generated(GENERATED, tmp_path))
    assert set(made["data"]) == {"tls.crt", "tls.key", "ca.crt"}
    files = written(made, tmp_path)
    load_certificate(files)  # the key is the certificate's
    authority = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    leaf = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    assert authority.public_key() != leaf.public_key()


def test_an_upgrade_keeps_what_was_generated(tmp_path: Path) -> None:
    first = generated(GENERATED, tmp_path)
    kept = generated(merged(GENERATED, server={"replicas": 5}), tmp_path, secret(first))
    assert secret(kept) == secret(first)
    authorities = [named(each, "ConfigMap", "paddock-server-ca") for each in (first, kept)]
    assert authorities[0] == authorities[1]


@pytest.mark.parametrize("case", ["gone", "incomplete", "other names"])
def test_another_is_generated_if_that_one_does_not_do(tmp_path: Path, case: str) -> None:
    first = secret(generated(GENERATED, tmp_path))
    found, values = dict(first), GENERATED
    match case:
        case "gone":
            found = {}
        case "incomplete":
            found["data"] = {"tls.crt": first["data"]["tls.crt"]}
        case _:
            values = merged(GENERATED, dispatch={"tls": {"names": ["extra.example.org"]}})
    objects = generated(values, tmp_path, found)
    assert secret(objects)["data"]["tls.crt"] != first["data"]["tls.crt"]
    authority = named(objects, "ConfigMap", "paddock-server-ca")["data"]["ca.crt"]
    assert authority.encode() == base64.b64decode(secret(objects)["data"]["ca.crt"])


@pytest.mark.parametrize("shape", ["gated", "single"])
def test_every_container_that_asks_has_the_authority_and_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    read = settings(generated(GENERATED, tmp_path), tmp_path, monkeypatch)
    described = {"shape": shape, "template": template("true")}
    pod = manifest(order("linux-1", described), placement(read.kube))
    asking = [
        each
        for each in pod["spec"]["initContainers"] + pod["spec"]["containers"]
        if any(variable["name"] == "PADDOCK_AGENT_SERVER" for variable in each.get("env", []))
    ]
    assert len(asking) == (1 if shape == "single" else 2)
    for container in asking:
        given = {each["name"]: each["value"] for each in container["env"]}
        assert given["PADDOCK_AGENT_SERVER"].startswith("https://")
        directory, _, file = given["PADDOCK_AGENT_CA_FILE"].rpartition("/")
        [mount] = [each for each in container["volumeMounts"] if each["mountPath"] == directory]
        [volume] = [each for each in pod["spec"]["volumes"] if each["name"] == mount["name"]]
        [source] = [each for each in volume["projected"]["sources"] if "configMap" in each]
        assert source["configMap"]["name"] == "paddock-server-ca"
        assert source["configMap"]["items"] == [{"key": file, "path": file}]
        # The kubelet replaces a file in place only where it is not mounted by itself.
        assert "subPath" not in mount
    assert not [each for each in pod["spec"]["volumes"] if "secret" in each]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"dispatch": {"tls": {"mode": "generated"}}}, "needs to see the cluster"),
        ({"dispatch": {"tls": {"mode": "https"}}}, "mode"),
        (
            {"dispatch": {"tls": {"mode": "secret"}}, "runners": {"serverCaConfigMap": "c"}},
            "dispatch.tls.secretName is empty",
        ),
        (
            {"dispatch": {"tls": {"mode": "secret", "secretName": "s"}}},
            "runners.serverCaConfigMap is empty",
        ),
        (
            {"dispatch": {"tls": {"mode": "certManager"}}, "runners": {"serverCaConfigMap": "c"}},
            "dispatch.tls.issuerRef.name is empty",
        ),
        (
            {
                "dispatch": {"tls": {"mode": "secret", "secretName": "s"}},
                "runners": {"serverCaConfigMap": "c", "serverUrl": "http://10.1.2.3:8788"},
            },
            "is not https",
        ),
        ({"dispatch": {"tls": {"mode": "none", "names": ["a b"]}}}, "names"),
    ],
)
def test_a_mistake_is_told_before_anything_is_installed(change: Json, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        rendered(merged(LEAST, **change))


def test_an_authority_of_yours_beside_a_generated_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unset it"):
        generated(merged(GENERATED, runners={"serverCaConfigMap": "c"}), tmp_path)
