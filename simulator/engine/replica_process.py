"""A replica as a process: it can crash between any two port calls, stall, and come back.

A crash ends all its tasks where they wait. Every port call that they make while they unwind is
refused: no `finally` of a dead process acts on the world.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from simulator.engine.loop import VirtualLoop

T = TypeVar("T")

#: The machine that this task belongs to; not set for tasks of the world.
_owner: ContextVar[ReplicaProcess | None] = ContextVar("machine", default=None)


class Processes:
    """Knows which task belongs to which machine."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self._world = copy_context()
        loop.set_task_factory(self._make)  # type: ignore[arg-type]

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """A task of the world itself, from whichever task it is created."""
        return self.loop.create_task(coroutine, name=name, context=self._world.copy())

    def context_of(self, machine: ReplicaProcess) -> Context:
        context = self._world.copy()
        context.run(_owner.set, machine)
        return context

    def _make(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, T],
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        context = copy_context() if context is None else context
        task = asyncio.Task(coroutine, loop=loop, context=context, **options)
        machine = context.get(_owner)
        if machine is not None:
            machine.adopt(task)
        return task


class ReplicaProcess:
    def __init__(self, name: str, processes: Processes) -> None:
        self.name = name
        self.alive = True
        self._stalled = False
        #: Since when it may take turns.
        self.responsive_since = processes.loop.time()
        self._processes = processes
        self._context = processes.context_of(self)
        self._tasks: dict[asyncio.Task[Any], None] = {}

    @property
    def stalled(self) -> bool:
        return self._stalled

    @stalled.setter
    def stalled(self, stalled: bool) -> None:
        self._stalled = stalled
        self.responsive_since = self._processes.loop.time()

    async def turn(self, what: str) -> None:
        """Called before every act on the world."""
        if not self.alive:
            raise asyncio.CancelledError(f"{self.name} has crashed")
        await self._processes.loop.turn(self, what)
        if not self.alive:
            raise asyncio.CancelledError(f"{self.name} has crashed")

    def spawn(self, coroutine: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        return self._processes.loop.create_task(coroutine, name=name, context=self._context.copy())

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def crash(self) -> None:
        self.alive = False
        self.stalled = False
        self._processes.spawn(self._end(), name=f"the end of {self.name}")

    async def _end(self) -> None:
        while self._tasks:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.sleep(0)
