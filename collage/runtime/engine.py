"""Engine: what makes a function of a partition's blob when a compiled model is loaded.

TVM's virtual machine calls that function in destination-passing style: the tensors of the inputs, then those of the
outputs. The engine works on their memory directly; nothing is copied in or out.

A package offers an engine under a name by declaring, in its `pyproject.toml`,

    [project.entry-points."collage.engines"]
    mine = "my_package.my_module:ENGINE"

where `ENGINE` is an instance. `collage.runtime.host_engine.HostEngine` is one for engines in C++ on the CPU. Deployed
processes import the module, so it must not import the compiling side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

Run = Callable[..., None]


class Engine(ABC):
    """One engine.

    Attributes
    ----------
    any_address
        Whether its functions take tensors at any address that suits their elements; others get multiples of 64 bytes.
    """

    any_address: bool = False

    @abstractmethod
    def create(self, blob: bytes, options: Mapping[str, Any]) -> Run:
        """The function that runs a blob.

        Parameters
        ----------
        blob
            What the backend's `engine_blob` gave, such as a serialised ONNX model.
        options
            What its `engine_options` gave: `threads`, the number of threads of the deployment, and more of its own.

        Returns
        -------
        Run
            A function of the input tensors and then the output tensors, in the order of the partition's function; it
            writes the outputs. They are compact (C-contiguous) tensors in the memory of the backend's device. Where the
            shape of an output depends on data, it is called with the input tensors alone, and returns the output
            tensor, or a list of all of them.

        Raises
        ------
        CompiledModelError
            The engine's library cannot be used, or it does not take the blob.
        """

    def missing(self) -> str:
        """What has to be installed to run blobs, and how; "" when nothing is missing. Loads nothing."""
        return ""

    def object_file(self) -> str | None:
        """Path of the object file that exported models carry; None for engines in Python.

        Raises
        ------
        CompiledModelError
            It has to be compiled, and cannot be.
        """
        return None


class FunctionEngine(Engine):
    """A plain function `create(blob, options)` as an engine."""

    def __init__(self, function: Callable[[bytes, Mapping[str, Any]], Run]) -> None:
        self._function = function

    def create(self, blob: bytes, options: Mapping[str, Any]) -> Run:
        return self._function(blob, options)


class PackageEngine(FunctionEngine):
    """A plain function that needs an installed package.

    Parameters
    ----------
    function
        `create(blob, options)`; it imports the package.
    package
        The name that is imported.
    install
        How to install it.
    any_address
        As of `Engine`.
    """

    def __init__(
        self,
        function: Callable[[bytes, Mapping[str, Any]], Run],
        package: str,
        install: str,
        any_address: bool = False,
    ) -> None:
        super().__init__(function)
        self.any_address = any_address
        self._package = package
        self._install = install

    def missing(self) -> str:
        if find_spec(self._package) is not None:
            return ""
        return f"{self._package} is not installed: {self._install}"
