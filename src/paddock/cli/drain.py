"""`paddock drain`"""

from __future__ import annotations

from typing import Annotated

import typer

from paddock.cli.operator_commands import NoSuchObject, user
from paddock.cli.options import Config
from paddock.cli.output import say, show
from paddock.cli.run_command import run
from paddock.operators import log_action
from paddock.ports import FleetUnavailable
from paddock.settings import Settings, SettingsError, load
from paddock.system import SystemClock

Abandon = Annotated[
    bool,
    typer.Option(
        "--abandon",
        help="Do not wait for runners: use it when paddock itself no longer runs.",
    ),
]


def drain(abandon: Abandon = False, config: Config = None) -> None:
    """Delete every pool of the cluster, and wait until the last runner has gone.

    For uninstalling: the chart does this before it deletes anything. paddock must be running
    meanwhile: it retires idle runners at once and waits for jobs. Afterwards no object waits for
    paddock. The command talks to Kubernetes and needs no database.

    With --abandon it waits for nothing: it deletes the pools and removes paddock's finalizers from
    pools and Pods. Runners go on as long as their jobs do; you decide how they end.

    Examples:

        PADDOCK_KUBE_NAMESPACE=paddock-runners paddock drain

        paddock drain --abandon
    """
    settings = load(config)
    run(_drain(settings, abandon=abandon), settings)


async def _drain(settings: Settings, *, abandon: bool) -> None:
    # Seven megabytes, imported only if needed.
    from paddock.fleet.kube.api import KubeApi, configured
    from paddock.fleet.kube.uninstall import Uninstall

    try:
        api = KubeApi.connected(configured(settings.kube.kubeconfig))
    except ValueError as error:
        raise SettingsError(f"{str(error).rstrip('.')}.") from None
    try:
        leaving = Uninstall(api, namespace=settings.kube.namespace, clock=SystemClock(), say=say)
        log_action(user(), "abandon" if abandon else "drain", settings.kube.namespace)
        if not abandon:
            await leaving.drain()
            show("drained: nothing of paddock's is left in the cluster")
            return
        left = await leaving.abandon()
        show(f"abandoned: {left}")
        if left.alive:
            show("still running, and no longer managed: " + ", ".join(left.alive))
    except FleetUnavailable as error:
        raise NoSuchObject(str(error)) from None
    finally:
        await api.aclose()
