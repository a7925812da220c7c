"""A plan as data: its fields, and the file that people read and edit."""
