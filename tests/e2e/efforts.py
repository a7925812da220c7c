"""How long the plans of the tests may take to be found."""

from __future__ import annotations

from dataclasses import replace

from collage.api.effort import EFFORTS

#: Every candidate is measured; the contest is short, because who wins it does not matter here.
EVERYTHING = replace(EFFORTS["thorough"], correction_rounds=1, race_rounds=5, final_rounds=4)
