"""The cost model behind `learned` and `active`: cleaning of records, fitting, calibration, files."""
