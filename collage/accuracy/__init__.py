"""Accuracy: the error of lower precision, measured on samples of the user.

Samples are read and split (`samples`), ranges of values are found for quantisation (`calibration`), and the error that
each operator adds to the network's outputs in lower precision is measured (`errors`).
"""
