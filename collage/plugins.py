"""Plug-ins: searchers, estimators and backends are found by name through entry points, ours and third parties' alike.

A package offers one by declaring, in its `pyproject.toml`,

    [project.entry-points."collage.searchers"]
    mine = "my_package.my_module:MySearcher"

and users then write `searcher="mine"`. Nothing is imported until it is asked for, so that a plug-in that does not
import harms only those who use it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Literal

from collage.errors import PluginError

if TYPE_CHECKING:
    from typing import Self

Kind = Literal["searchers", "estimators", "backends"]
_KINDS = ("searchers", "estimators", "backends")


def names(kind: Kind) -> list[str]:
    """The names that can be loaded, sorted; whether they import, or are available here, is not looked at."""
    return sorted(_found(kind))


def load(kind: Kind, name_or_instance: Any, **parameters: Any) -> Any:
    """An instance: what is given if it is one already, else the named plug-in made with `parameters`.

    A class is taken too, as a name would be.

    Raises
    ------
    PluginError
        The name is unknown (the message lists the valid ones), the plug-in does not import, its constructor refuses
        the parameters, or parameters are given with an instance.
    """
    if isinstance(name_or_instance, str | type):
        cls = load_class(kind, name_or_instance) if isinstance(name_or_instance, str) else name_or_instance
        return _made(kind, cls, name_or_instance, parameters)
    if parameters:
        raise PluginError(
            f"{name_or_instance!r} is made already: give it {', '.join(sorted(parameters))} when making it"
        )
    return name_or_instance


def _made(kind: Kind, cls: type[Any], wanted: str | type[Any], parameters: Mapping[str, Any]) -> Any:
    name = wanted if isinstance(wanted, str) else wanted.__name__
    known = inspect.signature(cls).parameters.values()
    unknown = sorted(parameters.keys() - {p.name for p in known})
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in known):
        names = ", ".join(sorted(p.name for p in known)) or "none"
        raise PluginError(f"the {kind[:-1]} {name} has no parameter {', '.join(unknown)}; known: {names}")
    try:
        return cls(**parameters)
    except (TypeError, ValueError) as error:
        raise PluginError(f"the {kind[:-1]} {name} cannot be made: {error}") from error


def load_class(kind: Kind, name: str) -> type[Any]:
    """The class behind a name.

    Raises
    ------
    PluginError
        The name is unknown (the message lists the valid ones), or the plug-in does not import.
    """
    found = _found(kind)
    if name not in found:
        known = ", ".join(sorted(found)) or "none is installed"
        raise PluginError(f"no {kind[:-1]} is called {name!r}; valid names: {known}")
    entry = found[name]
    try:
        loaded: Any = entry.load()
    except Exception as error:
        raise PluginError(
            f"the {kind[:-1]} {name!r} of package {_package(entry)} does not import "
            f"({entry.value}): {type(error).__name__}: {error}"
        ) from error
    if not isinstance(loaded, type):
        raise PluginError(f"the {kind[:-1]} {name!r} of package {_package(entry)} is not a class: {entry.value}")
    return loaded


def _found(kind: Kind) -> dict[str, EntryPoint]:
    """Entry points by name. Where two packages offer one name, ours stays and the others lose in alphabetical order."""
    if kind not in _KINDS:
        raise ValueError(f"there are {', '.join(_KINDS)}; not {kind!r}")
    entries: Iterable[EntryPoint] = entry_points(group=f"collage.{kind}")
    result: dict[str, EntryPoint] = {}
    for entry in entries:
        held = result.setdefault(entry.name, entry)
        if held is not entry and _precedence(entry) < _precedence(held):  # reading a package's name is slow
            result[entry.name] = entry
    return result


def _precedence(entry: EntryPoint) -> tuple[bool, str, str]:
    package = _package(entry)
    return package != "collage-tvm", package, entry.value


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value.partition(".")[0].partition(":")[0]


class Parameterised:
    """scikit-learn's manner: the constructor stores its parameters under their names; `get_params` and `repr` come
    from that.
    """

    def get_params(self) -> dict[str, Any]:
        if type(self).__init__ is object.__init__:  # whose signature says *args, **kwargs
            return {}
        names = [p.name for p in inspect.signature(type(self).__init__).parameters.values() if p.name != "self"]
        return {name: getattr(self, name) for name in names}

    def with_params(self, **changed: Any) -> Self:
        """A new instance with some parameters changed."""
        return type(self)(**{**self.get_params(), **changed})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in self.get_params().items())})"
