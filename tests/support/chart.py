"""The chart as Helm renders it, for values as operators write them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tools.cluster import binaries

CHART = Path(__file__).parents[2] / "deploy" / "chart"
#: The version under test; without it Helm assumes one of its own.
KUBERNETES = "1.34.0"
Json = dict[str, Any]

#: The required values, and no others.
LEAST: Json = {
    "image": {"repository": "registry.example.org/paddock"},
    "database": {"secretName": "paddock-database"},
    "sealing": {"secretName": "paddock-sealing"},
    "github": {"apps": [{"appId": 123456, "secretName": "paddock-github"}]},
}
POOL: Json = {
    "labels": ["self-hosted", "linux"],
    "minIdle": 1,
    "template": {"spec": {"containers": [{"name": "runner", "image": "runner:1"}]}},
}
#: Values as different kinds of installations have them.
VALUES: dict[str, Json] = {
    "least": LEAST,
    "everything": LEAST
    | {
        "image": {
            "repository": "registry.example.org/paddock",
            "digest": f"sha256:{'0' * 64}",
            "pullSecrets": [{"name": "registry"}],
        },
        "github": {
            "apps": [
                {"appId": 1, "secretName": "one"},
                {
                    "appId": 2,
                    "secretName": "two",
                    "apiUrl": "https://github.example.org/api/v3",
                    "host": "github.example.org",
                    "pointsPerMinute": 1800,
                    "requestsPerHour": 15000,
                    "mintsPerHour": 20000,
                },
            ]
        },
        "dashboard": {"secretName": "paddock-dashboard"},
        "settings": {"accounts": {"max_runners": 20}, "recovery": {"dry_run": True}},
        "server": {
            "replicas": 3,
            "trustConfigMap": "authority",
            "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
            "priorityClassName": "system-cluster-critical",
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"operator": "Exists"}],
            "podAnnotations": {"example.org/team": "ci"},
        },
        "ingress": {
            "enabled": True,
            "host": "paddock.example.org",
            "className": "nginx",
            "tlsSecretName": "paddock-tls",
        },
        "runners": {"nodeSelector": "pool=runners"},
        "pools": {"linux": POOL, "large": POOL | {"labels": ["self-hosted", "large"]}},
        "network": {
            "denied": ["203.0.113.0/24", "2001:db8::/32"],
            "allowed": [{"cidr": "10.1.2.3/32", "ports": [443, 5000]}],
        },
        "monitoring": {
            "podMonitor": {"enabled": True},
            "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
            "dashboard": {"enabled": True},
        },
    },
    "strict": LEAST
    | {
        "network": {
            "egress": "listed",
            "allowed": [{"cidr": "140.82.112.0/20", "ports": [443]}],
            "dispatchEgress": "idle-only",
            "vitalsEgress": False,
        },
        "runners": {"podSecurity": "restricted"},
    },
    "secret": LEAST
    | {
        "dispatch": {"tls": {"mode": "secret", "secretName": "dispatch"}},
        "runners": {"serverCaConfigMap": "authority"},
    },
    "cert-manager": LEAST
    | {
        "dispatch": {"tls": {"mode": "certManager", "issuerRef": {"name": "authority"}}},
        "runners": {
            "serverCaConfigMap": "authority",
            "serverUrl": "https://10.1.2.3:8788",
            "vitalsUrl": "https://paddock.example.org:8789",
        },
    },
    "bare": LEAST
    | {
        "network": {"enabled": False},
        "runners": {"createNamespace": False, "namespace": "elsewhere"},
        "uninstall": {"drain": False},
        "server": {"replicas": 1, "migrate": False},
    },
}


def helm() -> Path | None:
    return binaries.find("helm")


def rendered(
    values: Json, *, release: str = "paddock", namespace: str = "paddock", hooks: bool = True
) -> list[Json]:
    """The objects that the chart makes, without the definition, which Helm installs separately."""
    hidden = () if hooks else ("--no-hooks",)
    text = _template(CHART, yaml.safe_dump(values), (release, "--namespace", namespace, *hidden))
    return _objects(text)


@cache
def _template(chart: Path, values: str, arguments: tuple[str, ...]) -> str:
    release, *options = arguments
    done = run("template", release, str(chart), *options, values=yaml.safe_load(values))
    if done.returncode:
        raise ValueError(done.stderr)
    return done.stdout


def generated(values: Json, directory: Path, secret: Json | None = None) -> list[Json]:
    """As rendered on a cluster that has this Secret, or none; `template` alone sees no cluster."""
    chart = directory / "chart"
    shutil.copytree(CHART, chart, dirs_exist_ok=True)
    file = chart / "templates" / "_tls.tpl"
    found = json.dumps({"visible": True, "secret": secret or {}})
    text, replaced = re.subn(
        r'(?s)(?<={{- define "paddock.tlsFound" -}}\n).*?(?=\n{{- end -}})',
        lambda _: found,
        file.read_text(),
    )
    assert replaced == 1
    file.write_text(text)
    done = run("template", "paddock", str(chart), "--namespace", "paddock", values=values)
    if done.returncode:
        raise ValueError(done.stderr)
    return _objects(done.stdout)


def notes(values: Json, directory: Path) -> str:
    """Helm's notes after an installation, which `template` alone does not show."""
    chart = directory / "chart"
    shutil.copytree(CHART, chart)
    text = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "notes.yaml").write_text(
        f'{{{{- define "notes" -}}}}\n{text}{{{{- end }}}}\n'
        '---\nkind: Notes\nmetadata: {name: notes}\ntext: {{ include "notes" . | quote }}\n'
    )
    text = _template(chart, yaml.safe_dump(values), ("paddock", "--namespace", "paddock"))
    return str(named(_objects(text), "Notes", "notes")["text"])


def _objects(text: str) -> list[Json]:
    # The fast loader: there are thousands of lines.
    return [each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each]


def run(*arguments: str, values: Json) -> subprocess.CompletedProcess[str]:
    program = helm()
    assert program is not None
    return subprocess.run(
        [str(program), *arguments, "--kube-version", KUBERNETES, "--values", "-"],
        input=yaml.safe_dump(values),
        capture_output=True,
        text=True,
        check=False,
    )


def named(objects: list[Json], kind: str, name: str = "paddock") -> Json:
    [found] = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def merged(values: Json, **more: Any) -> Json:
    """Deeply, as Helm does with several files."""
    result = dict(values)
    for key, value in more.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, dict)
        result[key] = merged(old, **value) if both and old is not None else value
    return result
