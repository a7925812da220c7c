"""Places: the devices that a module wants its values on, and where it says so.

`collage.frontend.places` reads them off a Relax module's annotations; nodes of the dataflow graph carry them.
"""

from __future__ import annotations

from typing import Any

#: Attribute of a loaded module: the device of each binding of `main`, such as "cpu:1"; "" where it may be any.
PLACES = "collage_places"


def places_of(module: Any) -> tuple[str, ...]:
    """The device of each binding of `main`, "" where it may be any; () where the module asks for none."""
    return tuple(map(str, module.attrs[PLACES])) if module.attrs and PLACES in module.attrs else ()
