"""What holds for whatever a name or an instance can be given for: scikit-learn's manner, and pickling."""

from __future__ import annotations

import inspect
import pickle
from abc import ABC, abstractmethod
from typing import Any


class ParameterisedConformance(ABC):
    """The part of a suite that searchers and estimators share."""

    @abstractmethod
    def make(self) -> Any:
        """A new instance of what is tested; called several times per test."""

    def test_get_params_gives_the_constructors_parameters(self) -> None:
        made = self.make()
        named = [p for p in inspect.signature(type(made)).parameters.values() if p.name != "self"]
        assert all(p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in named), (
            "the constructor names its parameters: no *args, no **kwargs"
        )
        assert list(made.get_params()) == [p.name for p in named]

    def test_the_constructor_only_stores_its_parameters(self) -> None:
        """`clone` in scikit-learn's sense: a new instance of the same parameters, the very same objects."""
        made = self.make()
        parameters = made.get_params()
        clone = type(made)(**parameters)
        for name, given in parameters.items():
            assert clone.get_params()[name] is given, f"the constructor changed {name!r}"
        assert vars(clone).keys() == parameters.keys(), "attributes beyond the parameters belong to a call, or are lazy"

    def test_repr_names_the_class_and_its_parameters(self) -> None:
        made = self.make()
        text = repr(made)
        assert text.startswith(f"{type(made).__name__}(") and all(f"{name}=" in text for name in made.get_params())

    def test_can_be_pickled(self) -> None:
        made = self.make()
        copy = pickle.loads(pickle.dumps(made))
        assert type(copy) is type(made)
        assert repr(copy.get_params()).split(" at 0x")[0] == repr(made.get_params()).split(" at 0x")[0]
