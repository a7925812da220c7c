"""The referee: what Collage ships against the engines, each as its users run it.

Every contestant has a process of its own and is called through its own public API: OpenVINO and ONNX Runtime on the
user's ONNX file, `torch.compile` where PyTorch is installed, Collage's compiled models through `collage.runtime`. Only
one process runs at a time; the others are stopped (SIGSTOP), so that no thread of theirs is awake. Rounds are in random
order. Outputs are compared. Ratios are of samples of one round; their intervals come from a block bootstrap, because
neighbouring rounds resemble each other. A race has several repetitions, each with fresh processes, inputs and order.

Nothing of `collage.confirm` or `collage.measure` is used: what judges shares nothing with what is judged.

    python -m benchmarks.referee MODEL.onnx COMPILED.so -o REPORT.json     # one network
    python -m benchmarks.referee.suite                                     # tune and judge all of them
"""
