"""TVM's own code generation for the CPU, the native backend."""
