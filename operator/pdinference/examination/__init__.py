"""Examination of stored resources: checked and rendered in the isolated process."""
