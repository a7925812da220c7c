"""The calls of a user and what they return: `partition` and `Plan`, of several shapes or functions, as a TVM pass.

`collage` exports them by name; nobody else imports from here but the command line.
"""
