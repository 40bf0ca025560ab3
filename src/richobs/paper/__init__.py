"""Every numbered statement of [KAL16] as something to run: one module per statement."""
