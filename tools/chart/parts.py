"""Which parts of the chart come from which files.

The definition of RunnerPool, the roles and the budget are plain files in deploy/, which the tests use.
The chart needs them under names that depend on the release. A manual copy would drift: a right that
the tests have and an installation lacks would be found only by the operator who installs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tools.chart.dashboard import dashboard

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CHART: Final = DEPLOY / "chart"

_LABELS: Final = '  labels:\n    {{- include "paddock.labels" . | nindent 4 }}\n'
_NAME: Final = '{{ include "paddock.fullname" . }}'
_CLUSTER_NAME: Final = '{{ include "paddock.clusterName" . }}'
_RUNNERS: Final = "{{ .Values.runners.namespace }}"
_CLUSTER_WIDE: Final = re.compile(r"^kind: ClusterRole(Binding)?$", re.MULTILINE)


def parts() -> dict[Path, str]:
    return {
        CHART / "crds" / "runnerpools.yaml": (DEPLOY / "crd.yaml").read_text("utf-8"),
        CHART / "templates" / "roles.yaml": templated("roles.yaml", "disruption-budget.yaml"),
        CHART / "files" / "dashboard.json": dashboard(),
    }


def outdated() -> dict[Path, str]:
    """The outdated files, each with its right content."""
    return {
        file: text
        for file, text in parts().items()
        if not file.exists() or file.read_text("utf-8") != text
    }


def templated(*files: str) -> str:
    """The objects of these files of deploy/, named after the release."""
    texts = [(DEPLOY / file).read_text("utf-8") for file in files]
    documents = [
        document.strip("\n") + "\n"
        for text in texts
        for document in re.split(r"^---$", text, flags=re.MULTILINE)
    ]
    head = f"# Written by `python -m tools.chart` from deploy/{{{','.join(files)}}}; do not edit.\n"
    return head + "---\n".join(_templated(each) for each in documents)


def _templated(document: str) -> str:
    of_cluster = _CLUSTER_NAME if _CLUSTER_WIDE.search(document) else _NAME
    for pattern, text in (
        (r"^( *namespace:) paddock-runners$", rf"\1 {_RUNNERS}"),
        (r"^( *namespace:) paddock$", r"\1 {{ .Release.Namespace }}"),
        (r"^( *name:) paddock(-runners?)$", rf"\1 {_NAME}\2"),
        # A subject is an account, also in a binding of a cluster role.
        (r"^(    name:) paddock$", rf"\1 {_NAME}"),
        (r"^(  name:) paddock$", rf"\1 {of_cluster}"),
        (r"^metadata:\n", f"metadata:\n{_LABELS}"),
    ):
        document = re.sub(pattern, text, document, flags=re.MULTILINE)
    return document
