"""`[kube]`: where runners' Pods are made, and how they find paddock."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from paddock.agent.client import Url


class KubeSettings(BaseModel):
    """`[kube]`, for PADDOCK_FLEET=kube."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    namespace: str = Field(
        default="paddock-runners",
        description="where runners' Pods and RunnerPool objects are; for nothing else, since all its "
        "Pods are read",
    )
    service_account: str = Field(
        default="paddock-runner",
        description="of the runners' Pods; it needs no rights, it only names them",
    )
    agent_image: str | None = Field(
        default=None, description="has the agent in it: paddock's own image, of this version"
    )
    agent_command: str = Field(
        default="python3 -I -S /opt/paddock/agent", description="how the agent is started there"
    )
    server_url: str | None = Field(
        default=None, description="where Pods find paddock, like http://paddock.paddock:8787"
    )
    vitals_url: str | None = Field(
        default=None,
        description="where their sidecars leave vitals, if PADDOCK_VITALS_LISTEN gives them an "
        "address of their own; unset: the same",
    )
    dispatch_egress: Literal["all", "idle-only"] = Field(
        default="all",
        description="which Pods the installed NetworkPolicies let reach dispatch, for `paddock doctor` "
        "to say what that costs; it changes nothing by itself",
    )
    server_ca: str | None = Field(
        default=None,
        description="a ConfigMap with `ca.crt` in the runners' namespace, if the server's certificate "
        "is from an authority of your own",
    )
    token_audiences: str = Field(
        default="sts.amazonaws.com api://AzureADTokenExchange https://iam.googleapis.com/projects/* "
        "//iam.googleapis.com/projects/*",
        description="audiences that templates may project ServiceAccount tokens for, separated by "
        "spaces; `*` stands for any text. Never add the API server's own audience",
    )
    node_selector: str | None = Field(
        default=None,
        description="labels of the nodes that runners share, like `pool=runners`; unset: all",
    )
    kubeconfig: Path | None = Field(
        default=None,
        description="how to reach the cluster; unset: as a Pod in it, or by KUBECONFIG as usual",
    )

    @field_validator("server_url", "vitals_url")
    @classmethod
    def _is_a_url(cls, value: str | None) -> str | None:
        if value is not None:
            Url.parse(value)
        return value

    @field_validator("agent_command")
    @classmethod
    def _is_a_command(cls, value: str) -> str:
        if not shlex.split(value):
            raise ValueError("it is empty: write a program and its arguments.")
        return value

    @property
    def command(self) -> list[str]:
        return shlex.split(self.agent_command)

    @property
    def audiences(self) -> list[str]:
        return self.token_audiences.split()
