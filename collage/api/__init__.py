"""The public calls and their results: `partition` and `Plan`; for several shapes or functions; as a TVM pass.

`collage` exports these names. Besides it, only the command line imports from this package.
"""
