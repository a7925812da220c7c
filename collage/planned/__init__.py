"""Plans as data: the fields of a plan, and its file, which people can read and edit."""
