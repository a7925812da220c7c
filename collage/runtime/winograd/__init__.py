"""The native half of the `winograd` engine: convolutions on the CPU by Winograd's minimal filtering."""
