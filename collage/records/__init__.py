"""Records of measurements: the database, and benchmark logs to move records between machines."""

from collage.records.aggregate import by_key
from collage.records.database import DatabaseStats, RecordDatabase, default_path
from collage.records.key import RecordKey, key_of, keys_of, plan_key, sensitivity_key, transition_key
from collage.records.log import ImportCounts, export_log, import_log, read_log
from collage.records.places import Location, is_url
from collage.records.record import SCHEMA_VERSION, Record, process_session
from collage.records.source import merge, read_observations, read_records
from collage.records.store import Forgotten, Selection

__all__ = [
    "SCHEMA_VERSION",
    "DatabaseStats",
    "Forgotten",
    "ImportCounts",
    "Location",
    "Record",
    "RecordDatabase",
    "RecordKey",
    "Selection",
    "by_key",
    "default_path",
    "export_log",
    "import_log",
    "is_url",
    "key_of",
    "keys_of",
    "merge",
    "plan_key",
    "process_session",
    "read_log",
    "read_observations",
    "read_records",
    "sensitivity_key",
    "transition_key",
]
