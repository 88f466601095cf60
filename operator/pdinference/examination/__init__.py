"""What a stored resource asks for: checked and rendered in the isolated process."""
