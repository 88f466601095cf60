"""Parts of a pod: devices, volumes, placement, the user's overlay, and checks of Pod Security."""
