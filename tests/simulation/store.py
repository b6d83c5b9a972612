"""An object store in memory; a gate before every call may hold the caller, or make the call fail or get lost."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Protocol

from spark_apps.storage.errors import ObjectExists, ObjectNotFound, StorageUnavailable
from spark_apps.storage.store import ObjectInfo

OK = "ok"
ERROR_BEFORE = "error before"
ERROR_AFTER = "error after"
EXISTS = "already exists"
LATE = "landed late"
CRASH_BEFORE = "crash before"
CRASH_AFTER = "crash after"
CRASH_LATE = "crash, landed late"

CHANGING = ("put", "create", "delete")


class Crash(BaseException):
    """The process is gone; nothing in it may catch this."""


class Watcher(Protocol):
    """Told of every change of the store, in the order in which they happen."""

    def written(self, key: str, data: bytes) -> None: ...
    def deleted(self, key: str) -> None: ...


class Objects:
    """What all simulated processes see: the objects, the time, and requests that have not landed yet."""

    def __init__(self) -> None:
        self.bodies: dict[str, tuple[bytes, float]] = {}
        self.now = 1_700_000_000.0
        self.on_their_way: list[Callable[[], Any]] = []
        self.watchers: list[Watcher] = []

    def write(self, key: str, data: bytes) -> None:
        self.bodies[key] = (data, self.now)
        for watcher in self.watchers:
            watcher.written(key, data)

    def remove(self, key: str) -> None:
        if key in self.bodies:
            for watcher in self.watchers:
                watcher.deleted(key)
            del self.bodies[key]

    def land(self) -> None:
        """A request that was given up by its caller arrives after all."""
        if self.on_their_way:
            try:
                self.on_their_way.pop(0)()
            except ObjectExists:
                return


class SimulatedStore:
    """One process's view of :class:`Objects`.

    :param gate: asked before each call with its verb and key; answers what is to become of the call.
    """

    uri = "simulated://table"

    def __init__(self, objects: Objects, gate: Callable[[str, str], str] = lambda _verb, _key: OK) -> None:
        self.objects = objects
        self.gate = gate

    def get(self, key: str, most: int | None = None) -> bytes:
        return self._call("get", key, lambda: self._body(key))

    def get_range(self, key: str, start: int, end: int) -> bytes:
        return self._call("get", key, lambda: self._body(key)[start:end])

    def head(self, key: str) -> ObjectInfo | None:
        return self._call("head", key, lambda: self._info(key) if key in self.objects.bodies else None)

    def put(self, key: str, data: bytes) -> None:
        self._call("put", key, lambda: self.objects.write(key, data))

    def create(self, key: str, data: bytes) -> None:
        def effect() -> None:
            if key in self.objects.bodies:
                raise ObjectExists(f"{key} exists already.")
            self.objects.write(key, data)

        self._call("create", key, effect)

    def list(self, prefix: str, after: str | None = None) -> list[ObjectInfo]:
        def effect() -> builtins.list[ObjectInfo]:
            keys = sorted(key for key in self.objects.bodies if key.startswith(f"{prefix}/") and key > (after or ""))
            return [self._info(key) for key in keys]

        return self._call("list", prefix, effect)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._call("delete", key, lambda key=key: self.objects.remove(key))

    def sync(self, keys: Iterable[str]) -> None:
        """A store of objects has kept what it answered for."""

    def spark_path(self, key: str = "") -> str:
        return f"{self.uri}/{key}"

    def _body(self, key: str) -> bytes:
        if key not in self.objects.bodies:
            raise ObjectNotFound(f"{key} does not exist.")
        return self.objects.bodies[key][0]

    def _info(self, key: str) -> ObjectInfo:
        data, modified = self.objects.bodies[key]
        return ObjectInfo(key, len(data), datetime.fromtimestamp(modified, UTC))

    def _call(self, verb: str, key: str, effect: Callable[[], Any]) -> Any:
        answer = self.gate(verb, key)
        if answer == OK:
            return effect()
        if answer == CRASH_BEFORE:
            raise Crash
        if answer in (LATE, CRASH_LATE) and verb in CHANGING:
            self.objects.on_their_way.append(effect)
        elif answer in (ERROR_AFTER, EXISTS, CRASH_AFTER):
            try:
                effect()
            except (ObjectExists, ObjectNotFound):
                pass
        if answer in (CRASH_AFTER, CRASH_LATE):
            raise Crash
        if answer == EXISTS and verb == "create":
            raise ObjectExists(f"{key} exists already, says the store.")
        raise StorageUnavailable(f"{verb} {key}: {answer}.")
