"""A board: candidates are compiled for it here, and timed on it through TVM's RPC tracker (docs/SCALE.md).

The board runs TVM's RPC server, and nothing of ours. So it runs what needs TVM's runtime alone: native candidates. The
tracker says where a board is (`tracker`), what it is like is asked of itself (`files`, `identity`), and one process of
this host speaks with it (`bench`), which the tuning process ends where there is no answer (`board`).
"""

from collage.measure.boards.board import Board, board_at

__all__ = ["Board", "board_at"]
