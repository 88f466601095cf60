"""The parts of a pod: devices, volumes, placement, the user's overlay, and the proof that it is restricted."""
