"""The latency model behind `learned`: data cleaning, fitting, calibration, files."""
