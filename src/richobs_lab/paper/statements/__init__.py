"""The statements of [KAL16], one module each."""
