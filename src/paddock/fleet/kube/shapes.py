"""What a runner's Pod is made of: the pool's template, and paddock's parts.

    gated    pull     uses the runner's image: the image is on the node before the Pod counts as warm
                      (I67), and the runner's version is in the Pod's status before a mint
             …        the template's own init containers
             poller   asks for work with a token that is mounted nowhere else (I21), leaves the JIT and
                      the start script on a memory volume, and ends
             vitals   a sidecar, with a token that is valid only for its reports
             runner   the template's; no token, no account
    single   runner   one container that polls, then runs; its image brings the agent

A Pod has no owner reference, so no cascading deletion reaches it (I42). It is created with its
protection from autoscalers, so nothing depends on a later label (I22). Our finalizer keeps it until
paddock has recorded its end (I30).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from paddock.domain.ids import RunnerId
from paddock.domain.jobs.trust import Forks
from paddock.domain.names import PodName
from paddock.domain.pods.fingerprints import RUNNER_CONTAINER
from paddock.domain.pods.pod import Audience, PodOrder
from paddock.fleet.kube.objects import (
    FORKS_LABEL,
    POOL_LABEL,
    RUNNER_ANNOTATION,
    VERDICT_FINALIZER,
)
from paddock.fleet.kube.pod_checks import Json, OwnParts, refusal
from paddock.fleet.kube.pod_rules import Privileged
from paddock.fleet.kube.template import (
    AGENT_CPU,
    AGENT_MEMORY,
    POLLER,
    PREFIX,
    PULL,
    VITALS,
    PodTemplate,
    normalised,
    problem,
    runner,
)
from paddock.fleet.kube.token_claims import AUDIENCES

#: A runner needs up to 30 s to cancel its job and sign off; the sidecar needs a moment more.
GRACE: Final = 60
#: Seconds between a kubelet's decision and TERM: long enough to read the log while it exists.
HEARD: Final = 1
#: The user of GitHub's own runner image. A number, since a kubelet cannot tell whether a name is root.
USER: Final = 1001
#: Kubernetes' minimum is 10 minutes. The kubelet renews the token when a fifth of its time is left.
TOKEN_SECONDS: Final = 3600

_DIRECTORY: Final = "/run/paddock"
STAGE: Final = f"{_DIRECTORY}/stage"
_TOKENS: Final = f"{_DIRECTORY}/token"
_STAGE_VOLUME: Final = f"{PREFIX}stage"
_TOKEN_VOLUMES: Final = {audience: f"{PREFIX}{audience}" for audience in Audience}
#: Two files of 64 KiB and a JIT. What a job writes there counts as the job's own memory.
_STAGE_SIZE: Final = "8Mi"

_PROTECTION: Final = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
_LABEL_VALUE: Final = 63
#: Names the directory that has actions/runner, to the start script and to `pull`.
RUNNER_HOME: Final = "PADDOCK_RUNNER_HOME"

#: One process after the other in one container. `exec` keeps the runner's own exit code and signals.
_SINGLE: Final = """\
"$@" poll & poller=$!
trap 'kill -TERM "$poller" 2>/dev/null' TERM INT
wait "$poller"; code=$?
while kill -0 "$poller" 2>/dev/null; do wait "$poller"; code=$?; done
trap - TERM INT
[ "$code" -eq 0 ] || exit "$code"
"$@" vitals &
"""


#: Writes the version of actions/runner that the image has to the termination log. The version is
#: named in the list of what its program was built from, and nowhere else without starting it. An image
#: has no more than a POSIX shell, so nothing else is used. Whatever fails, the version stays unknown.
_TELL_VERSION: Final = """\
set -- "$PWD" /home/runner /actions-runner /runner /opt/actions-runner
[ -z "${PADDOCK_RUNNER_HOME:-}" ] || set -- "$PADDOCK_RUNNER_HOME"
for home in "$@"; do
	list=$home/bin/Runner.Listener.deps.json
	[ -r "$list" ] || continue
	while IFS= read -r line || [ -n "$line" ]; do
		case $line in
		*'"Runner.Listener/'*)
			line=${line#*'"Runner.Listener/'}
			printf '%.32s' "${line%%\\"*}" >/dev/termination-log
			exit 0
			;;
		esac
	done <"$list"
	exit 0
done
exit 0
"""


class TemplateRefused(Exception):
    """No Pod can be made of this description; the argument is a sentence."""


class PodDescription(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The parts of a pool's description that its Pods are made of."""

    template: PodTemplate | None = None
    shape: Literal["gated", "single"] = "gated"
    privileged: Privileged = "refuse"
    forks: Forks = Forks.IGNORE
    runner_command: list[str] | None = None
    runner: Literal["actions", "act-runner"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where Pods are created, and the settings of our parts in them."""

    namespace: str
    #: Pods get tokens of this account; it needs no rights.
    service_account: str
    agent_image: str
    #: How the agent is started in its image.
    agent_command: Sequence[str]
    #: The URL at which Pods reach paddock.
    server: str
    #: A ConfigMap with `ca.crt`, if no CA that images trust has signed the server's certificate.
    ca_config_map: str | None = None
    #: The URL to which sidecars send vitals, if it is not `server`.
    vitals: str | None = None
    #: Patterns of the audiences for which templates may request tokens.
    token_audiences: Sequence[str] = ()


#: For a check of a description before any cluster is known. The audiences are checked when a Pod is
#: tried out.
_SAMPLE_PLACEMENT: Final = Placement(
    namespace="runners",
    service_account="runner",
    agent_image="agent",
    agent_command=("agent",),
    server="http://paddock",
    token_audiences=("*",),
)
_SAMPLE_ORDER: Final = PodOrder(
    runner=RunnerId(UUID(int=0)), name=PodName("sample"), pool="sample", spec="{}"
)


def manifest(order: PodOrder, placement: Placement) -> Json:
    """Raises only TemplateRefused, for every possible description."""
    try:
        pool = msgspec.json.decode(order.spec, type=PodDescription)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise TemplateRefused(str(error)) from error
    return _composed(pool, order, placement)


def template_problem(pool: PodDescription) -> str | None:
    """Why no Pod would be made of this description in any cluster; `None` if one would."""
    try:
        _composed(pool, _SAMPLE_ORDER, _SAMPLE_PLACEMENT)
    except TemplateRefused as refused:
        return str(refused)
    return None


def runner_command(pool: PodDescription) -> list[str]:
    """What is started as the runner; empty if the start script looks for a program."""
    spec = pool.template.spec if pool.template else {}
    for each in spec.get("containers", []):
        if each["name"] == RUNNER_CONTAINER and (own := _own_command(each)):
            return own
    return pool.runner_command or []


def _own_command(container: Json) -> list[str]:
    return [*container.get("command", []), *container.get("args", [])]


def _composed(pool: PodDescription, order: PodOrder, placement: Placement) -> Json:
    if pool.template is None:
        raise TemplateRefused("it has none, and Pods of a cluster are made from one")
    try:
        template = normalised(pool.template)
    except ValueError as error:
        raise TemplateRefused(str(error)) from error
    if wrong := problem(template):
        raise TemplateRefused(wrong)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(order, pool, template, placement),
        "spec": _Parts(pool, template.spec, placement).pod(order),
    }
    if wrong := refusal(pod, _own_parts(pool, placement), pool.privileged):
        raise TemplateRefused(wrong)
    return pod


def _own_parts(pool: PodDescription, placement: Placement) -> OwnParts:
    dispatch, vitals = _TOKEN_VOLUMES[Audience.DISPATCH], _TOKEN_VOLUMES[Audience.VITALS]
    gated = {
        POLLER: (_STAGE_VOLUME, dispatch),
        VITALS: (_STAGE_VOLUME, vitals),
        RUNNER_CONTAINER: (_STAGE_VOLUME,),
    }
    return OwnParts(
        prefix=PREFIX,
        directory=_DIRECTORY,
        mounts=gated if pool.shape == "gated" else {RUNNER_CONTAINER: (_STAGE_VOLUME, dispatch)},
        permits_audience=lambda audience: (
            # Without an audience the token is for the API server.
            audience not in ("", *AUDIENCES)
            and any(fnmatchcase(audience, each) for each in placement.token_audiences)
        ),
    )


def _metadata(
    order: PodOrder, pool: PodDescription, template: PodTemplate, placement: Placement
) -> Json:
    return {
        "name": order.name,
        "namespace": placement.namespace,
        "labels": {
            **template.metadata.labels,
            **order.labels,
            "app.kubernetes.io/managed-by": "paddock",
            POOL_LABEL: order.pool,
            FORKS_LABEL: pool.forks.value,
        },
        "annotations": {
            **template.metadata.annotations,
            **_PROTECTION,
            POOL_LABEL: order.pool,
            RUNNER_ANNOTATION: str(order.runner),
        },
        "finalizers": [VERDICT_FINALIZER],
    }


class _Parts:
    def __init__(self, pool: PodDescription, spec: Json, placement: Placement) -> None:
        self._pool = pool
        self._spec = spec
        self._placement = placement
        self._runner = runner(spec)
        self._single = pool.shape == "single"

    def pod(self, order: PodOrder) -> Json:
        spec = self._spec
        affinity = spec.get("affinity", {})
        if order.avoid:
            affinity = _avoiding(affinity, order.avoid)
        if order.exclude:
            affinity = _excluding(affinity, order.exclude)
        return {
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": GRACE,
            **spec,
            "restartPolicy": "Never",
            "serviceAccountName": self._placement.service_account,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "runAsGroup": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
                **spec.get("securityContext", {}),
            },
            **({"affinity": affinity} if affinity else {}),
            "initContainers": self._initial(),
            "containers": [
                self._the_runner() if each is self._runner else _hardened(each)
                for each in spec["containers"]
            ],
            "volumes": [*spec.get("volumes", []), *self._volumes()],
        }

    def _initial(self) -> list[Json]:
        own = [_hardened(each) for each in self._spec.get("initContainers", [])]
        if self._single:
            return own
        return [self._pull(), *own, self._poller(), self._vitals()]

    def _pull(self) -> Json:
        given = self._runner.get("env", [])
        home = [each for each in given if each.get("name") == RUNNER_HOME and "value" in each]
        return (
            self._ours(PULL, ["/bin/sh", "-c", _TELL_VERSION])
            | {
                key: self._runner[key]
                for key in ("image", "imagePullPolicy")
                if key in self._runner
            }
            | ({"env": home} if home else {})
        )

    def _poller(self) -> Json:
        mounts = [_mount(_STAGE_VOLUME, STAGE), *self._token(Audience.DISPATCH)]
        return self._agent(POLLER, "poll", mounts, self._placement.server)

    def _vitals(self) -> Json:
        mounts = [_mount(_STAGE_VOLUME, STAGE, read_only=True), *self._token(Audience.VITALS)]
        server = self._placement.vitals or self._placement.server
        return self._agent(VITALS, "vitals", mounts, server) | {"restartPolicy": "Always"}

    def _agent(self, name: str, command: str, mounts: list[Json], server: str) -> Json:
        return self._ours(name, [*self._placement.agent_command, command]) | {
            "image": self._placement.agent_image,
            "env": self._environment(server),
            "volumeMounts": mounts,
        }

    def _ours(self, name: str, command: list[str]) -> Json:
        """A container with the runner's user: only that user can read the files it leaves."""
        theirs = self._runner.get("securityContext", {})
        user = {
            key: theirs[key] for key in ("runAsUser", "runAsGroup", "runAsNonRoot") if key in theirs
        }
        return {
            "name": name,
            "command": command,
            "resources": {
                "requests": {"cpu": AGENT_CPU, "memory": AGENT_MEMORY},
                "limits": {"memory": "128Mi"},
            },
            "securityContext": {**_HARD, "readOnlyRootFilesystem": True, **user},
        }

    def _environment(self, server: str) -> list[Json]:
        given = {
            "PADDOCK_AGENT_SERVER": server,
            "PADDOCK_AGENT_STAGE": STAGE,
            "PADDOCK_AGENT_TOKEN_FILE": f"{_TOKENS}/token",
        }
        if self._placement.ca_config_map:
            given["PADDOCK_AGENT_CA_FILE"] = f"{_TOKENS}/ca.crt"
        return [{"name": name, "value": value} for name, value in given.items()]

    def _the_runner(self) -> Json:
        theirs = self._runner
        own = _own_command(theirs) or self._pool.runner_command or []
        mounts = [_mount(_STAGE_VOLUME, STAGE)]
        made: Json = {
            **_hardened(theirs),
            "command": ["/bin/sh", f"{STAGE}/run"],
            "args": own,
            "env": [*theirs.get("env", []), *self._program()],
        }
        if self._single:
            made["command"] = ["/bin/sh", "-c", self._one_after_the_other(own)]
            made["args"] = ["paddock", *self._placement.agent_command]
            made["env"] += self._environment(self._placement.server)
            mounts += self._token(Audience.DISPATCH)
        else:
            # A started runner container may have a job. In the single shape it may also be idle, so
            # it gets no hook.
            waits = {"preStop": {"sleep": {"seconds": HEARD}}}
            made["lifecycle"] = {**waits, **theirs.get("lifecycle", {})}
        made["volumeMounts"] = [*theirs.get("volumeMounts", []), *mounts]
        return {key: value for key, value in made.items() if value != []}

    def _program(self) -> list[Json]:
        """For the start script, if the pool names its program."""
        named = self._pool.runner
        return [{"name": "PADDOCK_RUNNER", "value": named}] if named else []

    def _one_after_the_other(self, own: Sequence[str]) -> str:
        return f"{_SINGLE}exec /bin/sh {STAGE}/run {' '.join(map(_quoted, own))}".rstrip() + "\n"

    def _token(self, audience: Audience) -> list[Json]:
        return [_mount(_TOKEN_VOLUMES[audience], _TOKENS, read_only=True)]

    def _volumes(self) -> list[Json]:
        stage = {"medium": "Memory", "sizeLimit": _STAGE_SIZE}
        audiences = [Audience.DISPATCH] if self._single else list(Audience)
        return [
            {"name": _STAGE_VOLUME, "emptyDir": stage},
            *(self._token_volume(audience) for audience in audiences),
        ]

    def _token_volume(self, audience: Audience) -> Json:
        name = next(key for key, value in AUDIENCES.items() if value is audience)
        sources: list[Json] = [
            {
                "serviceAccountToken": {
                    "audience": name,
                    "expirationSeconds": TOKEN_SECONDS,
                    "path": "token",
                }
            }
        ]
        if self._placement.ca_config_map:
            authority = {"name": self._placement.ca_config_map}
            sources.append(
                {"configMap": {**authority, "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
            )
        return {"name": _TOKEN_VOLUMES[audience], "projected": {"sources": sources}}


_HARD: Final[Mapping[str, Any]] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
}


def _hardened(container: Json) -> Json:
    """The template's values take precedence, field by field: a template that adds a capability still
    drops the others. A privileged container cannot drop any."""
    given = container.get("securityContext", {})
    if given.get("privileged"):
        return container
    capabilities = {**_HARD["capabilities"], **given.get("capabilities", {})}
    return {**container, "securityContext": {**_HARD, **given, "capabilities": capabilities}}


def _mount(volume: str, path: str, *, read_only: bool = False) -> Json:
    return {"name": volume, "mountPath": path, **({"readOnly": True} if read_only else {})}


_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _avoiding(affinity: Json, hosts: Sequence[str]) -> Json:
    """Add a preference against these hosts to the template's own preferences (I51)."""
    node = affinity.get("nodeAffinity", {})
    avoiding = [{"weight": 100, "preference": {"matchFields": [_is_not(host)]}} for host in hosts]
    return {
        **affinity,
        "nodeAffinity": {**node, _PREFERRED: [*(node.get(_PREFERRED) or []), *avoiding]},
    }


def _excluding(affinity: Json, hosts: Sequence[str]) -> Json:
    """Exclude these hosts in each of the template's terms: Kubernetes requires only one to hold."""
    node = affinity.get("nodeAffinity", {})
    terms = (node.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    excluded = [_is_not(host) for host in hosts]
    required = [
        {**term, "matchFields": [*(term.get("matchFields") or []), *excluded]} for term in terms
    ]
    return {
        **affinity,
        "nodeAffinity": {**node, _REQUIRED: {"nodeSelectorTerms": required}},
    }


def _is_not(host: str) -> Json:
    return {"key": "metadata.name", "operator": "NotIn", "values": [host]}


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"


def label_value(text: str) -> str:
    """The text with the changes that a label's value requires."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:_LABEL_VALUE].strip("-_.")
