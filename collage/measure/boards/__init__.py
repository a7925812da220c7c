"""A board: candidates are compiled for it here, and timed on it through TVM's RPC tracker (docs/SCALE.md).

The board runs TVM's RPC server and nothing of Collage, so it runs candidates that need TVM's runtime alone: native
ones. The tracker tells where a board is (`tracker`). The board itself is asked what it is like (`files`, `identity`).
One process of this host speaks with the board (`bench`), and the tuning process ends it if no answer comes (`board`).
"""

from collage.measure.boards.board import Board, board_at

__all__ = ["Board", "board_at"]
