"""Where records are: a file of SQLite, or a database of a PostgreSQL server."""

from collage.records.places.choice import Location, is_url, place_of
from collage.records.places.place import Place, ServerLost

__all__ = ["Location", "Place", "ServerLost", "is_url", "place_of"]
