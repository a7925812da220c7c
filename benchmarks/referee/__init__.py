"""The referee: what Collage ships against the engines, each as its users run it.

Every contestant has a process of its own and is called through its own public API: OpenVINO and ONNX Runtime on the
user's ONNX file, `torch.compile` where it is asked for, Collage's compiled models through `collage.runtime`. Only one
process runs at a time; the others are stopped (SIGSTOP), so that no thread of theirs is awake. Rounds are in random
order. Outputs are compared. Ratios are of samples of one round; their intervals come from a block bootstrap, because
neighbouring rounds resemble each other.
"""
