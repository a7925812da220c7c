"""Makes the random graphs of the graph tests importable here."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "graph"))
