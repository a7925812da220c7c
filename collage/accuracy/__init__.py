"""Accuracy: what less precision costs, on samples of the user's own.

Samples are read and split (`samples`), ranges of values are found for quantisation (`calibration`), and the error that
each operator adds to the network's outputs in less precision is measured (`errors`).
"""
