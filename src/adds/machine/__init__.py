"""The machine a job runs on: devices, memory, logs."""
