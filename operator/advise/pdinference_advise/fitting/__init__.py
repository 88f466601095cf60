"""Constants of a device, from measured steps."""
