"""Code that a table names and that a user may bring: looked up by its name, never loaded because a table names it.

A name is that of a plugin which this package brings, which an installed package offers under an entry point group, or
which was registered in this process; or it is the dotted path of a class that this process was set to allow.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from spark_apps.storage.errors import InvalidInput, InvalidRule

T = TypeVar("T")


class Plugins(Generic[T]):
    """The plugins of one kind, by name.

    :param what: in the words of an error: "rule engine".
    :param base: the class that every one of them is an instance of.
    :param group: entry points: name -> class.
    :param variable: environment variable with dotted paths of classes, separated by commas, that may be loaded.
    :param built_in: name -> the plugin, or where its class is found: ``module:Class``, loaded at first use.
    :param allower: dotted path of the function that calls :meth:`allow`, for the error.
    :param reserved: names that mean something else already; listed among the known ones in errors.
    :param error: the class of the errors.
    """

    def __init__(
        self,
        what: str,
        base: type[T],
        group: str,
        variable: str,
        built_in: Mapping[str, T | str],
        allower: str,
        reserved: Collection[str] = (),
        error: type[InvalidInput] = InvalidRule,
    ) -> None:
        self.what, self.base, self.group, self.variable = what, base, group, variable
        self._allower, self._error = allower, error
        self._built_in = dict(built_in)
        self._reserved = frozenset(reserved)
        self._loaded: dict[str, T] = {}
        self._allowed: set[str] = set()

    def register(self, name: str, thing: T) -> None:
        """Register a plugin under a new name.

        :raises InvalidInput: if the name is taken: tables persist it.
        """
        if name in self._built_in or name in self._reserved or self._loaded.setdefault(name, thing) is not thing:
            raise self._error(f"The {self.what} {name!r} exists already.", hint="Choose another name.")

    def allow(self, *classes: str) -> None:
        """Allow the classes of these dotted paths (``package.module.Class``) to be loaded in this process."""
        self._allowed.update(classes)

    def others(self) -> list[str]:
        """Return the names of the plugins that this package does not bring."""
        offered = {point.name for point in entry_points(group=self.group)}
        return sorted({*self._loaded, *offered, *self._allowed, *self._listed()} - self._built_in.keys())

    def _listed(self) -> set[str]:
        return {part.strip() for part in os.environ.get(self.variable, "").split(",")} - {""}

    def find(self, name: str) -> T:
        """Return the plugin of this name.

        :raises InvalidInput: if there is none, naming those that are known.
        """
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> T:
        built_in = self._built_in.get(name)
        if isinstance(built_in, str):
            return self._instance(name, EntryPoint(name, built_in, self.group))
        if built_in is not None:
            return built_in
        offered = {point.name: point for point in entry_points(group=self.group)}
        if name in offered:
            return self._instance(name, offered[name])
        listed = self._listed()
        if "." in name and name in self._allowed | listed:
            module, _, attribute = name.rpartition(".")
            return self._instance(name, EntryPoint(name, f"{module}:{attribute}", self.group))
        hint = f"Known are: {', '.join(sorted({*self._built_in, *self._reserved, *self._loaded, *offered}))}."
        if "." in name:
            hint += f" To load that class, list it in {self.variable}, or pass it to {self._allower}()."
        raise self._error(f"There is no {self.what} named {name!r} in this process.", hint=hint)

    def _instance(self, name: str, point: EntryPoint) -> T:
        try:
            thing = getattr(import_module(point.module), point.attr)()
        except (ImportError, AttributeError, TypeError) as error:
            raise self._error(
                f"The {self.what} {name!r} ({point.value}) cannot be loaded: {error}.",
                hint="Install the package that brings it, on the cluster too; the class must need no arguments.",
            ) from error
        if not isinstance(thing, self.base):
            raise self._error(
                f"{point.value} is no {self.what}.", hint=f"Derive it from {self.base.__module__}.{self.base.__name__}."
            )
        return thing
