"""A pool as its owner describes it: one document of a pool file, in the shape of the `RunnerPool`
resource, so that the same text works with and without a cluster.

All mistakes of a file are reported at once, each with the pool it is in; a file with a mistake
changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
import yaml

from paddock.domain.jobs.labels import LabelSet, conflicts, pool_labels_problem
from paddock.domain.jobs.trust import Forks
from paddock.domain.limits import Resources
from paddock.domain.names import PoolName, pool_name_problem
from paddock.domain.pods.quantities import mebibytes, milli
from paddock.domain.pools.objects import API_VERSION, KIND
from paddock.domain.pools.pool import PoolFacts
from paddock.domain.pools.terms import Provisioning, Rollout, Terms
from paddock.domain.runners.dialects import RunnerProgram, program_of_command
from paddock.fleet.kube.pod_rules import Privileged
from paddock.fleet.kube.shapes import PodDescription, runner_command, template_problem
from paddock.fleet.kube.template import PodTemplate, cost, normalised

#: A pool file describes pools, not a cluster: this is some hundred thousand labels.
_LARGEST_FILE: Final = 4 * 1024 * 1024
#: Of a pool file; an alias counts as all that it stands for. Without a limit, ten lines of aliases to
#: aliases become billions of values. A large template has some hundreds.
_MOST_VALUES: Final = 1_000_000
#: The character NUL in JSON. PostgreSQL stores no text that contains it.
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
#: What `yaml` raises besides its own errors, for a value that its tag does not fit.
_YAML_ERRORS: Final = (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError)


class PoolFileError(Exception):
    """Everything that is wrong with a pool file, a sentence each."""

    def __init__(self, *mistakes: str) -> None:
        # YAML can hold characters that no terminal can show.
        self.mistakes = tuple(each.encode(errors="backslashreplace").decode() for each in mistakes)
        super().__init__("\n".join(self.mistakes))


class ResourceSpec(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """What one runner takes from an account's limits, in Kubernetes' quantities."""

    vcpu: str | int | float = 0
    memory: str | int = 0


class ProvisioningSpec(
    Provisioning, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Provisioning, read strictly: an unknown field is an error."""


class RolloutSpec(Rollout, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A rollout, read strictly: an unknown field is an error."""


class PoolSpec(Terms, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """`Terms` say how many runners there are; the rest is what they are, and for whom."""

    labels: list[str]
    #: The runner group, by the name it has in each organisation. Absent: the default group.
    runner_group: str | None = None
    shape: Literal["gated", "single"] = "gated"
    resources: ResourceSpec = ResourceSpec()
    provisioning: ProvisioningSpec = ProvisioningSpec()
    rollout: RolloutSpec = RolloutSpec()
    #: The program that executes jobs, so that its log and its exit codes are understood: actions/runner
    #: (`actions`) or github-act-runner (`act-runner`). Absent: recognised by the name of its file,
    #: or by lines of its log. A runner whose program is not recognised is never deleted as idle.
    runner: Literal["actions", "act-runner"] | None = None
    #: For the fleet of one machine: what is started as the runner, like
    #: `[/opt/actions-runner/bin/Runner.Listener, run]`.
    runner_command: list[str] | None = None
    #: For a cluster: an ordinary Pod template, into which paddock puts its parts. Its container
    #: `runner` becomes the runner.
    template: PodTemplate | None = None
    #: What is done about a template whose Pods could take over their node. It is refused, unless each
    #: Pod is a virtual machine (`inVirtualMachine`, with a runtimeClassName that makes it one), or the
    #: pool accepts the risk (`acceptRisk`).
    privileged: Privileged = "refuse"
    #: What is done about jobs whose code may be a stranger's, from a fork for example: nothing
    #: (`ignore`), their runs are looked up and they are marked (`mark`), or they also get no runner of
    #: this pool (`refuse`). It does not keep such a job from a runner that is there already: only a
    #: runner group does.
    forks: Literal["ignore", "mark", "refuse"] = "ignore"


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    name: str


class RunnerPool(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    api_version: str
    kind: str
    metadata: Metadata
    spec: PoolSpec


def read_pool_file(path: Path) -> list[PoolFacts]:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise PoolFileError(
                f"{path} has more than {_LARGEST_FILE // 2**20} MiB: is it a pool file?"
            )
        text = path.read_text("utf-8")
    except OSError as error:
        raise PoolFileError(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise PoolFileError(f"{path} is not UTF-8 text: {error.reason}.") from error
    return parse_pools(text, name=str(path))


def parse_pools(text: str, *, name: str) -> list[PoolFacts]:
    try:
        documents = [each for each in _documents(text) if each is not None]
    except _YAML_ERRORS as error:
        raise PoolFileError(f"{name} is not YAML: {' '.join(str(error).split())}") from error
    mistakes: list[str] = []
    pools = [
        pool
        for number, document in enumerate(documents, 1)
        if (pool := _read(document, f"{name}, document {number}", mistakes)) is not None
    ]
    mistakes += _contradictions(pools)
    if not documents:
        mistakes.append(f"{name} describes no pool.")
    if mistakes:
        raise PoolFileError(*mistakes)
    return pools


def _documents(text: str) -> Iterator[Any]:
    loader = yaml.SafeLoader(text)
    left = _MOST_VALUES
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None, "there is one"
            left -= _values(node, {})
            if left < 0:
                raise ValueError(
                    f"it has more than {_MOST_VALUES} values, those of aliases included"
                )
            yield loader.construct_document(node)
    finally:
        loader.dispose()


def _values(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values the node stands for. One that contains itself has no end."""
    if (size := known.get(id(node))) is not None:
        return size
    known[id(node)] = _MOST_VALUES + 1
    match node:
        case yaml.MappingNode():
            size = 1 + sum(_values(k, known) + _values(v, known) for k, v in node.value)
        case yaml.SequenceNode():
            size = 1 + sum(_values(each, known) for each in node.value)
        case _:
            size = 1
    known[id(node)] = size
    return size


def _read(document: Any, where: str, mistakes: list[str]) -> PoolFacts | None:
    try:
        return _facts(msgspec.convert(document, RunnerPool))
    except (ValueError, msgspec.ValidationError, RecursionError) as error:
        named = document.get("metadata", {}) if isinstance(document, dict) else {}
        name = named.get("name") if isinstance(named, dict) else None
        mistakes.append(f"{where}{f' (pool {name})' if name else ''}: {error}.")
        return None


def _facts(pool: RunnerPool) -> PoolFacts:
    if (pool.api_version, pool.kind) != (API_VERSION, KIND):
        raise ValueError(
            f"it is a {pool.kind} of {pool.api_version}, not a {KIND} of {API_VERSION}"
        )
    return facts(pool.metadata.name, pool.spec)


def described(name: str, spec: bytes) -> PoolFacts:
    """The pool that a RunnerPool object describes. Raises ValueError, and nothing else, with what is
    wrong with it: one object that cannot be read must not keep others from being read (I57)."""
    try:
        return facts(name, msgspec.json.decode(spec, type=PoolSpec))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(str(error)) from error


def facts(name: str, spec: PoolSpec) -> PoolFacts:
    """Raises ValueError with what is wrong with it."""
    labels = LabelSet.of(spec.labels)
    for wrong in (pool_name_problem(name), pool_labels_problem(labels), spec.problem()):
        if wrong:
            raise ValueError(wrong)
    if spec.template is not None:
        if wrong := template_problem(_pods_of(spec)):
            raise ValueError(wrong)
        spec = msgspec.structs.replace(spec, template=normalised(spec.template))
    encoded = msgspec.json.encode(spec, order="sorted").decode()
    if _NUL.search(encoded):
        raise ValueError("it contains the character NUL, which cannot be stored")
    return PoolFacts(
        name=name,
        labels=tuple(labels),
        shape=spec.shape,
        cost=_cost(spec),
        max_runners=spec.maximum,
        spec=encoded,
        spec_hash=_pod_hash(spec),
        runner_group=spec.runner_group,
        runner=_program(spec),
    )


def _pods_of(spec: PoolSpec) -> PodDescription:
    return PodDescription(
        template=spec.template,
        shape=spec.shape,
        privileged=spec.privileged,
        forks=Forks(spec.forks),
        runner_command=spec.runner_command,
        runner=spec.runner,
    )


def _program(spec: PoolSpec) -> RunnerProgram:
    if spec.runner is not None:
        return RunnerProgram(spec.runner)
    return program_of_command(runner_command(_pods_of(spec)))


def _cost(spec: PoolSpec) -> Resources:
    """As it is written; otherwise what a Pod of the template asks its node for."""
    given = Resources(
        vcpu_milli=milli(spec.resources.vcpu), memory_mib=mebibytes(spec.resources.memory)
    )
    if spec.template is None or given != Resources():
        return given
    return cost(spec.template, sidecar=spec.shape == "gated")


def _pod_hash(spec: PoolSpec) -> str:
    """Identifies what a Pod of the pool is made of: a Pod of another hash is stale. The number of Pods,
    and whom they serve, is not part of it."""
    parts: list[object] = [spec.shape, spec.resources, spec.runner_command]
    if spec.template is not None:
        parts += [spec.template, spec.privileged]
        if spec.forks != "ignore":
            # It sets a label of the Pods. The default is left out, as it always was: an upgrade rolls
            # nothing.
            parts.append(spec.forks)
    if spec.runner is not None:
        parts.append({"runner": spec.runner})
    made_of = msgspec.json.encode(parts, order="sorted")
    return hashlib.sha256(made_of).hexdigest()[:16]


def _contradictions(pools: list[PoolFacts]) -> list[str]:
    mistakes = []
    seen: dict[PoolName, LabelSet] = {}
    for pool in pools:
        name, labels = PoolName(pool.name), LabelSet.of(pool.labels)
        if name in seen:
            mistakes.append(f"pool {name} is described twice.")
        mistakes += [
            f"pool {name}: {conflict.why}."
            for conflict in conflicts(labels, {k: v for k, v in seen.items() if k != name})
        ]
        seen[name] = labels
    return mistakes
