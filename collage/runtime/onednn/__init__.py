"""The engine of the `onednn` backend, in C++ over oneDNN's C API, and how it is built."""
